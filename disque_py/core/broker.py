"""Broker: the memory of one node.

All data that the rules work on is a field of the broker: jobs by id, queues by name, waiting clients, the schedule, the
outbox. The broker makes no decisions; the modules for each conversation make them. Time and chance come from outside.
The turn sets `now_ms` and `wall_ms` once, and the caller gives `rng`.

Jobs are indexed in SHARDS small dicts. One large dict would stop the node for half a second when it grows at five
million entries. The shards also give JSCAN and the background sweep their order.
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
from disque_py.core.ids import IdSource
from disque_py.core.job import Job
from disque_py.core.keys import Keys
from disque_py.core.node_sets import NodeSets
from disque_py.core.outbox import Outbox
from disque_py.core.queue import QUEUE_BYTES, Queue
from disque_py.core.replica_sets import ReplicaSets
from disque_py.core.schedule import Line, Schedule, Timetable
from disque_py.core.spilled import NEVER, Spill
from disque_py.core.stats import Stats
from disque_py.core.tokens import Tokens
from disque_py.core.tombstones import Tombstones

if TYPE_CHECKING:
    from cluster_bus.membership import Membership
    from disque_py.core.client import Client
    from disque_py.core.command_entry import CommandEntry
    from disque_py.core.event_packing import Noted
    from disque_py.core.event_source import EventSource
    from disque_py.core.incremental import Steps
    from disque_py.core.keying import Search
    from disque_py.core.leaving import Drain
    from disque_py.ports import Host

SHARDS: Final = 4096

# Above the number of every segment, so no job's `place` counts (journaling.py).
NO_PLACE: Final = 1 << 62

# Offsets that keep nodes from acting at the same moment (spec N8: +-250 ms), drawn in advance.
JITTER_MS: Final = 250
JITTERS: Final = 1024

# The first retry of a collection comes soon, because a single lost packet is common. A node that was only told of the
# ack leaves the asking to the node that told it, for a little longer (acks.py).
ACK_ASKED_MS: Final = 1_000
ACK_HEARD_MS: Final = 1_250


def _jitters(rng: Random) -> Iterator[int]:
    """Yield the same JITTERS offsets again and again: they keep nodes apart, and need not be new for that."""
    drawn = [int(rng.random() * 2 * JITTER_MS) - JITTER_MS for _ in range(JITTERS)]
    while True:
        yield from drawn


class Broker:
    """One node's memory.

    The world outside
      cluster              the table of nodes (cluster_bus/membership.py)
      me, run, run_name    this node, the number of its process, and 40 random hex digits that name the process
      settings             directives in force
      commands             commands in force, by name in lower and upper case; dispatch installs them
      host                 the process (ports.Host)
      rng, jitter          the generator of all chance; a call of `jitter` gives an offset of -250 … +249 ms
      now_ms, wall_ms      this turn's monotonic and Unix time
      started_ms, housekept_ms   when the node started, and when `timers` last kept house
      stopwatch_ns         a clock for LATENCY and SLOWLOG, in nanoseconds
      outbox, send, send_all   work for the end of the turn; the two methods that leave a message for nodes there
      stats                counters of INFO, LATENCY and SLOWLOG

    Jobs
      shards, job_count    jobs by id (see `find`)
      ids, _last_ctime, _last_wall_ms   the source of new job ids; the creation time of the last new job, and the wall
                           clock then
      schedule             timers of jobs, and tasks for later
      tombstones           ids of jobs that were deleted lately
      sweep_shard, sweep_position_ms, sweep_due   the sweep for jobs beyond the schedule's horizon (timers.py)
      deferred             job that was given back while its queue's input was paused -> its requeue_at_ms then
                           (pausing.py)

    Copies and acks
      sets, replica_sets   interned sets of nodes; the groups of nodes that new copies may go to
      waiting_repl         jobs in WAIT_REPL, in order of creation
      counted_epoch        the state of the cluster in which default numbers of copies were last counted
                           (replication.py)
      extensions           (when to ask one more node, jobs of one millisecond) for jobs in WAIT_REPL, oldest first
      extending, extending_ms   the newest of these lists, and its millisecond
      asked, heard         acked jobs whose other holders we asked once; acked jobs that other nodes collect (acks.py)
      recollect            a walk over all acked records, a part per tick, after a node came back or was forgotten
      announcements        group of holders -> our queued jobs that they hear of in the next batch (requeue.py)
      drain                the state of CLUSTER LEAVING; None while the node stays (leaving.py)

    Queues
      queues               by name
      queue_order, queue_serial   queues by serial, with gaps where one was dropped: QSCAN's cursor is a place in it
      queue_gc             the walk that drops idle queues (timers.py)
      sweeps               queue -> its sweep of dead entries in progress
      paused_count         queues paused in either direction
      pause_versions       queue -> (flags, version) of pauses that were set with BCAST (pausing.py)
      pause_name_bytes, pauses_ended   bytes of all these names; those whose pause has ended, in order of their ends

    Clients
      clients, monitors    by id; clients in MONITOR
      blocked_count        clients and requests that wait for jobs or copies
      ready                queues that may have both jobs and waiting clients
      timeouts             when blocked clients are answered at the latest
      incremental          client -> its long command, done a part per turn (incremental.py)
      stalled              clients whose long command waits for bodies from disk
      clients_paused_until_ms   CLIENT PAUSE
      tokens, tokened      deliveries that can be repeated (tokens.py); the same by job
      token_waits          token -> clients that wait for its delivery

    Interest of consumers (interest.py, pulls.py)
      interest             queue -> (node -> clients waiting there); a Queue of that name shares the inner dict
      plain_interest       queue -> (node -> clients waiting there that take every job), where these are not all
      told_interest, told_plain   what we told other nodes of our clients: all; those that take every job, where that
                                  differs
      interest_due         queues whose interest may have to be told at the end of the turn
      hint_due             queues whose jobs might interest another node
      asked_all_ms, asking the last walk that asked all nodes for jobs, and that walk while it lasts

    Producers with a KEY (keys.py, keying.py)
      keys                 keys that were used here
      searches             characters of a key -> what is asked about it
      key_events           ids of jobs whose outcome another node or a producer may wait for
      key_conflicts        jobs that another node refused because it knows another job with their key
      outcome_waits        job id -> nodes that want to know its outcome
      question_number      the number of the last question
      caller_count         ADDJOBs that wait until it is known whether their key is used

    Journal (journaling.py)
      is_journaling        whether a journal is written
      dirty                jobs changed this turn -> whether their holders did
      place, first_place   the segment that new bases go to, and the first that any may be in
      live_bytes           segment -> bytes of its bases that still count
      live_records         segment -> bases, tokens and keys that still count. A segment is dropped only when none is
                           left, whatever the sums say
      disk_level, disk_trouble   which commands are refused since the disk failed (persistence/journal.py), and why it
                                 did
      is_loading           the journal is being read
      loading_wait_until_ms, early   until when requests wait for the loading instead of being refused; clients that do
                                     so

    Events
      events               this turn's transitions (events.py); None while no reader wants them
      event_source         the log of events as commands see it; None while there is none

    Memory
      used_memory, peak_memory   accounted bytes of jobs and queues, which maxmemory limits; the highest value so far
      memory_limits        the marks at 75, 95 and 100 %
      acked_count, once_delivered_count   records that eviction may drop (memory.py)
      eviction_shard       where the next eviction goes on
      spill, spilled_count bodies on disk (spilling.py), and how many there are
      is_spilling          whether more bodies may go there
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
        self.tombstones = Tombstones(2 * settings.cluster_node_timeout)
        self.stats = Stats()
        self.shards: list[dict[bytes, Job]] = [{} for _ in range(SHARDS)]
        self.job_count = 0
        self.queues: dict[bytes, Queue] = {}
        self.queue_order: list[Queue] = []
        self.queue_serial = 0
        self.queue_gc: Iterator[Queue] = iter(())
        self.waiting_repl: dict[Job, None] = {}
        self.counted_epoch = 0
        self.extensions: deque[tuple[int, list[Job]]] = deque()
        self.extending: list[Job] = []
        self.extending_ms = -1
        self.asked = Line(ACK_ASKED_MS)
        self.heard = Line(ACK_HEARD_MS)
        self.replica_sets = ReplicaSets()
        self.paused_count = 0
        self.clients: dict[int, Client] = {}
        self.monitors: dict[Client, None] = {}
        self.blocked_count = 0
        self.ready: dict[Queue, None] = {}
        self.hint_due: dict[Queue, None] = {}
        self.interest_due: dict[Queue, None] = {}
        self.interest: dict[bytes, dict[Node, int]] = {}
        self.told_interest: dict[bytes, int] = {}
        self.told_plain: dict[bytes, int] = {}
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
        self.pause_name_bytes = 0
        self.pauses_ended: dict[bytes, None] = {}
        self.deferred: dict[Job, int] = {}
        self.tokens = Tokens(self)
        self.tokened = self.tokens.by_job
        self.token_waits: dict[bytes, dict[Client, None]] = {}
        self.keys = Keys(self)
        self.searches: dict[bytes, Search] = {}
        self.key_events: dict[bytes, None] = {}
        self.key_conflicts: list[Job] = []
        self.outcome_waits: dict[bytes, dict[Node, None]] = {}
        self.question_number = 0
        self.caller_count = 0
        self.incremental: dict[Client, Steps] = {}
        self.recollect: Iterator[None] | None = None
        self.asked_all_ms = 0
        self.asking: Iterator[bytes] = iter(())
        self.announcements: dict[tuple[Node, ...], list[Job]] = {}
        self.sweeps: dict[Queue, Iterator[None]] = {}
        self.clients_paused_until_ms = 0
        self.is_loading = False
        self.loading_wait_until_ms = 0
        self.early: dict[Client, None] = {}
        self.commands: dict[bytes, CommandEntry] = {}
        self.is_journaling = False
        self.dirty: dict[Job, bool] = {}
        self.place = 0
        self.first_place = NO_PLACE
        self.live_bytes: dict[int, int] = {}
        self.live_records: dict[int, int] = {}
        self.disk_level = 0
        self.disk_trouble = ""
        self.events: Noted | None = None
        self.event_source: EventSource | None = None
        self.spill = Spill()
        self.spilled_count = 0
        self.is_spilling = False
        self.stalled: dict[Client, None] = {}
        self.run = cluster.me.run
        self.run_name = rng.randbytes(20).hex()
        self._last_ctime = 0
        self._last_wall_ms = -1
        self.jitter: Callable[[], int] = _jitters(rng).__next__
        self.memory_limits = (0, 0, 0)
        self.apply_maxmemory()

    # -- jobs -------------------------------------------------------------------------------------

    def find(self, job_id: bytes) -> Job | None:
        """Return the job with this id (40 bytes, positionally valid), or None."""
        return self.shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)

    def next_ctime(self) -> int:
        """Return a new job's creation time: wall clock in ms x 1,000,000, but strictly increasing."""
        if self.wall_ms == self._last_wall_ms:
            self._last_ctime += 1
            return self._last_ctime
        self._last_wall_ms = self.wall_ms
        self._last_ctime = max(self.wall_ms * 1_000_000, self._last_ctime + 1)
        return self._last_ctime

    # -- queues ------------------------------------------------------------------------------------

    def queue(self, name: bytes) -> Queue:
        """Return the queue of this name. Create it if it is missing."""
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
        """Check at the end of the turn whether other nodes are interested in this queue's jobs (interest.py)."""
        self.hint_due[queue] = None

    def look_again(self, queue: Queue) -> None:
        """Serve the queue's clients again in a turn soon, because something kept us from finishing with it."""
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
        """Whether CLUSTER LEAVING yes is in force."""
        return bool(self.me.flags & LEAVING)

    def members(self) -> list[Node]:
        """Return all other nodes of the table that are known by id."""
        return [node for node in self.cluster.nodes.values() if not node.flags & (MYSELF | HANDSHAKE)]

    def tell_pause(self, nodes: tuple[Node, ...], name: bytes) -> None:
        """Send a queue's pause state, as set with BCAST, to these nodes."""
        flags, version_ms, version_node = self.pause_versions[name]
        self.send(nodes, PAUSE, (name, flags, version_ms, version_node))

    # -- memory ------------------------------------------------------------------------------------

    def apply_maxmemory(self) -> None:
        """Compute the marks at 60, 75, 95 and 100 %, after `maxmemory` changed, or whether bodies may spill.

        A limit of 0 means no limit. Spec M5.
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
        """Return 0; 1 above 75 %; 2 above 95 %; 3 at 100 % of maxmemory and more."""
        used = self.used_memory
        above, high, full = self.memory_limits
        if used <= above:
            return 0
        if used <= high:
            return 1
        return 2 if used < full else 3
