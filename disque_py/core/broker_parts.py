"""Parts of the broker's memory: the fields of one topic, as one small object each.

The parts have no behaviour. The modules that a part names make the decisions, and keep the invariant that it states.
A part lives as long as its broker, so an object may keep a reference to it. No object may keep a field of a part from
one turn to the next, because the modules put new dicts and lists in their place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from disque_py.core.keys import Keys
from disque_py.core.replica_sets import ReplicaSets
from disque_py.core.schedule import Line, Timetable
from disque_py.core.tombstones import Tombstones

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.broker import Broker
    from disque_py.core.census import Census
    from disque_py.core.client import Client
    from disque_py.core.fanout import Fanout
    from disque_py.core.filters import Group
    from disque_py.core.incremental import Steps
    from disque_py.core.job import Job, Replication
    from disque_py.core.keying import Lookup, Search
    from disque_py.core.queue import Queue
    from disque_py.core.results import Item
    from disque_py.core.task_state import Share, Task

# Above the number of every segment, so no job's `place` counts (journaling.py). It has 31 bits, as that field (job.py).
NO_PLACE: Final = (1 << 31) - 1

# The first retry of a collection comes soon, because a single lost packet is common. A node that was only told of the
# ack leaves the asking to the node that told it, for a little longer (acks.py).
ACK_ASKED_MS: Final = 1_000
ACK_HEARD_MS: Final = 1_250
# The other holders hear of a delivery so long after it, and some tens of milliseconds more. Most short jobs are done by
# then, and cost no message.
TOLD_AFTER_MS: Final = 20


class Copies:
    """Copies that are being made (replication.py), and news of queued jobs for their holders (requeue.py).

    A job is in `waiting_repl` exactly while its state is WAIT_REPL.

    waiting_repl    these jobs, in order of creation
    replica_sets    the groups of nodes that new copies may go to
    local_sets      the same in this data centre
    counted_epoch   the state of the cluster in which default numbers of copies were last counted
    extensions      (when to ask one more node, jobs of one millisecond), oldest first
    extending, extending_ms   the newest of these lists, and its millisecond
    announcements   group of holders -> our queued jobs that they hear of in the next batch
    delivered       jobs that consumers got a moment ago; their holders hear of those that go on
    """

    __slots__ = (
        "announcements",
        "counted_epoch",
        "delivered",
        "extending",
        "extending_ms",
        "extensions",
        "local_sets",
        "replica_sets",
        "waiting_repl",
    )

    def __init__(self) -> None:
        self.waiting_repl: dict[Job, None] = {}
        self.replica_sets = ReplicaSets()
        self.local_sets = ReplicaSets(is_local=True)
        self.counted_epoch = 0
        self.extensions: deque[tuple[int, list[Job]]] = deque()
        self.extending: list[Job] = []
        self.extending_ms = -1
        self.announcements: dict[tuple[Node, ...], list[Job]] = {}
        self.delivered = Line(TOLD_AFTER_MS)


class Acks:
    """Acked jobs on their way out (acks.py).

    An id in a line only says that its job may have to be looked at. The job may be gone.

    asked       acked jobs whose other holders we asked once
    heard       acked jobs that other nodes collect
    not_held    ids of jobs that are done, and of which this node said that it does not hold them
    ahead       results of jobs that are not here; the ack behind each says whether this node is to hold it
    has_forgotten   whether a node was forgotten here: sets may name nodes that need not confirm
    recollect   a walk over all acked records, a part per tick, after a node came back or was forgotten
    """

    __slots__ = ("ahead", "asked", "has_forgotten", "heard", "not_held", "recollect")

    def __init__(self, keep_ms: int) -> None:
        self.not_held = Tombstones(keep_ms)
        self.ahead: dict[bytes, Item] = {}
        self.has_forgotten = False
        self.asked = Line(ACK_ASKED_MS)
        self.heard = Line(ACK_HEARD_MS)
        self.recollect: Iterator[None] | None = None


class Pauses:
    """Paused queues (pausing.py).

    A queue counts in `paused_count` exactly while it has a flag of a pause. `name_bytes` is the sum over the names in
    `versions`.

    paused_count   queues paused in either direction
    versions       queue -> (flags, version) of pauses that were set with BCAST
    name_bytes     bytes of all these names
    ended          those whose pause has ended, in order of their ends
    deferred       job that was given back while its queue's input was paused -> its requeue_at_ms then
    """

    __slots__ = ("deferred", "ended", "name_bytes", "paused_count", "versions")

    def __init__(self) -> None:
        self.paused_count = 0
        self.versions: dict[bytes, tuple[int, int, bytes]] = {}
        self.name_bytes = 0
        self.ended: dict[bytes, None] = {}
        self.deferred: dict[Job, int] = {}


class Waits:
    """Clients whose reply comes later.

    A client in `stalled` is in `incremental`, too.

    blocked_count    clients and requests that wait for jobs or copies
    timeouts         when blocked clients are answered at the latest
    incremental      client -> its long command, done a part per turn (incremental.py)
    stalled          clients whose long command waits for bodies from disk or other nodes (stalling.py)
    clients_paused_until_ms   CLIENT PAUSE
    loading_until_ms   until when requests wait for the loading instead of being refused
    early            clients that do so
    """

    __slots__ = (
        "blocked_count",
        "clients_paused_until_ms",
        "early",
        "incremental",
        "loading_until_ms",
        "stalled",
        "timeouts",
    )

    def __init__(self) -> None:
        self.blocked_count = 0
        self.timeouts: Timetable[Client] = Timetable()
        self.incremental: dict[Client, Steps] = {}
        self.stalled: dict[Client, None] = {}
        self.clients_paused_until_ms = 0
        self.loading_until_ms = 0
        self.early: dict[Client, None] = {}


class Consumers:
    """Interest of consumers, here and on other nodes (interest.py, pulls.py).

    A Queue whose name is in `interest` shares the inner dict, which is therefore changed in place.

    interest         queue -> (node -> clients waiting there)
    plain_interest   queue -> (node -> clients waiting there that take every job), where these are not all
    told_interest    what we told other nodes of our clients: all …
    told_plain       … and those that take every job, where that differs
    told_busy        queues whose clients fetch, though none waits, as other nodes were told
    renewals         queues with a standing pull of ours that is half used
    rivals           node -> queues of which it told us a job that is better than ours
    answered         queues whose question for better jobs may have its whole answer
    interest_due     queues whose interest may have to be told at the end of the turn
    hint_due         queues whose jobs might interest another node
    filters          the same for clients with WHERE: queue -> (pairs -> (node -> (waiting, those that take RETRY 0)))
    told_filters     groups of jobs whose clients other nodes were told of (filter_interest.py) -> their queue
    told_filter_bytes   bytes of these queues' names and pairs
    untold_filters   groups that are told of when there is room: a link carries a bounded number and size of filters
    filter_due       groups whose interest may have to be told at the end of the turn
    is_telling       there were too many of them for a turn: the next one comes a millisecond later
    filter_hints     groups whose jobs might interest another node
    filter_lines     groups that clients wait for here
    filter_asked_ms, filter_asking   the last walk that asked all nodes for jobs with filters, while it lasts
    asked_all_ms, asking   the last walk that asked all nodes for jobs, and that walk while it lasts
    """

    __slots__ = (
        "answered",
        "asked_all_ms",
        "asking",
        "filter_asked_ms",
        "filter_asking",
        "filter_due",
        "filter_hints",
        "filter_lines",
        "filters",
        "hint_due",
        "interest",
        "interest_due",
        "is_telling",
        "plain_interest",
        "renewals",
        "rivals",
        "told_busy",
        "told_filter_bytes",
        "told_filters",
        "told_interest",
        "told_plain",
        "untold_filters",
    )

    def __init__(self) -> None:
        self.interest: dict[bytes, dict[Node, int]] = {}
        self.plain_interest: dict[bytes, dict[Node, int]] = {}
        self.told_interest: dict[bytes, int] = {}
        self.told_plain: dict[bytes, int] = {}
        self.told_busy: dict[bytes, None] = {}
        self.renewals: dict[Queue, None] = {}
        self.rivals: dict[Node, dict[Queue, None]] = {}
        self.answered: dict[Queue, None] = {}
        self.interest_due: dict[Queue, None] = {}
        self.hint_due: dict[Queue, None] = {}
        self.filters: dict[bytes, dict[tuple[bytes, ...], dict[Node, tuple[int, int]]]] = {}
        self.told_filters: dict[Group, Queue] = {}
        self.told_filter_bytes = 0
        self.untold_filters: dict[Group, Queue] = {}
        self.filter_due: dict[Group, Queue] = {}
        self.is_telling = False
        self.filter_hints: dict[Group, Queue] = {}
        self.filter_lines = 0
        self.filter_asked_ms = 0
        self.filter_asking: Iterator[tuple[Group, Queue]] = iter(())
        self.asked_all_ms = 0
        self.asking: Iterator[bytes] = iter(())


class Producers:
    """Producers with a KEY, and what nodes ask each other for them (keys.py, keying.py).

    keys              keys that were used here
    searches          characters of a key -> what is asked about it
    key_events        ids of jobs whose outcome another node or a producer may wait for
    key_conflicts     jobs that another node refused because it knows another job with their key
    outcome_waits     job id -> nodes that want to know its outcome
    lookups           number of a question -> the JOBID that waits for its answers
    fans              job that is made for a topic -> its fan-out (fanout.py)
    together          job that stands for a command -> the work that its jobs share (replication.py)
    fans_due          fan-outs whose jobs had news in this turn
    replaced          (id of a job, id of the job that took its place), to be told at the end of the turn (replacing.py)
    question_number   the number of the last question; no two questions of a process have the same
    caller_count      ADDJOBs that wait until it is known whether their key is used
    is_repeating      whether the one timer that repeats unanswered questions is pending
    """

    __slots__ = (
        "caller_count",
        "fans",
        "fans_due",
        "is_repeating",
        "key_conflicts",
        "key_events",
        "keys",
        "lookups",
        "outcome_waits",
        "question_number",
        "replaced",
        "searches",
        "together",
    )

    def __init__(self, broker: Broker) -> None:
        self.keys = Keys(broker)
        self.searches: dict[bytes, Search] = {}
        self.key_events: dict[bytes, None] = {}
        self.key_conflicts: list[Job] = []
        self.outcome_waits: dict[bytes, dict[Node, None]] = {}
        self.lookups: dict[int, Lookup] = {}
        self.question_number = 0
        self.fans: dict[Job, Fanout] = {}
        self.fans_due: dict[Fanout, None] = {}
        self.together: dict[Job, Replication] = {}
        self.replaced: list[tuple[bytes, bytes]] = []
        self.caller_count = 0
        self.is_repeating = False


class JournalState:
    """The broker's knowledge of its journal (journaling.py).

    A segment is dropped only when none of its `live_records` is left, whatever the sums say.

    place, first_place   the segment that new bases go to, and the first that any may be in
    live_bytes           segment -> bytes of its bases that still count
    live_records         segment -> bases, tokens and keys that still count
    disk_level, disk_trouble   which commands are refused since the disk failed (persistence/journal.py), and why it
                         did
    stale_places    segments with bases that later ones replaced: a GONE of a later base counts there, too
    """

    __slots__ = ("disk_level", "disk_trouble", "first_place", "live_bytes", "live_records", "place", "stale_places")

    def __init__(self) -> None:
        self.place = 0
        self.first_place = NO_PLACE
        self.live_bytes: dict[int, int] = {}
        self.live_records: dict[int, int] = {}
        self.disk_level = 0
        self.disk_trouble = ""
        self.stale_places: set[int] = set()

    def add_live(self, place: int, size: int, records: int = 1) -> None:
        """Count records of a segment that are needed, and their bytes."""
        self.live_bytes[place] = self.live_bytes.get(place, 0) + size
        self.live_records[place] = self.live_records.get(place, 0) + records

    def drop_live(self, place: int, size: int) -> None:
        """Count a record no more, unless its segment is gone."""
        if place >= self.first_place and place in self.live_bytes:
            self.live_bytes[place] -= size
            self.live_records[place] -= 1


class Memory:
    """Numbers that eviction and `maxmemory` go by (memory.py, spilling.py). `broker.used_memory` has the bytes.

    The three marks of `limits` never fall from left to right.

    limits                the marks at 75, 95 and 100 %
    peak                  the highest value of `used_memory` so far
    acked_count, once_delivered_count   records that eviction may drop
    eviction_shard        where the next eviction goes on
    is_spilling           whether more bodies may go to disk
    spilled_count         jobs whose bodies are there
    """

    __slots__ = (
        "acked_count",
        "eviction_shard",
        "is_spilling",
        "limits",
        "once_delivered_count",
        "peak",
        "spilled_count",
    )

    def __init__(self) -> None:
        self.limits = (0, 0, 0)
        self.peak = 0
        self.acked_count = 0
        self.once_delivered_count = 0
        self.eviction_shard = 0
        self.is_spilling = False
        self.spilled_count = 0


class Upkeep:
    """Walks that go on a part per tick (timers.py).

    housekept_ms        when `timers` last kept house
    sweep_shard, sweep_position_ms, sweep_due   the sweep for jobs beyond the schedule's horizon: its next shard, the
                        time up to which it came, and the shards that it owes
    queue_gc            the walk that drops idle queues
    sweeps              queue -> its sweep of dead entries in progress
    census              the last walk that counted jobs by status, on a node with many (census.py); None: none
    """

    __slots__ = ("census", "housekept_ms", "queue_gc", "sweep_due", "sweep_position_ms", "sweep_shard", "sweeps")

    def __init__(self) -> None:
        self.housekept_ms = 0
        self.sweep_shard = 0
        self.sweep_position_ms = 0
        self.sweep_due = 0
        self.queue_gc: Iterator[Queue] = iter(())
        self.sweeps: dict[Queue, Iterator[None]] = {}
        self.census: Census | None = None


class Tasks:
    """Tasks of this node, and its shares of tasks (tasks.py).

    known       id -> task that this node leads or has led
    running     number -> task that runs
    shares      (leader, number) -> share
    busy        shares that can do a slice now, in turn
    syncs       number of a SYNC -> the share that waits for its answers
    """

    __slots__ = ("busy", "known", "number", "running", "shares", "sync_number", "syncs")

    def __init__(self) -> None:
        self.number = 0
        self.sync_number = 0
        self.known: dict[bytes, Task] = {}
        self.running: dict[int, Task] = {}
        self.shares: dict[tuple[Node, int], Share] = {}
        self.busy: dict[Share, None] = {}
        self.syncs: dict[int, Share] = {}
