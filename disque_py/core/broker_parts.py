"""Parts of the broker's memory: the fields of one purpose, as one small object each.

The parts have no behaviour. Each part names the modules that make its decisions and keep the invariant that it states.
A part lives as long as its broker, so an object may keep a reference to it. But no object may keep the value of a
part's field from one turn to the next, because the modules replace these dicts and lists with new ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i32, i64

from disque_py.core.keys import Keys
from disque_py.core.record_packing import JobRun
from disque_py.core.replica_sets import ReplicaSets
from disque_py.core.schedule import Line, Timetable
from disque_py.core.tombstones import Tombstones
from persistence.records import JOB, STATE

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

# A number above that of every segment, so that no job's `place` counts (journaling.py). It fits into 31 bits, as that
# field has to (job.py).
NO_PLACE: Final = (1 << 31) - 1

# The first retry of a collection comes soon, because a single lost packet is common. A node that heard of the ack from
# another one waits a little longer, because the other node collects already (acks.py).
ACK_ASKED_MS: Final = 1_000
ACK_HEARD_MS: Final = 1_250
# Finished jobs are remembered for at least this long, however short the node timeout is. In less than three times
# ACK_HEARD_MS a node would forget the end of a collection before the other holders ask about it, and would keep the ack
# again (spec A14).
DONE_KEPT_MS_MIN: Final = 8 * ACK_HEARD_MS
# The other holders hear of a delivery this long after it, plus some tens of milliseconds. Most short jobs are done by
# then, and cost no message.
TOLD_AFTER_MS: Final = 20


class Copies:
    """Copies that are being made (replication.py), and news of queued jobs for their holders (requeue.py).

    A job is in `waiting_repl` exactly while its state is WAIT_REPL.

    waiting_repl    jobs in the state WAIT_REPL, in the order of their creation
    replica_sets    the groups of nodes that new copies may go to
    local_sets      the same for nodes of this data centre
    counted_epoch   the epoch of the node table at the last count of default numbers of copies
    extensions      (when to ask one more node, jobs of one millisecond), oldest first
    extending, extending_ms   the newest of these lists, and its millisecond
    announcements   group of holders -> our queued jobs that they hear of in the next batch
    delivered       jobs that consumers got a moment ago; the holders will hear of those that are still running
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


def done_kept_ms(node_timeout_ms: int) -> int:
    """Return the milliseconds for which the ids and ends of finished jobs are remembered. Spec A6, RW5."""
    return max(2 * node_timeout_ms, DONE_KEPT_MS_MIN)


class Acks:
    """Acked jobs that are being collected (acks.py).

    `asked` and `heard` are lines of ids. A job of a line may be gone, or finished, when its id comes up.

    asked       acked jobs whose other holders we asked once
    heard       acked jobs that other nodes collect
    not_held    ids of finished jobs that this node said it does not hold
    ahead       results of jobs that are not here. The ack that follows says whether this node is to keep the result
    recollect   a walk over all acked records, one part per tick, after a node came back or was forgotten
    """

    __slots__ = ("ahead", "asked", "heard", "not_held", "recollect")

    def __init__(self, keep_ms: int) -> None:
        self.not_held = Tombstones(keep_ms)
        self.ahead: dict[bytes, Item] = {}
        self.asked = Line(ACK_ASKED_MS)
        self.heard = Line(ACK_HEARD_MS)
        self.recollect: Iterator[None] | None = None


class Pauses:
    """Paused queues (pausing.py).

    A queue counts in `paused_count` exactly while it is paused in at least one direction. `name_bytes` is the size of
    all names in `versions`.

    paused_count   queues paused in either direction
    versions       queue -> (flags, version) of pauses that were set with BCAST
    name_bytes     bytes of all these names
    ended          names in `versions` whose pause has ended, in the order in which they ended
    deferred       job that was given back while its queue's input was paused -> its requeue_at_ms at that moment, or
                   negative, if the job was pending before the last restart
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

    A client in `stalled` is also in `incremental`.

    blocked_count    how many clients and requests wait for jobs or copies
    timeouts         the latest moment at which each blocked client gets its answer
    incremental      client -> its long command, of which each turn does a part (incremental.py)
    stalled          clients whose long command waits for bodies from disk or for other nodes (stalling.py)
    clients_paused_until_ms   the end of CLIENT PAUSE
    loading_until_ms   until this moment, requests wait for the end of loading; later they are refused
    early            clients with a request that waits for the end of loading
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

    interest         queue -> (node -> number of clients that wait there)
    plain_interest   queue -> (node -> number of them that take every job), for queues where some don't
    told_interest    queue -> the number of our waiting clients that we last told other nodes
    told_plain       queue -> how many of them take every job, as told; only where some don't
    told_busy        queues that we reported as busy: clients fetch from them, though none waits
    renewals         queues with a standing pull of ours that is half used
    rivals           node -> queues for which it told us of a job that is better than ours
    answered         queues for which a node that we asked for better jobs may have sent its whole answer
    interest_due     queues whose interest we may have to tell at the end of the turn
    hint_due         queues whose jobs might interest another node
    filters          interest of clients with WHERE: queue -> (pairs -> (node -> (number that wait, number of them that
                     take RETRY 0)))
    told_filters     group (filter_interest.py) whose waiting clients we told other nodes of -> its queue
    told_filter_bytes   bytes of these queues' names and pairs
    untold_filters   groups that we tell when there is room, because the number and size of filters told is bounded
    filter_due       groups whose interest we may have to tell at the end of the turn
    is_telling       whether `filter_due` was too long for one turn, so that the rest follows a millisecond later
    filter_hints     groups whose jobs might interest another node
    filter_lines     how many groups clients wait for here
    filter_asked_ms, filter_asking   when the last walk that asks all nodes for jobs with filters began; its remainder
    asked_all_ms, asking   when the last walk that asks all nodes for jobs began; its remainder
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
    """Producers with a KEY, and the questions that nodes ask each other for them (keys.py, keying.py).

    keys              keys that were used here
    searches          the characters of job ids that encode a key -> the question about that key
    key_events        ids of jobs whose outcome another node or a producer may wait for
    key_conflicts     jobs that another node refused because it knows another job with their key
    outcome_waits     job id -> nodes that want to know its outcome
    lookups           number of a question -> the JOBID command that waits for its answers
    fans              job that is made for a topic -> its fan-out (fanout.py)
    together          job that represents all jobs of a command -> the work that these jobs share (replication.py)
    fans_due          fan-outs with jobs that changed in this turn
    replaced          (id of a job, id of the job that took its place), to be told at the end of the turn (replacing.py)
    question_number   the number of the last question; each question of a process has its own number
    caller_count      how many ADDJOBs wait until it is known whether their key is used
    is_repeating      whether the one timer that repeats unanswered questions is set
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

    A segment is dropped only when its `live_records` are zero. `live_bytes` does not decide that.

    place, first_place   the segment that new bases are written to, and the first segment that may contain bases
    live_bytes           segment -> bytes of its bases that are still needed
    live_records         segment -> number of bases, tokens and keys that are still needed
    disk_level, disk_trouble   which commands are refused since the disk failed (persistence/journal.py), and the reason
                         of the failure
    stale_places    segments with bases that later ones replaced; the GONE of a later base counts for these, too
    bases, states   buffers for records of jobs; empty between turns
    gone_place, gone_bytes, gone_records   records of jobs that were forgotten in this turn, all of this segment, which
                         are still counted above (`settle`)
    """

    __slots__ = (
        "bases",
        "disk_level",
        "disk_trouble",
        "first_place",
        "gone_bytes",
        "gone_place",
        "gone_records",
        "live_bytes",
        "live_records",
        "place",
        "stale_places",
        "states",
    )

    def __init__(self) -> None:
        self.bases = JobRun(JOB)
        self.states = JobRun(STATE)
        self.place = 0
        self.first_place = NO_PLACE
        self.live_bytes: dict[int, int] = {}
        self.live_records: dict[int, int] = {}
        self.disk_level = 0
        self.disk_trouble = ""
        self.stale_places: set[int] = set()
        self.gone_place: i32 = 0
        self.gone_bytes: i64 = 0
        self.gone_records: i64 = 0

    def settle(self) -> None:
        """Stop counting the records of the jobs that were forgotten, unless their segment is gone already."""
        place = int(self.gone_place)
        if self.gone_records and place in self.live_bytes:
            self.live_bytes[place] -= int(self.gone_bytes)
            self.live_records[place] -= int(self.gone_records)
            assert self.live_records[place] >= 0
        self.gone_bytes = 0
        self.gone_records = 0

    def add_live(self, place: int, size: int, records: int = 1) -> None:
        """Count records of a segment that are needed, and their bytes."""
        self.live_bytes[place] = self.live_bytes.get(place, 0) + size
        self.live_records[place] = self.live_records.get(place, 0) + records

    def drop_live(self, place: int, size: int) -> None:
        """Stop counting a record, unless its segment is gone already."""
        if place >= self.first_place and place in self.live_bytes:
            self.live_bytes[place] -= size
            self.live_records[place] -= 1


class Memory:
    """The numbers behind eviction and `maxmemory` (memory.py, spilling.py). `broker.used_memory` has the bytes in use.

    The three marks of `limits` are in ascending order.

    limits                the marks at 75, 95 and 100 % of `maxmemory`, in bytes
    peak                  the highest value of `used_memory` so far
    acked_count, once_delivered_count   how many records of each kind eviction may drop
    eviction_shard        the shard at which the next eviction continues
    is_spilling           whether more bodies may go to disk
    spilled_count         how many jobs have their bodies on disk
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
    """Background walks, which do one part per tick (timers.py).

    housekept_ms        when `timers` last did its housekeeping
    sweep_shard, sweep_position_ms, sweep_due   the sweep for jobs beyond the schedule's horizon: its next shard, the
                        time up to which it has come, and the number of shards that are overdue
    queue_gc            the walk that drops idle queues
    sweeps              queue -> the walk that removes its dead entries
    census              the last walk that counted jobs by status, on a node with many jobs (census.py); None: no such
                        walk yet
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
    busy        shares that can do a slice now; they take turns
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
