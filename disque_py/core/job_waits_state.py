"""State of clients that wait for the ends of jobs, here and on other nodes (job_waits.py).

`waited` has the ids for which clients of this node wait. `elsewhere` has the ids that other nodes registered here. All
these ids are in `broker.ends.watched`. Spec RW5, RW6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.schedule import Timetable

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.client import Client
    from disque_py.core.ends import Ends

# Status, result, error.
Outcome = tuple[int, bytes | None, bytes | None]
UNKNOWN_JOB: Final[Outcome] = (0, None, None)


class Wait:
    """One WAITJOB.

    ids          the ids in the order of the reply
    open         ids of jobs that are not over
    outcomes     id -> end, for the other jobs
    is_any       whether one end is enough
    is_ending    whether the wait is about to end, and only needs the present statuses of the open jobs
    awake_at_ms  when its time is over; 0: never
    """

    __slots__ = ("awake_at_ms", "client", "ids", "is_any", "is_ending", "open", "outcomes")

    def __init__(self, client: Client, ids: list[bytes], *, is_any: bool) -> None:
        self.client = client
        self.ids = ids
        self.open = dict.fromkeys(ids)
        self.outcomes: dict[bytes, Outcome] = {}
        self.is_any = is_any
        self.is_ending = False
        self.awake_at_ms = 0

    @property
    def is_done(self) -> bool:
        """Whether enough of its jobs are over."""
        return not self.open or (self.is_any and bool(self.outcomes))


class Waited:
    """A job for which clients of this node wait.

    waits            the waits of these clients
    outcome_here     the job's end as this node knows it
    has_here         this node's knowledge of the job
    known            node -> its knowledge of the job, for the nodes that have answered
    is_doubted       whether a node said that the job is completed, and that another node may have a result
    is_expired       whether a node said that the TTL of the job is over
    was_asked_twice  whether all nodes were asked for the second time, because the first answers were not enough
    """

    __slots__ = ("has_here", "is_doubted", "is_expired", "known", "outcome_here", "waits", "was_asked_twice")

    def __init__(self) -> None:
        self.waits: dict[Wait, None] = {}
        self.outcome_here: Outcome | None = None
        self.has_here = 0
        self.known: dict[Node, int] = {}
        self.is_doubted = False
        self.is_expired = False
        self.was_asked_twice = False


class JobWaits:
    """All waits of a node.

    waited     id -> job for which clients here wait
    by_client  client -> its wait
    deadlines  waits with a time-out
    elsewhere  id -> (node that waits -> our knowledge of the job, as we told it)
    counts     node -> number of ids that it registered here
    asked      number of a registration -> its ids, and the nodes that have not answered
    number     the number of the last registration
    given_up   ids for which no client here waits any more; linked nodes are told at the end of the turn
    early      registrations that arrived while the journal was read
    """

    __slots__ = ("asked", "by_client", "counts", "deadlines", "early", "elsewhere", "given_up", "number", "waited")

    def __init__(self) -> None:
        self.waited: dict[bytes, Waited] = {}
        self.by_client: dict[Client, Wait] = {}
        self.deadlines: Timetable[Wait] = Timetable()
        self.elsewhere: dict[bytes, dict[Node, int]] = {}
        self.counts: dict[Node, int] = {}
        self.asked: dict[int, tuple[list[bytes], dict[Node, None]]] = {}
        self.number = 0
        self.given_up: list[bytes] = []
        self.early: list[tuple[Node, list[Any]]] = []

    def register(self, wait: Wait) -> None:
        """Note the wait of a client."""
        self.by_client[wait.client] = wait

    def may_register(self, node: Node, job_id: bytes, count_max: int) -> bool:
        """Count one more id of a node. Return whether the node may register it."""
        if node in self.elsewhere.get(job_id, ()):
            return True
        count = self.counts.get(node, 0)
        if count >= count_max:
            return False
        self.counts[node] = count + 1
        return True

    def forget(self, ends: Ends, node: Node, job_id: bytes) -> None:
        """Forget that a node waits for a job."""
        nodes = self.elsewhere.get(job_id)
        if nodes is None or node not in nodes:
            return
        del nodes[node]
        self.counts[node] -= 1
        if not self.counts[node]:
            del self.counts[node]
        if not nodes:
            del self.elsewhere[job_id]
            if job_id not in self.waited:
                ends.watched.pop(job_id, None)

    def forget_node(self, ends: Ends, node: Node) -> None:
        """Forget all registrations of a node."""
        self.early = [(sender, items) for sender, items in self.early if sender is not node]
        if self.counts.get(node):
            for job_id in [job_id for job_id, nodes in self.elsewhere.items() if node in nodes]:
                self.forget(ends, node, job_id)
