"""The state of the repair of lost copies: suspected nodes, walks over their jobs, and the jobs that take a turn.

`repair.py` has the rules of walks, and `repair_turns.py` those of turns. Nothing is stored here for a job that no walk
has visited. So TURNS_MAX bounds the memory, regardless of how many jobs name a lost node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.job import Job
    from disque_py.core.node_sets import NodeSet

# A job whose TTL ends earlier than this is not repaired.
LIFE_MS_MIN: Final = 10_000

# The stages of a turn.
WAITING: Final = 0  # The turn continues at `due_ms`.
ASKING: Final = 1  # The holders were asked whether they have the job.
READY: Final = 2  # Copies are missing, and the turn waits until `repair-rate` allows one.
COPYING: Final = 3  # All holders know the new nodes, and the job was sent to these.


class Turn:
    """The turn of one job, at this holder.

    stage        WAITING, ASKING, READY or COPYING
    due_ms       when the turn continues, while WAITING; otherwise when a silent node is asked again
    number       the number of the question to the holders; 0: none yet
    unanswered   holders that have not answered the question
    answers      holder -> what it has (HAS_…)
    has_grown    whether an answer named a holder that was not asked
    is_behind    whether a holder that answered has a newer changeable part
    targets      nodes that were named as new holders and have not answered REPLJOB
    tried        nodes that were named in this turn; without an answer they do not count as copies
    refused      nodes that took no copy
    asked        how often the job was sent to the new nodes
    is_read      whether the job's body is being read from disk
    """

    __slots__ = (
        "answers",
        "asked",
        "due_ms",
        "has_grown",
        "is_behind",
        "is_read",
        "number",
        "refused",
        "stage",
        "targets",
        "tried",
        "unanswered",
    )

    def __init__(self, due_ms: int) -> None:
        self.stage = WAITING
        self.due_ms = due_ms
        self.number = 0
        self.unanswered: dict[Node, None] = {}
        self.answers: dict[Node, int] = {}
        self.has_grown = self.is_behind = False
        self.targets: tuple[Node, ...] = ()
        self.tried: dict[Node, None] = {}
        self.refused: dict[Node, None] = {}
        self.asked = 0
        self.is_read = False


class Question:
    """A HAVE: the jobs that holders are asked about, and the holders that have not answered.

    asked, due_ms   how often the question was sent, and when it is sent again
    """

    __slots__ = ("asked", "due_ms", "item", "jobs", "unanswered")

    def __init__(self, item: tuple[Any, ...], jobs: list[Job], nodes: tuple[Node, ...], due_ms: int) -> None:
        self.item = item
        self.jobs = jobs
        self.due_ms = due_ms
        self.asked = 1
        self.unanswered = dict.fromkeys(nodes)


class Walk:
    """A walk over all shards, for jobs whose holder set contains one of certain nodes.

    left      node -> number of shards that the walk must still visit for this node
    shard     the shard that was visited last
    hits      set of holders -> whether it contains one of the nodes
    """

    __slots__ = ("hits", "left", "shard")

    def __init__(self) -> None:
        self.left: dict[Node, int] = {}
        self.shard = 0
        self.hits: dict[NodeSet, bool] = {}

    def add(self, node: Node, shards: int) -> None:
        """Make the walk visit all jobs for this node."""
        self.left[node] = shards
        self.hits.clear()

    def passed(self) -> list[Node]:
        """Note that one more shard was visited. Return the nodes for which it was the last one."""
        over = []
        for node, left in list(self.left.items()):
            if left > 1:
                self.left[node] = left - 1
            else:
                del self.left[node]
                over.append(node)
        if over:
            self.hits.clear()
        return over

    def names(self, holders: NodeSet) -> bool:
        """Return whether a set of holders contains one of the nodes."""
        hit = self.hits.get(holders)
        if hit is None:
            hit = self.hits[holders] = any(node in holders for node in self.left)
        return hit


class Repairs:
    """The state of repairs on this node; see the module.

    turns         job -> its turn
    later         jobs that take a turn later. Some were not in scope when a walk visited them, because they waited for
                  their first copies or were about to end. For others a leaving node asked us to take the turn. Others
                  were named although their creation may have failed
    named         job -> nodes that this node named as new holders, and that may get their copy late (acks.py)
    questions     number -> question to holders
    number        the number of the last question
    runs          node -> the process whose copies this node has asked for
    due           node -> when the copies of its process become suspect
    failed        nodes that have been `fail` for `repair-after`
    presumed      unreachable nodes whose copies were counted without an answer; they are asked when linked again
    counting, first, rest   the walks: one counts jobs, one visits those that this node repairs first, one all others
    found, passed how many jobs the counting walk has found, and how many of them the first walk has visited
    since_ms      when the last node was suspected
    cycle         node -> reason, for the nodes that have caused walks since repairs began
    is_told       whether an event has said that copies are missing
    made, missing copies made since repairs began, and copies that no node could take
    ended_ms      when the last walks ended
    again         nodes that need another walk -> reason
    again_ms, again_epoch   when that walk starts; an earlier change of this state of the cluster starts it, too
    has_short     whether some job ended its turn because no node could take its copies
    noted         answers to REPLJOB: (job, node, COPY_TAKEN, COPY_KNOWN or a reason)
    to_go_on      jobs whose turn has its next step due
    to_ask        jobs whose holders are asked at the end of the node's turn
    to_tell       messages for the end of the node's turn: kind -> (nodes -> ids)
    tokens        copies that `repair-rate` allows now, in thousandths
    ticked_ms, looked_ms   when `tokens` were last counted, and when nodes were last looked at
    is_on         whether `repair-after` was not 0 at the last look
    first_epoch, rest_epoch   the state of the cluster in which these walks determined first holders; -1: several
    healed        the value of `Membership.recoveries` at the last look
    """

    def __init__(self) -> None:
        self.turns: dict[Job, Turn] = {}
        self.later: dict[Job, None] = {}
        self.named: dict[Job, tuple[Node, ...]] = {}
        self.questions: dict[int, Question] = {}
        self.number = 0
        self.runs: dict[Node, bytes] = {}
        self.due: dict[Node, int] = {}
        self.failed: dict[Node, None] = {}
        self.presumed: dict[Node, None] = {}
        self.counting = Walk()
        self.first = Walk()
        self.rest = Walk()
        self.found = self.passed = 0
        self.since_ms = 0
        self.cycle: dict[Node, str] = {}
        self.is_told = False
        self.made = self.missing = 0
        self.again: dict[Node, str] = {}
        self.again_ms = self.again_epoch = 0
        self.ended_ms = 0
        self.has_short = False
        self.noted: list[tuple[Job, Node, int]] = []
        self.to_go_on: dict[Job, None] = {}
        self.to_ask: dict[Job, None] = {}
        self.to_tell: dict[int, dict[tuple[Node, ...], list[bytes]]] = {}
        self.tokens = 0
        self.ticked_ms = self.looked_ms = 0
        self.is_on = False
        self.first_epoch = self.rest_epoch = -1
        self.healed = 0

    def forget_jobs(self) -> None:
        """Forget all jobs, because this node has forgotten them."""
        self.turns.clear()
        self.later.clear()
        self.named.clear()
        self.questions.clear()
        self.noted.clear()
        self.to_go_on.clear()
        self.to_ask.clear()
        self.to_tell.clear()

    def lengthened(self, job: Job, left_ms: int, now_ms: int) -> None:
        """Note that a job's TTL, of which `left_ms` were left, has become longer. A walk may have skipped the job."""
        is_recent = self.is_walking or now_ms - self.since_ms <= LIFE_MS_MIN
        if left_ms < LIFE_MS_MIN and self.is_on and is_recent:
            self.later[job] = None

    def recount(self, job: Job) -> None:
        """Note that a job may have too few copies, because it was named although its creation may have failed."""
        if self.is_on:  # If not, the first look gives a turn to each job.
            self.later[job] = None

    @property
    def is_walking(self) -> bool:
        """Whether a walk still has jobs to visit."""
        return bool(self.counting.left or self.first.left or self.rest.left)
