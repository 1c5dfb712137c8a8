"""Machine: one node of a world, from outside: its process, its clocks, its files.

Inside runs the server's code: Driver, Membership, Broker. A machine is their Clock and Wire (ports.py); its SimHost is
their Host. A process dies in one of three ways. After a kill, its sent frames still arrive, and other nodes see the
connections end. After a power cut, other nodes see nothing until the machine is back. With a *fuse*, it dies after a
given number of outside effects. That may be in the middle of a turn, when some messages and replies were sent and
others not. A stopped machine (SIGSTOP) keeps its input for later.

The nodes file is synced a moment after membership requests it, so a power cut may come before. `write_nodes` writes
immediately, for changes that a kill must not undo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from cluster_bus.membership import Membership
from cluster_bus.node import Node
from cluster_bus.nodes_file import parse, parse_notes
from disque_py.config.settings import Settings
from disque_py.core import voting
from disque_py.core.broker import Broker
from disque_py.core.schedule import Schedule
from disque_py.event_format import ADDED, ADDED_ANYHOW, ADDED_INVISIBLE
from disque_py.node import dispatch
from disque_py.node.turn import Driver
from disque_py.simulator.checks.durability import DurabilityChecker
from disque_py.simulator.clients.connection import Connection
from disque_py.simulator.world.codecs import OLD, PREVIOUS
from disque_py.simulator.world.event_log_storage import EventLogStorage
from disque_py.simulator.world.framed_disk import FramedDisk
from disque_py.simulator.world.host import SimHost
from disque_py.simulator.world.journal_storage import JournalStorage
from disque_py.simulator.world.settings_disk import SettingsDisk
from disque_py.simulator.world.spill_storage import give_spill_service
from disque_py.simulator.world.traffic import Pipe
from disque_py.storage.votes_file import VOTES

if TYPE_CHECKING:
    from disque_py.simulator.world.world import World

PORT: Final = 7711
BUS_PORT: Final = 17711
RUN_BYTES: Final = 8
ID_BYTES: Final = 20
PPM: Final = 1_000_000
ADDED_CODES: Final = (ADDED, ADDED_ANYHOW, ADDED_INVISIBLE)
SAVE_MS_MAX: Final = 6
# So few that the grants of some locks fill several pages.
VOTES_PAGE_KEYS: Final = 2


class DeathError(Exception):
    """A process dies here. The world's loop catches this error."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.name)
        self.machine = machine


class Machine:
    """One node, from outside.

    name               one letter; also the host name
    offset_ms          difference of its monotonic clock to the world's, at the world's start
    drift_ppm          how much faster this clock runs than the world's, in millionths
    wall_offset_ms     difference of its wall clock to the other nodes'; may jump at any time
    version            the highest bus version that it speaks
    is_up, is_stopped, has_power
    is_ending          the process was told to end, and does the rest of its work
    is_deaf            the process doesn't listen to clients yet, because its log of events is being opened
    runs               how many times a process was started
    fuse               the process dies after this many further outside effects; 0: it does not
    stopped_ms, continued_ms   when the process was last stopped, and when it was last continued
    held               input that came while the process was stopped or deaf
    nodes_file         the text that a start would read; never older than a text that was written before
    forgot             ids that the node was ever told to forget, by FORGET or RESET -> when it was told last
    totals             counters of earlier runs, by name (see `harvest`)
    ticks              number of timers that fired
    settings_disk      the file of queue settings
    votes_disk         the file of grants and lists of voters
    journal_storage    the journal; None: the node has none
    event_logs         the log of events; None: the node has none
    """

    def __init__(
        self,
        world: World,
        name: str,
        settings: dict[str, Any],
        *,
        offset_ms: int = 0,
        drift_ppm: int = 0,
        version: int = OLD,
        node_id: bytes = b"",
    ) -> None:
        self.world = world
        self.name = name
        self.label = name.encode()
        self.rng = world.stream(f"machine {name}")
        self.node_id = node_id or name.encode() + self.rng.randbytes(ID_BYTES - 1)
        self.settings = dict(settings)
        self.offset_ms = offset_ms
        self.drift_ppm = drift_ppm
        self.wall_offset_ms = 0
        self.version = version
        self.is_up = False
        self.is_stopped = False
        self.is_ending = False
        self.is_deaf = False
        self.has_power = True
        self.runs = 0
        self.fuse = 0
        self.stopped_ms = self.continued_ms = 0
        self.held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.nodes_file = ""
        self._saves = self._saved_number = 0
        self._latest = (0, "")
        self.settings_disk = SettingsDisk(self, world.stream(f"settings {name}"))
        self.votes_disk = FramedDisk(self, world.stream(f"votes {name}"), VOTES, is_torn_by_kills=False, is_slow=True)
        self.forgot: dict[bytes, int] = {}
        self.totals: dict[str, int] = {}
        self.journal_storage: JournalStorage | None = None
        self.event_logs = EventLogStorage(self, world.stream(f"events {name}")) if settings.get("events") else None
        self.ticks = 0
        self.attempts: dict[Node, object] = {}
        self.pipes: dict[Node, Pipe] = {}
        self.incoming: dict[bytes, Pipe] = {}
        self.clients: dict[Connection, None] = {}
        self.driver: Driver
        self.broker: Broker
        self.membership: Membership
        self._timer_ms = 0

    def __repr__(self) -> str:
        return f"<Machine {self.name}>"

    def keep_journal(self, policy: str) -> None:
        """Give the node a journal with this appendfsync, from its next start on."""
        self.settings |= {"appendonly": True, "appendfsync": policy}
        self.journal_storage = JournalStorage(self, self.world.stream(f"disk {self.name}"))

    # -- life --------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start a process: empty memory, a new run, and the nodes of its nodes file."""
        self.runs += 1
        world = self.world
        values = Settings()
        for name, value in self.settings.items():
            setattr(values, name, value)
        rng = world.stream(f"machine {self.name} run {self.runs}")
        outgoing = world.watcher.outgoing_of(self)
        lines = parse(self.nodes_file) if self.nodes_file else []
        if lines:
            self.node_id = lines[0].id  # After CLUSTER RESET HARD the id is a new one.
        me = Node(self.node_id, "", PORT, BUS_PORT)
        me.run = rng.randbytes(RUN_BYTES)
        me.datacenter, me.zone = values.datacenter, values.zone
        self.membership = Membership(
            me, outgoing, rng, node_timeout_ms=values.cluster_node_timeout, versions=(PREVIOUS, self.version)
        )
        self.membership.table.now_ms, self.membership.table.wall_ms = self.now_ms(), self.wall_ms()
        if self.runs > 1:
            self.free_memory()
        self.broker = Broker(self.membership, outgoing, values, rng, SimHost(self))
        dispatch.install(self.broker)
        self.attempts, self.pipes, self.incoming, self.held, self.clients = {}, {}, {}, [], {}
        self.is_up, self.is_stopped, self.is_ending, self.fuse, self._timer_ms = True, False, False, 0, 0
        self.driver = Driver(
            self.broker, self.membership, outgoing, self, self, self._on_turn, self._save_nodes, self._notice
        )
        self.driver.write_nodes = self.write_nodes
        self.open()
        if lines:
            self.membership.load(lines)
            self.membership.resume(parse_notes(self.nodes_file, self.wall_ms()))
        self.settings_disk.load()
        votes, is_repaired = self.votes_disk.load()
        voting.start(self.broker, votes, is_repaired=is_repaired)
        self.broker.claims.page_keys = VOTES_PAGE_KEYS
        self.broker.claims.idle_ms = self.world.votes_idle_ms
        if values.maxmemory_spill:
            give_spill_service(self)
        if self.journal_storage is not None:
            # As in node_lifecycle.py: a copy that is confirmed before the journal is open would not be recorded.
            self.broker.is_loading = True
            self.broker.waits.loading_until_ms = self.broker.now_ms + 1000 * values.loading_wait
            self.journal_storage.begin()
        self.is_deaf = True
        if self.event_logs is not None:
            self.event_logs.start()
        else:
            self.listen()
        self.driver.tick()
        self.close()

    def listen(self) -> None:
        """Let clients connect, and read the journal if there is one. Within a turn."""
        self.is_deaf = False
        if self.journal_storage is not None:
            self.journal_storage.load()
        else:
            self.loaded(has_journal=False)
        if not self.is_stopped:
            held, self.held = self.held, []
            for call, args in held:
                call(*args)

    def loaded(self, *, has_journal: bool) -> None:
        """Note that the node has the jobs of its journal, or has no journal."""
        if self.event_logs is not None:
            self.event_logs.started(has_journal=has_journal)

    def start(self) -> None:
        """Start a new process. The old one is dead."""
        assert not self.is_up
        self.has_power = True
        self.world.network.power_is_back(self)
        self.boot()

    def die(self, *, power: bool = False) -> None:
        """End the process, or with `power` the whole machine; then other nodes don't notice."""
        self.world.watcher.on_death(self, power=power)
        self.harvest()
        number, text = self._latest
        if not power and number > self._saved_number:
            self._saved_number, self.nodes_file = number, text
        self.settings_disk.file.died(power=power)
        self.votes_disk.died(power=power)
        if self.journal_storage is not None:
            self.journal_storage.died(power=power)
        if self.event_logs is not None:
            self.event_logs.died(power=power)
        self.is_up = self.is_stopped = False
        self.fuse = 0
        self.held = []
        self.has_power = not power
        self.world.network.died(self)
        for connection in list(self.clients):
            connection.lost()
        self.clients = {}

    def free_memory(self) -> None:
        """Take the work from all jobs: the garbage collector does not find cycles that go through a job (job.py).

        A keyed job that is not registered yet is only known to its client, and to the schedule after that one is gone.
        """
        for shard in self.broker.shards:
            for job in shard.values():
                job.work = None
        for client in self.broker.clients.values():
            for job in client.waiting_jobs:
                job.work = None
        self.broker.schedule = Schedule()

    def shut_down(self, then: Callable[[], None]) -> None:
        """End the process as SIGTERM does: disconnect clients and close the journal. Then call `then`."""
        run = self.runs
        self.is_ending = True

        def ended(_: OSError | None = None) -> None:
            if self.is_up and self.runs == run and self.event_logs is not None:
                self.event_logs.close(gone)
            else:
                gone()

        def gone() -> None:
            if self.is_up and self.runs == run:
                self.world.later(0, self.end_run, run, then)

        for connection in list(self.clients):
            connection.hang_up_by_node()
        self.open()
        if self.journal_storage is not None and not self.is_deaf:
            self.journal_storage.journal_service.close(ended)
        else:
            ended()
        self.close()

    def end_run(self, run: int, then: Callable[[], None]) -> None:
        """End the process of this run by itself, if it still exists. Then call `then`."""
        if self.is_up and self.runs == run:
            self.save_at_end()
            self.die()
            then()

    def aside(self, call: Callable[[], None], run: int) -> None:
        """Report the end of work outside the loop: now, or when the process goes on."""
        if run != self.runs or not self.is_up:
            return
        if self.is_stopped:
            self.held.append((self.aside, (call, run)))
            return
        call()
        if self.driver.is_open:
            self.close()

    def stop(self) -> None:
        """Stop the process, as SIGSTOP does."""
        self.is_stopped = True
        self.stopped_ms = self.world.now_ms

    def go_on(self) -> None:
        """Continue the process, as SIGCONT does. It reads the input that came meanwhile, then its clock."""
        self.is_stopped = False
        self.continued_ms = self.world.now_ms
        self._timer_ms = 0
        held, self.held = self.held, []
        for call, args in held:
            call(*args)
        if not self.is_up:
            return
        self.world.traffic.read_landed(self)
        self.open()
        self.driver.tick()
        self.close()

    def harvest(self) -> None:
        """Add the counters of this run to the totals, because its memory is about to vanish."""
        totals, stats = self.totals, self.broker.stats
        for name in dir(stats):
            value = getattr(stats, name)
            if type(value) is int:
                totals[name] = totals.get(name, 0) + value

    def count(self, name: str) -> int:
        """Return a counter of INFO, summed over all runs."""
        now = getattr(self.broker.stats, name) if self.is_up else 0
        return self.totals.get(name, 0) + int(now)

    # -- replies -----------------------------------------------------------------------------------

    def check_added(self, job_id: bytes, copies: int) -> None:
        """Check that journal and log of events have the job whose id a producer gets. Raises RuleBrokenError."""
        durability = self._durability()
        if durability is not None:
            durability.check_added(job_id, copies)
        if self.event_logs is not None:
            self.event_logs.check_told(job_id, ADDED_CODES, "answer to ADDJOB")

    def next_event(self) -> int:
        """Return the number of the next event, if there is a log."""
        return 0 if self.event_logs is None else self.event_logs.next_seq()

    def check_delivered(self, entries: list[Any], since: int, attempts: list[int]) -> None:
        """Check that journal and log of events have the deliveries that a consumer gets. Raises RuleBrokenError.

        entries    the jobs: [queue, id, …] each
        since      `next_event` at the time of the request
        attempts   the numbers of the deliveries, if the reply has them
        """
        durability = self._durability()
        if durability is not None:
            for entry in entries:
                durability.check_delivered(entry[1])
        if self.event_logs is not None:
            for at, entry in enumerate(entries):
                self.event_logs.check_delivered(entry[1], since, attempts[at] if attempts else 0)
        self.world.watcher.on_delivered(self, entries)

    def check_acked(self, job_ids: list[bytes]) -> None:
        """Check that the journal has the acks of which a client is told. Raises RuleBrokenError."""
        durability = self._durability()
        if durability is not None:
            for job_id in job_ids:
                durability.check_acked(job_id)

    def _durability(self) -> DurabilityChecker | None:
        """Return the checker of the node's promises, if the node has a journal and has read it."""
        return None if self.journal_storage is None else self.journal_storage.durability

    # -- turns -------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open a turn, before an input."""
        self.driver.begin()

    def close(self) -> None:
        """End an input. In a prompt world, this ends the turn."""
        if self.world.is_prompt:
            self._end_turn()

    def _on_turn(self) -> None:
        if not self.world.is_prompt:
            self.world.later(0, self._finish, self.runs)

    def _finish(self, run: int) -> None:
        if run != self.runs or not self.is_up:
            return
        if self.is_stopped:
            self.held.append((self._finish, (run,)))
        else:
            self._end_turn()

    def _end_turn(self) -> None:
        if self.event_logs is not None:
            self.event_logs.look()
        self.driver.finish()
        self.world.watcher.on_turn(self)
        world = self.world
        since_ms = self.driver.next_ms() - self.offset_ms
        if self.drift_ppm:
            since_ms = -(-since_ms * PPM // (PPM + self.drift_ppm))
        # Overdue work is done a millisecond later, as in an event loop that has other work, too.
        at_ms = max(since_ms, world.now_ms + 1)
        if not self._timer_ms or at_ms < self._timer_ms:
            self._timer_ms = at_ms
            world.at(at_ms, self._on_timer, at_ms, self.runs)

    def _on_timer(self, at_ms: int, run: int) -> None:
        if at_ms != self._timer_ms or run != self.runs or not self.is_up or self.is_stopped:
            return  # A newer timer was set, or the process is gone, or it will look at its clock when it goes on.
        if self.world.is_prompt and not self.world.may_tick(self):
            self._timer_ms = at_ms + 1
            self.world.later(1, self._on_timer, at_ms + 1, run)
            return
        self._timer_ms = 0
        self.ticks += 1
        self.driver.tick()
        self.close()

    def burn(self) -> None:
        """Count an outside effect. It may be the last one of this process (`fuse`)."""
        self.fuse -= 1
        if not self.fuse:
            raise DeathError(self)

    # -- Clock -------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the node's monotonic clock."""
        now_ms = self.world.now_ms
        return self.offset_ms + now_ms + now_ms * self.drift_ppm // PPM

    def wall_ms(self) -> int:
        """Return the node's wall clock."""
        return self.world.wall_ms + self.wall_offset_ms

    def stopwatch_ns(self) -> int:
        """Return zero: code takes no time here."""
        return 0

    # -- Wire --------------------------------------------------------------------------------------

    def dial(self, node: Node) -> None:
        """See ports.Wire."""
        self.world.network.dial(self, node)

    def hang_up(self, node: Node) -> None:
        """See ports.Wire."""
        self.world.network.hang_up(self, node)

    def send(self, node: Node, frame: bytes) -> None:
        """See ports.Wire."""
        if self.fuse:
            self.burn()
        durability = self._durability()
        if durability is not None:
            durability.check_frame(node, frame)
        self.world.traffic.send(self, node, frame)

    def lose_incoming(self, node: Node) -> None:
        """Note that the link from the other node is gone. Within a turn."""
        dispatch.incoming_lost(self.broker, node)

    # -- files -------------------------------------------------------------------------------------

    def write_nodes(self) -> None:
        """Write the nodes file, which a kill must not undo, before other nodes are told."""
        if self.fuse:
            self.burn()
        self._saves += 1
        self._latest = (self._saves, self.membership.dump())

    def save_at_end(self) -> None:
        """Write the nodes file at an orderly end."""
        self._saves += 1
        self._saved_number, self.nodes_file = self._saves, self.membership.dump()

    def _save_nodes(self) -> None:
        self.save_nodes(None)

    def save_nodes(self, done: Callable[[OSError | None], None] | None) -> None:
        """Write the nodes file as it is now. The write ends a moment later."""
        text = self.membership.dump()
        span_ms = 0 if self.world.is_prompt else self.rng.randrange(SAVE_MS_MAX)
        self._saves += 1
        self.world.later(span_ms, self._saved, self.runs, self._saves, text, done)

    def _saved(self, run: int, number: int, text: str, done: Callable[[OSError | None], None] | None) -> None:
        if run != self.runs or not self.is_up:
            return
        if self.is_stopped:
            self.held.append((self._saved, (run, number, text, done)))
            return
        if number > self._saved_number:
            self._saved_number = number
            self.nodes_file = text
        if done is not None:
            self.open()
            done(None)
            self.close()

    def _notice(self, line: str) -> None:
        self.world.trace.write(self.world.now_ms, f"{self.name}  {line}")
