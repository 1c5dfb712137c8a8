"""Broker: the memory of one node.

Everything the rules work on hangs here, and nothing else does: jobs by id, queues by name, who waits, the
schedule, the outbox. It makes no decisions; those are in the conversation modules. Time and chance come from
outside: `now_ms` and `wall_ms` are set by the driver once per turn, `rng` is given.

Jobs are indexed in SHARDS small dicts: one large dict stops the world for half a second when it grows at five million
entries, and the shards also give JSCAN and the background sweep their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from cluster_bus.messages import PAUSE
from cluster_bus.node import HANDSHAKE, LEAVING, MYSELF, Node
from cluster_bus.outgoing import Outgoing
from disque_py.config.settings import Settings
from disque_py.core.done import DoneTable
from disque_py.core.groups import Groups
from disque_py.core.ids import IdSource
from disque_py.core.job import Job
from disque_py.core.keys import Keys
from disque_py.core.nodesets import NodeSets
from disque_py.core.outbox import Outbox
from disque_py.core.queue import QUEUE_BYTES, Queue
from disque_py.core.schedule import Line, Schedule, Timetable
from disque_py.core.spilled import NEVER, Spill
from disque_py.core.stats import Stats
from disque_py.core.tokens import Tokens

if TYPE_CHECKING:
    from cluster_bus.membership import Membership
    from disque_py.core.client import Client
    from disque_py.core.event_packing import Noted
    from disque_py.core.event_source import EventSource
    from disque_py.core.keying import Search
    from disque_py.core.leaving import Drain
    from disque_py.core.row import Row
    from disque_py.core.slices import Slices
    from disque_py.ports import Host

SHARDS: Final = 4096

# Above the number of every segment: no job's `place` means anything (journaling.py).
NO_PLACE: Final = 1 << 62

# Offsets that keep nodes from acting at the same moment (spec N8: +-250 ms), drawn in advance.
JITTER_MS: Final = 250
JITTERS: Final = 1024

# The first retry of a collection comes soon, for the common lost packet. Who was only told of the ack leaves the asking
# to who told it, for a little longer (acks.py).
ACK_ASKED_MS: Final = 1_000
ACK_HEARD_MS: Final = 1_250


def _jitters(rng: Random) -> Iterator[int]:
    """The same JITTERS offsets again and again: to keep apart what would happen at once they need not be new."""
    drawn = [int(rng.random() * 2 * JITTER_MS) - JITTER_MS for _ in range(JITTERS)]
    while True:
        yield from drawn


class Broker:
    """One node's memory.

    cluster           the table of nodes (cluster_bus/membership.py)
    settings          directives in force
    now_ms, wall_ms   this turn's monotonic and Unix time
    shards, job_count jobs by id (see `find`)
    queues            by name
    waiting_repl      jobs in WAIT_REPL, in order of creation
    paused_count      queues paused in either direction
    ready             queues that have both jobs and waiting clients, perhaps
    hint_due          queues whose jobs might interest another node (interest.py)
    used_memory       accounted bytes of jobs and queues; what maxmemory applies to
    acked_count, once_delivered_count   records that eviction may drop (memory.py)
    pause_versions    queue -> (flags, version) of pauses that were set with BCAST (pausing.py)
    """

    def __init__(self, cluster: Membership, messages: Outgoing, settings: Settings, rng: Random, host: Host) -> None:
        self.cluster = cluster
        self.settings = settings
        self.rng = rng
        self.host = host
        self.now_ms = 0
        self.wall_ms = 0
        self.started_ms = 0
        self.housekept_ms = 0
        self.stopwatch_ns: Callable[[], int] = lambda: 0
        self.me: Node = cluster.me
        self.outbox = Outbox(messages)
        self.send = messages.send
        self.send_all = messages.send_all
        self.sets = NodeSets(cluster.me, cluster.intern)
        self.ids = IdSource(cluster.me.name, rng)
        self.schedule = Schedule()
        self.done = DoneTable(2 * settings.cluster_node_timeout)
        self.stats = Stats()
        self.shards: list[dict[bytes, Job]] = [{} for _ in range(SHARDS)]
        self.job_count = 0
        self.queues: dict[bytes, Queue] = {}
        # By serial, with gaps where queues were dropped: QSCAN's cursor is a place in it.
        self.queue_order: list[Queue] = []
        self.queue_serial = 0
        self.queue_gc: Iterator[Queue] = iter(())
        self.waiting_repl: dict[Job, None] = {}
        # The state of the cluster in which the copies of those that asked for no number were last counted.
        self.counted_epoch = 0
        # (when to ask one more node, jobs of a millisecond), oldest first, of jobs in WAIT_REPL (replication.py).
        self.extensions: deque[tuple[int, list[Job]]] = deque()
        self.extending: list[Job] = []  # The newest of these lists, and its millisecond.
        self.extending_ms = -1
        # Acked jobs whose other holders were asked for the first time, or that others ask about (acks.py).
        self.asked = Line(ACK_ASKED_MS)
        self.heard = Line(ACK_HEARD_MS)
        self.groups = Groups()
        self.paused_count = 0
        self.clients: dict[int, Client] = {}
        self.monitors: dict[Client, None] = {}
        self.blocked_count = 0
        self.ready: dict[Queue, None] = {}
        self.hint_due: dict[Queue, None] = {}
        self.interest_due: dict[Queue, None] = {}
        # queue -> (node -> clients waiting there); a Queue of that name shares the inner dict.
        self.interest: dict[bytes, dict[Node, int]] = {}
        # What we told other nodes of our clients: all of them, and, where it differs, those that take every job.
        self.told_interest: dict[bytes, int] = {}
        self.told_plain: dict[bytes, int] = {}
        # queue -> node -> clients waiting there that take every job, where these are not all.
        self.plain_interest: dict[bytes, dict[Node, int]] = {}
        self.timeouts: Timetable[Client] = Timetable()
        self.eviction_shard = 0
        self.sweep_shard = 0
        self.sweep_position_ms = 0
        self.sweep_due = 0
        self.drain: Drain | None = None
        self.used_memory = 0
        self.peak_memory = 0
        self.acked_count = 0
        self.once_delivered_count = 0
        self.pause_versions: dict[bytes, tuple[int, int, bytes]] = {}
        # All these names together, and those of them whose pause has ended, in order of that.
        self.pause_name_bytes = 0
        self.pauses_ended: dict[bytes, None] = {}
        # Jobs given back while their queue's input was paused -> their requeue_at_ms then (pausing.py).
        self.deferred: dict[Job, int] = {}
        # Deliveries that can be had again (tokens.py), and clients that wait for one, by token.
        self.tokens = Tokens(self)
        self.tokened = self.tokens.by_job
        self.token_waits: dict[bytes, dict[Client, None]] = {}
        # ADDJOB … KEY (keys.py, keying.py): keys used here; by the characters of a key what is asked about it; ids of
        # jobs that somebody may wait to hear of, jobs refused elsewhere, and who wants to know of which job.
        self.keys = Keys(self)
        self.searches: dict[bytes, Search] = {}
        self.key_events: dict[bytes, None] = {}
        self.key_conflicts: list[Job] = []
        self.outcome_waits: dict[bytes, dict[Node, None]] = {}
        self.question_number = 0
        self.caller_count = 0  # ADDJOBs that wait until it is known whether their key is used.
        # Clients whose command is done a part per turn (slices.py).
        self.slices: dict[Client, Slices] = {}
        # Acked records are looked at anew, a part per tick, when a node comes back or is forgotten (acks.py).
        self.recollect: Iterator[None] | None = None
        self.asked_everybody_ms = 0
        self.asking: Iterator[bytes] = iter(())
        self.announcements: dict[tuple[Node, ...], list[Job]] = {}
        self.sweeps: dict[Queue, Iterator[None]] = {}
        self.clients_paused_until_ms = 0
        self.is_loading = False
        # Until then requests wait for the loading instead of being refused; clients whose request does (inputs.py).
        self.loading_wait_until_ms = 0
        self.early: dict[Client, None] = {}
        # Commands in force, by name in lower and upper case; set by inputs.install.
        self.commands: dict[bytes, Row] = {}
        # The journal (journaling.py): jobs changed this turn -> whether their holders did; the segment that bases go
        # to, and the first that any may be in; bytes of bases in each segment that still count; what is refused since
        # the disk is in trouble, and why.
        self.is_journaling = False
        self.touched: dict[Job, bool] = {}
        self.place = 0
        self.first_place = NO_PLACE
        self.live_bytes: dict[int, int] = {}
        # … and how many bases, tokens and keys: a segment goes unread only when none is left, whatever the sums say.
        self.live_records: dict[int, int] = {}
        self.disk_level = 0
        self.disk_trouble = ""
        # Transitions of this turn (events.py), None while nobody wants them; and what reads them.
        self.events: Noted | None = None
        self.event_source: EventSource | None = None
        # Bodies on disk (spilling.py): how many, whether more may go there, clients whose long command waits for them.
        self.spill = Spill()
        self.spilled_count = 0
        self.is_spilling = False
        self.stalled: dict[Client, None] = {}
        self.run = cluster.me.run
        self.run_name = rng.randbytes(20).hex()
        self._last_ctime = 0
        # A uniform offset of -250 … +249 ms.
        self.jitter: Callable[[], int] = _jitters(rng).__next__
        self.memory_limits = (0, 0, 0)
        self.apply_maxmemory()

    # -- jobs -------------------------------------------------------------------------------------

    def find(self, job_id: bytes) -> Job | None:
        """The job with this id (40 bytes, positionally valid), or None."""
        return self.shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)

    def next_ctime(self) -> int:
        """Creation time of a new job: wall clock in ms x 1,000,000, strictly increasing whatever the clock does."""
        ctime = self.wall_ms * 1_000_000
        if ctime <= self._last_ctime:
            ctime = self._last_ctime + 1
        self._last_ctime = ctime
        return ctime

    # -- queues ------------------------------------------------------------------------------------

    def queue(self, name: bytes) -> Queue:
        """The queue of this name, made if need be."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name, self.now_ms)
            interested = self.interest.get(name)
            if interested is not None:
                queue.interested = interested
            self.used_memory += QUEUE_BYTES + len(name)
            self.queue_serial += 1
            queue.serial = self.queue_serial
            self.queue_order.append(queue)
        return queue

    def owe_hint(self, queue: Queue) -> None:
        """Other nodes may be interested in what waits here: the end of the turn sees to it (interest.py)."""
        self.hint_due[queue] = None

    def look_again(self, queue: Queue) -> None:
        """Something kept us from finishing with this queue: serve its clients in a turn soon."""
        self.schedule.call_at(self.now_ms + 1, lambda: self.ready.setdefault(queue))

    def drop_queue(self, queue: Queue) -> None:
        """Forget an idle queue that has no entries, not even dead ones."""
        del self.queues[queue.name]
        self.used_memory -= QUEUE_BYTES + len(queue.name)
        self.hint_due.pop(queue, None)
        self.interest_due.pop(queue, None)
        self.ready.pop(queue, None)
        self.sweeps.pop(queue, None)
        queue.is_dropped = True
        if not queue.interested:
            self.interest.pop(queue.name, None)
        if len(self.queue_order) > 2 * len(self.queues) + 1024:
            self.queue_order = [kept for kept in self.queue_order if not kept.is_dropped]

    # -- nodes -------------------------------------------------------------------------------------

    @property
    def is_leaving(self) -> bool:
        """CLUSTER LEAVING yes is in force."""
        return bool(self.me.flags & LEAVING)

    def members(self) -> list[Node]:
        """All other nodes of the table that are known by id."""
        return [node for node in self.cluster.nodes.values() if not node.flags & (MYSELF | HANDSHAKE)]

    def tell_pause(self, nodes: tuple[Node, ...], name: bytes) -> None:
        """Send a queue's pause state, as set with BCAST, to these nodes."""
        flags, version_ms, version_node = self.pause_versions[name]
        self.send(nodes, PAUSE, (name, flags, version_ms, version_node))

    # -- memory ------------------------------------------------------------------------------------

    def apply_maxmemory(self) -> None:
        """`maxmemory` changed, or whether bodies may spill: compute the marks at 60, 75, 95 and 100 %.

        0 means no limit. Spec M5.
        """
        limit = self.settings.maxmemory
        if limit:
            self.memory_limits = (limit // 100 * 75, limit // 100 * 95, limit)
        else:
            self.memory_limits = (1 << 62, 1 << 62, 1 << 62)
        self.is_spilling = bool(limit) and self.spill.is_on
        self.spill.above = limit // 100 * 60 if self.is_spilling else NEVER
        if not self.is_spilling:
            self.spill.fresh, self.spill.older = [], []

    @property
    def memory_level(self) -> int:
        """0; 1 above 75 %; 2 above 95 %; 3 at 100 % of maxmemory and more."""
        used = self.used_memory
        above, high, full = self.memory_limits
        if used <= above:
            return 0
        if used <= high:
            return 1
        return 2 if used < full else 3
