"""The repair of lost copies, as state: suspected nodes, walks over their jobs, and the jobs that take a turn.

`repair.py` has the rules of walks, and `repair_turns.py` those of turns. Nothing here is kept for a job that no walk
has met: memory is bounded by TURNS_MAX, however many jobs name a lost node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.job import Job
    from disque_py.core.node_sets import NodeSet

# A job with less to live is left alone.
LIFE_MS_MIN: Final = 10_000

# Where a turn stands.
WAITING: Final = 0  # It goes on at `due_ms`.
ASKING: Final = 1  # The members say what they have.
READY: Final = 2  # Copies are missing; `repair-rate` allows them one after the other.
COPYING: Final = 3  # The new nodes were named to all members, and have been sent the job.


class Turn:
    """The turn of one job, at this holder.

    stage        above
    due_ms       when to go on, while WAITING; when to ask a silent node again otherwise
    number       the question that its members are asked; 0: none yet
    unanswered   members that have not answered it
    answers      member -> what it has (HAS_…)
    has_grown    an answer named a member that was not asked
    targets      nodes that were named as new holders and have not answered REPLJOB
    tried        nodes that were named in this turn: without an answer they count for nothing
    refused      nodes that took no copy
    asked        how often the new nodes were sent the job
    is_read      its body is being read from disk
    """

    __slots__ = (
        "answers",
        "asked",
        "due_ms",
        "has_grown",
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
        self.has_grown = False
        self.targets: tuple[Node, ...] = ()
        self.tried: dict[Node, None] = {}
        self.refused: dict[Node, None] = {}
        self.asked = 0
        self.is_read = False


class Question:
    """HAVE: the jobs that some members are asked about, and the members whose answer is due.

    asked, due_ms   how often it was sent, and when it is sent again
    """

    __slots__ = ("asked", "due_ms", "item", "jobs", "unanswered")

    def __init__(self, item: tuple[Any, ...], jobs: list[Job], nodes: tuple[Node, ...], due_ms: int) -> None:
        self.item = item
        self.jobs = jobs
        self.due_ms = due_ms
        self.asked = 1
        self.unanswered = dict.fromkeys(nodes)


class Walk:
    """A walk over all jobs, around the shards, for those that name certain nodes.

    left      node -> shards that were not looked at for its sake
    shard     the next one
    hits      set of holders -> whether it names one of the nodes
    """

    __slots__ = ("hits", "left", "shard")

    def __init__(self) -> None:
        self.left: dict[Node, int] = {}
        self.shard = 0
        self.hits: dict[NodeSet, bool] = {}

    def add(self, node: Node, shards: int) -> None:
        """Look at all jobs for the sake of this node."""
        self.left[node] = shards
        self.hits.clear()

    def passed(self) -> list[Node]:
        """Note that one more shard was looked at. Return the nodes for which it was the last."""
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
        """Whether a set of holders names one of the nodes."""
        hit = self.hits.get(holders)
        if hit is None:
            hit = self.hits[holders] = any(node in holders for node in self.left)
        return hit


class Repairs:
    """The state of repairs on this node; see the module.

    turns         jobs that take a turn
    later         jobs that were not in scope when a walk met them: they waited for their first copies, or were about
                  to end. They take a turn after that. So do jobs of a node that left, of which a holder lost its copy
    named         job -> nodes that this node named as new holders, and that may get their copy late (acks.py)
    questions     number -> what members were asked
    number        of the last question
    runs          node -> the process whose copies this node has asked for
    due           node -> when the copies of its process become suspect
    failed        nodes that have been `fail` for `repair-after`
    presumed      nodes out of reach whose copies were counted unasked: they are asked when they are linked again
    counting, first, rest   the walks: counts jobs; those that this holder repairs first; all others
    found, passed jobs that the walk counted, and that the first walk has met
    since_ms      when the last node was suspected
    cycle         nodes for whose sake this node has walked since repairs began: node -> why
    is_told       an event told that copies are missing
    made, missing copies made since, and copies that no node could take
    ended_ms      when the last walks ended
    again, again_ms, again_epoch   nodes to walk for again: at this moment, or when the cluster is another one
    has_short     some job ended its turn without a node for its copies
    noted         answers to REPLJOB: (job, node, COPY_TAKEN, COPY_KNOWN or a reason)
    to_go_on      turns whose next step is due
    to_ask, to_tell   what the end of the turn sends: job, and message kind -> (nodes -> ids)
    tokens        copies that `repair-rate` allows now, in thousandths
    ticked_ms, looked_ms   when they were last counted, and when nodes were last looked at
    is_on         whether `repair-after` was not 0 at the last look
    first_epoch, rest_epoch   the state of the cluster in which these walks found the first holders; -1: several
    healed        recoveries of nodes that were seen (`Membership.recoveries`)
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
        """All jobs of this node are gone."""
        self.turns.clear()
        self.later.clear()
        self.named.clear()
        self.questions.clear()
        self.noted.clear()
        self.to_go_on.clear()
        self.to_ask.clear()
        self.to_tell.clear()

    def lengthened(self, job: Job, left_ms: int, now_ms: int) -> None:
        """A job that had so long to live has longer now. A walk may have left it alone."""
        is_recent = self.is_walking or now_ms - self.since_ms <= LIFE_MS_MIN
        if left_ms < LIFE_MS_MIN and self.is_on and is_recent:
            self.later[job] = None

    @property
    def is_walking(self) -> bool:
        """Whether jobs are still to be looked at."""
        return bool(self.counting.left or self.first.left or self.rest.left)
