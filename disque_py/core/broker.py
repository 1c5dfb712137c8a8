"""Broker: the memory of one node.

All data that the rules work on is a field of the broker: jobs by id, queues by name, waiting clients, the schedule, the
outbox. The broker makes no decisions. The modules for each conversation make them. Time and chance come from outside:
each turn sets `now_ms` and `wall_ms` once, and the caller passes `rng`.

Jobs are indexed in SHARDS small dicts. With five million entries, the resize of one large dict would stop the node for
half a second. JSCAN and the background sweep also visit jobs in the order of the shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import i64

from cluster_bus.messages import PAUSE
from cluster_bus.node import HANDSHAKE, LEAVING, MYSELF, Node
from cluster_bus.outgoing import Outgoing
from disque_py.config.settings import Settings
from disque_py.core import claim_stamps
from disque_py.core.access_log import AccessLog
from disque_py.core.batch_state import Batches
from disque_py.core.broker_parts import (
    Acks,
    Consumers,
    Copies,
    JournalState,
    Memory,
    Pauses,
    Producers,
    Tasks,
    Upkeep,
    Waits,
    done_kept_ms,
)
from disque_py.core.caps import Caps
from disque_py.core.claims import Claims
from disque_py.core.ends import Ends
from disque_py.core.errored_ids import ErroredIds
from disque_py.core.exclusive_state import Exclusive
from disque_py.core.filters import adopt, index_from_start, on_settings
from disque_py.core.gathering import Gatherings
from disque_py.core.ids import IdSource
from disque_py.core.job import ACTIVE, Job, JobTerms
from disque_py.core.job_waits_state import JobWaits
from disque_py.core.node_sets import NodeSets
from disque_py.core.outbox import Outbox
from disque_py.core.patterns import Patterns
from disque_py.core.progress import ProgressTable
from disque_py.core.queue import QUEUE_BYTES, Queue
from disque_py.core.queue_settings import QUEUE, QueueSettingsTable
from disque_py.core.recurring import Recurring
from disque_py.core.repair_state import Repairs
from disque_py.core.results import Results
from disque_py.core.schedule import Schedule
from disque_py.core.spilled import NEVER, Spill
from disque_py.core.stats import Stats
from disque_py.core.tokens import Tokens
from disque_py.core.tombstones import Tombstones
from disque_py.core.users import Users

if TYPE_CHECKING:
    from cluster_bus.membership import Membership
    from disque_py.core.asking import Question
    from disque_py.core.client import Client
    from disque_py.core.command_entry import CommandEntry
    from disque_py.core.event_packing import Noted
    from disque_py.core.event_source import EventSource
    from disque_py.core.leaving import Drain
    from disque_py.ports import Host

SHARDS: Final = 4096

# Random offsets keep nodes from acting at the same moment (spec N8: +-250 ms). JITTERS of them are drawn in advance.
JITTER_MS: Final = 250
JITTERS: Final = 1024


def _jitters(rng: Random) -> Iterator[int]:
    """Yield the same JITTERS offsets in a cycle. They only spread nodes in time, so they may repeat."""
    drawn = [int(rng.random() * 2 * JITTER_MS) - JITTER_MS for _ in range(JITTERS)]
    while True:
        yield from drawn


class Broker:
    """One node's memory.

    The fields of one purpose form a part (broker_parts.py), such as `broker.pauses`. Fields that many commands read
    several times are direct fields of the broker, because a part would cost one more look-up per access.

    The world outside
      cluster              the table of nodes (cluster_bus/node_table.py)
      membership           keeps that table, and carries out operators' requests (cluster_bus/membership.py)
      me, run, run_name    this node, the random bytes that name its process, and 40 random hex digits that also do
      settings             directives in force
      commands             commands in force, by name in lower and upper case; dispatch installs them
      host                 the process (ports.Host)
      rng, jitter          the source of all random numbers; each call of `jitter` returns an offset of -250 … +249 ms
      now_ms, wall_ms      this turn's monotonic and Unix time
      started_ms           when the node started
      stopwatch_ns         a clock for LATENCY and SLOWLOG, in nanoseconds
      outbox, send, send_all   work for the end of the turn; the two methods that put messages for nodes into it
      stats                counters of INFO, LATENCY and SLOWLOG

    Jobs
      shards, job_count    jobs by id (see `find`)
      ids, last_ctime, _last_wall_ms   the source of new job ids; the creation time of the last new job, and the wall
                           clock then
      schedule             timers of jobs, and calls at a later time
      upkeep               background walks, which do one part per tick
      tombstones           ids of jobs that were deleted recently
      ends                 how recently finished jobs ended, and the jobs whose end clients wait for (ends.py)
      results              results of finished jobs (results.py)
      progress             progress of running jobs (progress.py)
      job_waits            clients that wait for the ends of jobs (job_waits.py)
      batches              batches of jobs (batch_state.py, keeping.py)
      behind               job whose changeable part is newer on another node -> how many requests for it are left,
                           and the highest change number that a node has mentioned (changing.py)

    Copies and acks
      sets                 interned sets of nodes
      era                  grows whenever this node may have missed that others made copies; each job keeps the era in
                           which it arrived (acks.py)
      repairs              lost copies and their replacement (repair.py)
      copies, acks         copies that are being made; acked jobs that are being collected
      drain                the state of CLUSTER LEAVING; None while the node stays (leaving.py)

    Queues
      queues               by name
      queue_order, queue_serial   queues in the order of their serials, which QSCAN uses as its cursor; the last serial.
                           Dropped queues stay in the list until the next clean-up
      pauses               paused queues
      errored_ids          errored jobs by queue; a queue with such jobs is not dropped (errored_ids.py)
      queue_settings       the settings of QUEUE SET (queue_settings.py)
      topics               topic -> (bound queue -> pairs of META that a job must have for it) (topics.py)
      recurring            schedules (recurring.py)
      caps                 caps of queues, and their slots (caps.py)

    Clients
      clients, monitors    by id; clients in MONITOR
      users, access_log    users and their permissions (users.py); refusals (access_log.py)
      arrivals             how many times a client has begun to wait for jobs; this number orders waiting clients
      ready                queues that may have both jobs and waiting clients
      waits                clients whose reply comes later
      tokens               deliveries that can be repeated (tokens.py)
      consumers            interest of consumers, here and on other nodes
      patterns             clients that wait for every queue whose name matches (patterns.py)
      producers            producers with a KEY
      gatherings           questions to all nodes, from clients here and from other nodes (gathering.py)
      tasks                long work on the jobs of a queue, on all nodes (tasks.py)
      questions            number -> a question about jobs that other nodes were sent (asking.py)
      claims               this node as a voter and as a claimant (claims.py)
      exclusive            deliveries under a claim (exclusive.py)

    Journal
      is_journaling        whether a journal is written
      is_loading           the journal is being read
      dirty                jobs that changed in this turn; `Job.dirt` says how
      journal              the segments that the broker knows of, and errors of the disk

    Events
      events               this turn's transitions (events.py); None while no events are written
      event_source         the log of events, as commands read it; None while there is none

    Memory
      used_memory          accounted bytes of jobs and queues, which maxmemory limits
      memory               the numbers behind eviction and maxmemory
      spill                bodies on disk (spilling.py)
    """

    def __init__(self, membership: Membership, messages: Outgoing, settings: Settings, rng: Random, host: Host) -> None:
        cluster = membership.table
        self.membership = membership
        self.cluster = cluster
        self.settings = settings
        self.rng = rng
        self.host = host
        self.now_ms = 0
        self.wall_ms = 0
        self.started_ms = 0
        self.stopwatch_ns: Callable[[], int] = lambda: 0
        self.me: Node = cluster.me
        self.outbox = Outbox(messages)
        self._messages = messages
        self.sets = NodeSets(cluster.me, cluster.intern)
        self.ids = IdSource(cluster.me.name, rng)
        self.schedule = Schedule()
        kept_ms = done_kept_ms(settings.cluster_node_timeout)
        self.tombstones = Tombstones(kept_ms)
        self.ends = Ends(kept_ms)
        self.results = Results(self)
        self.progress = ProgressTable(self)
        self.job_waits = JobWaits()
        self.batches = Batches(self)
        self.stats = Stats()
        self.shards: list[dict[bytes, Job]] = [{} for _ in range(SHARDS)]
        self.job_count = 0
        self.queues: dict[bytes, Queue] = {}
        self.queue_order: list[Queue] = []
        self.queue_serial = 0
        self.queue_settings = QueueSettingsTable()
        self.topics: dict[bytes, dict[bytes, dict[bytes, bytes]]] = {}
        self.queue_settings.watch(QUEUE, partial(on_settings, self))
        self.recurring = Recurring()
        self.caps = Caps(cluster.me)
        self.copies = Copies()
        self.repairs = Repairs()
        self.era = 1  # Jobs from the journal came before this process.
        self.acks = Acks(kept_ms)
        self.pauses = Pauses()
        self.waits = Waits()
        self.consumers = Consumers()
        self.patterns = Patterns(self)
        self.producers = Producers(self)
        self.journal = JournalState()
        self.memory = Memory()
        self.upkeep = Upkeep()
        self.errored_ids = ErroredIds(self._is_errored_in)
        self.gatherings = Gatherings()
        self.tasks = Tasks()
        self.clients: dict[int, Client] = {}
        self.monitors: dict[Client, None] = {}
        self.users = Users()
        self.access_log = AccessLog()
        self.ready: dict[Queue, None] = {}
        self.arrivals = 0
        self.drain: Drain | None = None
        self.used_memory = 0
        self.behind: dict[Job, tuple[int, int]] = {}
        self.tokens = Tokens(self)
        self.questions: dict[int, Question] = {}
        self.claims = Claims(cluster.me.run)
        self.exclusive = Exclusive()
        self.queue_settings.adopt = partial(claim_stamps.adopt, self)
        self.is_loading = False
        self.commands: dict[bytes, CommandEntry] = {}
        self.is_journaling = False
        self.dirty: list[Job] = []
        self.terms: dict[bytes, JobTerms] = {}
        self.events: Noted | None = None
        self.event_source: EventSource | None = None
        self.spill = Spill()
        self.run = cluster.me.run
        self.run_name = rng.randbytes(20).hex()
        self.last_ctime = 0
        self._last_wall_ms = -1
        self.jitter: Callable[[], int] = _jitters(rng).__next__
        self.apply_maxmemory()

    # -- messages for nodes -------------------------------------------------------------------------

    # Methods, because compiled code calls a method of a known class directly, and a function in a field slowly.

    def send(self, nodes: tuple[Node, ...], kind: int, item: Any) -> None:
        """Put one item for each of `nodes` into the outbox."""
        self._messages.send(nodes, kind, item)

    def send_all(self, nodes: tuple[Node, ...], kind: int, items: list[Any]) -> None:
        """Put several items of one kind for each of `nodes` into the outbox; the list is not kept."""
        self._messages.send_all(nodes, kind, items)

    # -- jobs -------------------------------------------------------------------------------------

    def find(self, job_id: bytes) -> Job | None:
        """Return the job with this id, or None. The id must have passed `is_valid_id` (ids.py)."""
        return self.shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)

    def next_shard(self, number: i64) -> i64:
        """Return the number of the first shard with jobs, from `number` on; SHARDS if there is none."""
        shards = self.shards
        while number < SHARDS and not shards[number]:
            number += 1
        return number

    def next_ctime(self) -> int:
        """Return a new job's creation time: the wall clock in ms x 1,000,000, but always above the last one."""
        if self.wall_ms == self._last_wall_ms:
            self.last_ctime += 1
            return self.last_ctime
        self._last_wall_ms = self.wall_ms
        self.last_ctime = max(self.wall_ms * 1_000_000, self.last_ctime + 1)
        return self.last_ctime

    # -- queues ------------------------------------------------------------------------------------

    def queue(self, name: bytes) -> Queue:
        """Return the queue of this name. Create it if it is missing."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name, self.now_ms)
            interested = self.consumers.interest.get(name)
            if interested is not None:
                queue.interested = interested
            self.used_memory += QUEUE_BYTES + len(name)
            self.queue_serial += 1
            queue.serial = self.queue_serial
            self.queue_order.append(queue)
            if self.consumers.filters:
                adopt(self, queue)
            if self.queue_settings.exclusive and name in self.queue_settings.exclusive:
                claim_stamps.open_parking(self, queue)
            if self.queue_settings.in_force:
                index_from_start(self, queue)
            if self.patterns.groups:
                self.patterns.queue_created(queue)
        return queue

    def owe_hint(self, queue: Queue) -> None:
        """Check at the end of the turn whether other nodes are interested in this queue's jobs (interest.py)."""
        self.consumers.hint_due[queue] = None

    def look_again(self, queue: Queue) -> None:
        """Serve the queue's clients again about 1 ms from now, because this turn could not finish with the queue."""
        self.schedule.call_at(self.now_ms + 1, lambda: self.wake(queue))

    def wake(self, queue: Queue) -> None:
        """Serve the queue's clients at the end of the turn, because nothing keeps them from its jobs any more."""
        if queue.waiting or queue.patterns is not None:
            self.ready[queue] = None
        filters = queue.filters
        if filters is not None and filters.waiting:
            filters.all_due()
            self.ready[queue] = None

    def drop_queue(self, queue: Queue) -> None:
        """Forget an idle queue that has no entries, not even dead ones."""
        del self.queues[queue.name]
        self.used_memory -= QUEUE_BYTES + len(queue.name)
        self.consumers.hint_due.pop(queue, None)
        self.consumers.interest_due.pop(queue, None)
        self.consumers.answered.pop(queue, None)
        if queue.rivals is not None:
            for node in queue.rivals.known:
                self.consumers.rivals.get(node, {}).pop(queue, None)
        self.ready.pop(queue, None)
        self.upkeep.sweeps.pop(queue, None)
        queue.is_dropped = True
        if queue.parking is not None:
            self.exclusive.queues.pop(queue, None)
            self.exclusive.held.pop(queue, None)
        if queue.filters is not None:
            queue.filters.dropped()
        if queue.patterns is not None:
            self.patterns.queue_dropped(queue)
        if not queue.interested:
            self.consumers.interest.pop(queue.name, None)
        if len(self.queue_order) > 2 * len(self.queues) + 1024:
            self.queue_order = [kept for kept in self.queue_order if not kept.is_dropped]

    def keep_for_errored(self, job: Job) -> None:
        """Keep the queue of an errored job in existence as long as it has such a job. Spec F5."""
        name = self.queue(job.terms.queue).name
        self.errored_ids.add(name, job.id)

    def _is_errored_in(self, name: bytes, job_id: bytes) -> bool:
        job = self.find(job_id)
        return job is not None and job.state == ACTIVE and job.is_errored and job.terms.queue == name

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
        flags, version_ms, version_node = self.pauses.versions[name]
        self.send(nodes, PAUSE, (name, flags, version_ms, version_node))

    # -- memory ------------------------------------------------------------------------------------

    def apply_maxmemory(self) -> None:
        """Compute the marks at 60, 75, 95 and 100 % of `maxmemory`.

        Call it when `maxmemory` has changed, or when spilling was switched on or off. A `maxmemory` of 0 means no
        limit. Spec M5.
        """
        limit = self.settings.maxmemory
        if limit:
            self.memory.limits = (limit // 100 * 75, limit // 100 * 95, limit)
        else:
            self.memory.limits = (1 << 62, 1 << 62, 1 << 62)
        self.memory.is_spilling = bool(limit) and self.spill.is_on
        self.spill.above = limit // 100 * 60 if self.memory.is_spilling else NEVER
        if not self.memory.is_spilling:
            self.spill.fresh, self.spill.older = [], []

    @property
    def memory_level(self) -> int:
        """Return the level of memory use: 1 above 75 % of maxmemory, 2 above 95 %, 3 from 100 % on, else 0."""
        used = self.used_memory
        above, high, full = self.memory.limits
        if used <= above:
            return 0
        if used <= high:
            return 1
        return 2 if used < full else 3
