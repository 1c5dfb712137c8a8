"""The state of tasks: a command's work, the leader's view of it, and a node's share.

A Work has the arguments of the command, and travels to all nodes. The leader has a Task, with a Helper for each node.
Each node has a Share for a task in which it takes part. These classes hold data: tasks.py has the conversation, and
task_jobs.py changes the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client
    from disque_py.core.filters import Filter
    from disque_py.core.rebalance import Balance
    from disque_py.core.zones import Zone

# Commands, as numbers in messages.
PURGE: Final = 1
MOVE: Final = 2
REDRIVE: Final = 3
REBALANCE: Final = 4
COMMAND_NAMES: Final[dict[int, bytes]] = {
    PURGE: b"qpurge",
    MOVE: b"qmove",
    REDRIVE: b"qredrive",
    REBALANCE: b"qrebalance",
}

PENDING: Final = b"pending"
INVISIBLE: Final = b"invisible"
ERRORED: Final = b"errored"
STATUSES: Final = (INVISIBLE, PENDING, ERRORED)

# Actions of a TASK, and outcomes of a TASK_STATE.
BEGIN: Final = 0
GO: Final = 1
END: Final = 2
GOES_ON: Final = 0
OVER: Final = 1
UNABLE: Final = 2

# States of a task.
RUNNING: Final = b"running"
DONE: Final = b"done"
CANCELED: Final = b"canceled"
ABORTED: Final = b"aborted"

# The most jobs that a share offers at a time. This also bounds the changes that are on their way on a link.
OFFER_MAX: Final = 250
# The most places that an ordered share keeps, which take about three megabytes.
CHOSEN_MAX: Final = 20_000

# A job's place in the order of the task: two numbers and the job's id.
Place = tuple[int, int, bytes]
Steps = Generator[None, None, None]


class Work:
    """The work of a task, from the arguments of its command.

    is_ordered   whether the jobs of all nodes are changed in one order
    limit        the most jobs to change; 0: all
    rate         jobs per second; 0: no bound
    zones        the zones whose nodes take part in a rebalance; empty: all nodes do
    """

    __slots__ = ("command", "is_ordered", "limit", "queue", "rate", "status", "to", "where", "zones")

    def __init__(self, command: int, queue: bytes, where: Filter | None, status: bytes, to: bytes) -> None:
        self.command = command
        self.queue = queue
        self.where = where
        self.status = status
        self.to = to
        self.is_ordered = command == REDRIVE
        self.limit = 0
        self.rate = 0
        self.zones: tuple[Zone, ...] = ()


class Helper:
    """One node's share, as the leader knows it.

    round, granted     the number of the last grant, and the number of jobs that it allowed
    offers             places of the jobs that the share offers; None: it is acting on jobs
    changed, failed    numbers of jobs so far
    heard_ms           when its last message came
    is_heard           whether a message has come
    is_over, is_lost   whether it has ended; whether it ended without doing all its work
    length, takes      for a rebalance: jobs in the node's queue (-1: not known), and whether the node takes jobs
    receiver           for a rebalance: the node that gets the jobs of the last grant
    """

    __slots__ = (
        "changed",
        "failed",
        "granted",
        "heard_ms",
        "is_heard",
        "is_lost",
        "is_over",
        "length",
        "offers",
        "receiver",
        "round",
        "takes",
    )

    def __init__(self, now_ms: int) -> None:
        self.round = 0
        self.granted = 0
        self.offers: list[tuple[int, int]] | None = None
        self.changed = 0
        self.failed = 0
        self.heard_ms = now_ms
        self.is_heard = False
        self.is_over = False
        self.is_lost = False
        self.length = -1
        self.takes = False
        self.receiver: Node | None = None


class Task:
    """A task that this node leads, or has led within the last hour.

    id           the id for clients
    number       the id in messages
    helpers      node -> its share, this node's included
    missing      known nodes that were not linked when the task began
    started_ms   Unix time
    ended_ms     monotonic; 0 while the task runs
    client       the client that waits for the end of the task
    level        jobs that RATE allowed at `level_ms`, in thousandths
    is_timed     whether a timer for the next grant is pending
    balance      the plan of a rebalance, once it is made
    """

    __slots__ = (
        "balance",
        "client",
        "ended_ms",
        "helpers",
        "id",
        "is_timed",
        "level",
        "level_ms",
        "missing",
        "number",
        "started_ms",
        "state_name",
        "work",
    )

    def __init__(self, task_id: bytes, number: int, work: Work, client: Client | None) -> None:
        self.id = task_id
        self.number = number
        self.work = work
        self.client = client
        self.state_name = RUNNING
        self.helpers: dict[Node, Helper] = {}
        self.missing: list[Node] = []
        self.started_ms = 0
        self.ended_ms = 0
        self.level = 0
        self.level_ms = 0
        self.is_timed = False
        self.balance: Balance | None = None

    @property
    def changed(self) -> int:
        """The number of jobs that were changed, on all nodes."""
        return sum([helper.changed for helper in self.helpers.values()])

    @property
    def failed(self) -> int:
        """The number of jobs that were left out, because a worker has them or they are being handed over."""
        return sum([helper.failed for helper in self.helpers.values()])

    def lost(self) -> list[Node]:
        """Return the nodes that do not take part, or whose share ended without doing all its work."""
        return [*self.missing, *[node for node, helper in self.helpers.items() if helper.is_lost]]


class Share:
    """This node's share of a task that `leader` leads under this number.

    began_ms, mark    the Unix time when the share began, and the highest creation time of a job at that time
    chosen, at        the places of jobs to act on, and the index of the next one
    told              the index up to which the other holders were told of errored jobs
    floor             the walks so far have found all places up to this one
    was_cut           whether the last walk dropped places behind it
    round             the number of the last grant that is done
    granted           the number of jobs of the present grant
    changed, failed   numbers of jobs so far
    is_idle           whether the share waits for a grant or for other nodes
    is_offering       whether it waits for a grant
    unsynced          nodes that have not confirmed that they handled all changes
    length            the number of jobs in the queue when the share began
    receiver          for a rebalance: the node that gets the jobs of the grant
    steps             the work, a slice per step
    """

    __slots__ = (
        "at",
        "began_ms",
        "changed",
        "chosen",
        "failed",
        "floor",
        "granted",
        "is_dropped",
        "is_idle",
        "is_offering",
        "leader",
        "length",
        "mark",
        "number",
        "outcome",
        "receiver",
        "round",
        "shard",
        "steps",
        "told",
        "unsynced",
        "was_cut",
        "work",
    )

    def __init__(
        self, broker: Broker, leader: Node, number: int, work: Work, steps_of: Callable[[Broker, Share], Steps]
    ) -> None:
        self.leader = leader
        self.number = number
        self.work = work
        self.began_ms = broker.wall_ms
        self.mark = broker.last_ctime
        self.chosen: list[Place] = []
        self.at = 0
        self.told = 0
        self.floor: Place | None = None
        self.was_cut = False
        self.shard = 0
        self.round = 0
        self.granted = 0
        self.changed = 0
        self.failed = 0
        self.outcome = GOES_ON
        self.is_idle = False
        self.is_offering = False
        self.is_dropped = False
        self.unsynced: dict[Node, None] = {}
        queue = broker.queues.get(work.queue)
        self.length = queue.pending if queue is not None else 0
        self.receiver: Node | None = None
        self.steps = steps_of(broker, self)
