"""The state of deliveries under a claim on one node. exclusive.py has the rules.

A Pick is a job that is being claimed for a consumer. A Running is the claim of a delivery whose lease runs. The
broker's part `exclusive` has all of them, and the keys that are busy because of them. These classes make no decisions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.client import Client
    from disque_py.core.exclusive import Renewal
    from disque_py.core.job import Job
    from disque_py.core.queue import Queue

# The state of a claim that was begun for a consumer.
UNDECIDED: Final = 0
GRANTED: Final = 1  # The job may be delivered.
REFUSED: Final = 2  # Another holder has the value or the job.
LACKING: Final = 3  # No majority of the voters.
OVER: Final = 4  # It was delivered, or given back.


class Pick:
    """A job that is being claimed for a consumer.

    job, queue        the job, which is aside meanwhile, and its queue
    client            the consumer
    lease_ms          the lease that the consumer asked for
    holder            the name of this delivery among the voters
    value_key, job_key   the keys that are claimed; empty: none
    outcome           UNDECIDED, GRANTED, REFUSED, LACKING or OVER
    fence, own_fence  the fence that users see; the fence of the claim on `job_key`
    attempt           number of the delivery, as the voters count it; 0: they count none
    began_ms, until_ms   when the first claim was sent, and when the first of the claims ends; monotonic
    reason            the error message if the outcome is LACKING
    decided           is called once, when the claim is decided
    """

    __slots__ = (
        "attempt",
        "began_ms",
        "client",
        "decided",
        "fence",
        "holder",
        "job",
        "job_key",
        "lease_ms",
        "outcome",
        "own_fence",
        "queue",
        "reason",
        "until_ms",
        "value_key",
    )

    def __init__(
        self, job: Job, queue: Queue, client: Client, lease_ms: int, holder: bytes, decided: Callable[[Any], None]
    ) -> None:
        self.job = job
        self.queue = queue
        self.client = client
        self.lease_ms = lease_ms
        self.holder = holder
        self.decided = decided
        self.value_key = b""
        self.job_key = b""
        self.outcome = UNDECIDED
        self.fence = 0
        self.own_fence = 0
        self.attempt = 0
        self.began_ms = 0
        self.until_ms = 0
        self.reason = ""

    @property
    def key(self) -> bytes:
        """The key under which the job is aside."""
        return self.value_key or self.job_key


class Running:
    """The claim of a delivery that this node made, or whose lease it renewed for the worker.

    attempt        the number of the delivery
    until_ms       the end of the lease, at which the claim lapses; monotonic
    is_shared      whether another node has this claim, too, because one node delivered the job and the other renewed it
    is_elsewhere   whether another node was the last to renew it, or this node before it was started again
    """

    __slots__ = (
        "attempt",
        "fence",
        "holder",
        "is_elsewhere",
        "is_shared",
        "job_key",
        "own_fence",
        "queue",
        "until_ms",
        "value_key",
    )

    def __init__(
        self,
        queue: bytes,
        value_key: bytes,
        job_key: bytes,
        holder: bytes,
        fence: int,
        own_fence: int,
        until_ms: int,
        attempt: int,
    ) -> None:
        self.queue = queue
        self.value_key = value_key
        self.job_key = job_key
        self.holder = holder
        self.fence = fence
        self.own_fence = own_fence
        self.until_ms = until_ms
        self.attempt = attempt
        self.is_shared = False
        self.is_elsewhere = False

    @property
    def keys(self) -> tuple[tuple[bytes, int], ...]:
        """The claimed keys with their fences."""
        pairs = ((self.value_key, self.fence), (self.job_key, self.own_fence))
        return tuple([pair for pair in pairs if pair[0]])


class Exclusive:
    """The state of deliveries under a claim on one node.

    queues       queues whose jobs may need claims, so that they keep their jobs by value (parking.py)
    running      job id -> claim of its delivery
    busy         key that has no room here -> queue whose jobs wait for it
    holders      busy key that this node claims, or has claimed -> the name of its delivery among the voters
    refused      busy key that another holder has -> when the claim on it was refused; monotonic
    timed        key that was refused -> when a timer tries it again; monotonic
    renewals     job id -> renewals of its claim for which the voters are being asked
    picks        consumer -> its claims that are under way, or granted and not delivered yet
    lines        consumers that wait in a line and have a claim under way
    held         queues with a job that no consumer could take, because each of them has a claim under way
    under_way    number of claims under way
    number       of the last delivery
    looked       how many jobs were set aside late since the last break, which lets other clients have their turn
    gate_until_ms, reason   no claim begins before this moment, because there is no majority of voters; the error text
    took_ms      how long claims took lately, from the first claim of a job to its delivery
    is_timed     whether a timer waits until claims may begin again
    heard        jobs of which this node heard in this turn that another node delivered them or renewed the lease
    newest       ids of jobs of which this node knows a claim, at most NEWEST_MAX (claim_stamps.py). Some are over
    untold       node -> ids of jobs whose claims it has to be told, because a link to it is new (fencing.py)
    early        claims that other nodes told while the journal was read: node, job id, fences, holder
    """

    def __init__(self) -> None:
        self.queues: dict[Queue, None] = {}
        self.running: dict[bytes, Running] = {}
        self.busy: dict[bytes, bytes] = {}
        self.holders: dict[bytes, bytes] = {}
        self.refused: dict[bytes, int] = {}
        self.timed: dict[bytes, int] = {}
        self.renewals: dict[bytes, list[Renewal]] = {}
        self.picks: dict[Client, list[Pick]] = {}
        self.lines: dict[Client, None] = {}
        self.held: dict[Queue, None] = {}
        self.under_way = 0
        self.number = 0
        self.looked = 0
        self.gate_until_ms = 0
        self.reason = ""
        self.took_ms = 0
        self.is_timed = False
        self.heard: dict[Job, None] = {}
        self.newest: OrderedDict[bytes, None] = OrderedDict()
        self.untold: dict[Node, list[bytes]] = {}
        self.early: list[tuple[Node, bytes, int, int, bytes]] = []

    def next_holder(self, me: Node) -> bytes:
        """Return a new name among the voters for a claim of this node."""
        self.number += 1
        return me.id + me.run + b"%d" % self.number
