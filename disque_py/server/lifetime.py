"""The life of one node: everything is made and connected here, then it serves, then it ends in an orderly way.

The order at start: what may fail comes before what others can see. The nodes file is locked, the ports are taken, the
node's id is on disk; then other nodes may connect, and clients last. A node that can't start raises StartError and has
changed nothing but its own new nodes file.

The end: nobody new is let in, clients get what was written for them (END_SECONDS at most; an ADDJOB that waits for
copies may still be answered), the links are closed, the nodes file is saved.

What is our own mistake (an exception nobody expected) costs the connection on whose behalf it happened, and is logged
with its traceback. If it happened between turns the broker can't be trusted any more, and the node stops with status 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from random import Random
from typing import Any, Final

from cluster_bus.bus import Bus, bind_addresses, is_loopback
from cluster_bus.handshake import is_host
from cluster_bus.link import UNSENT_BYTES_MAX
from cluster_bus.membership import Membership
from cluster_bus.node import ID_BYTES, Node
from cluster_bus.nodes_file import NodeLine
from cluster_bus.outgoing import Outgoing
from disque_py import __version__, inputs
from disque_py.config.settings import Settings
from disque_py.core.broker import Broker
from disque_py.driver import Driver
from disque_py.remembering import Remembering
from disque_py.server import tls
from disque_py.server.chores import Chores
from disque_py.server.clock import SystemClock
from disque_py.server.cluster_side import ClusterSide
from disque_py.server.collector import tune_collector
from disque_py.server.connection import ClientConnection, is_protected
from disque_py.server.event_place import EventPlace
from disque_py.server.host import NO_RESTART, Ending, ProcessHost
from disque_py.server.listeners import Listeners, backlog_limit
from disque_py.server.log import log, log_mistake, tell, write
from disque_py.server.nodes_keeper import NodesKeeper
from disque_py.server.scribe import Scribe
from disque_py.server.settings_file import Configuration
from disque_py.server.shell import Shell
from disque_py.server.spill_place import SpillPlace
from disque_py.server.start_error import StartError
from disque_py.server.systemd import Notifier
from disque_py.server.watchdog import Watchdog
from persistence.file_disk import FileDisk
from persistence.files import Files, JournalInUseError
from persistence.placing import has_journal
from persistence.trouble import FULL_DISK

# How long clients may take to fetch their last replies, and ADDJOBs to get their copies, when the node ends.
END_SECONDS: Final = 2.0
LOOK_AGAIN_SECONDS: Final = 0.02
# How long a disk in trouble has at the end before the node gives up on it.
JOURNAL_SECONDS: Final = 10.0
LANES_SECONDS: Final = 1.0

SEED_BYTES: Final = 32
MAXMEMORY_LOW: Final = 1_000_000
# The largest body that any node may be set to accept (proto-max-bulk-len, which is live), and the job around it: what
# another node took from its client must not be refused here.
FRAME_BYTES_MAX: Final = (512 << 20) + (1 << 20)


class Lifetime:
    """One node, from start to end; `run` is called once."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        may_restart: bool,
        on_taken: Callable[[], None] = lambda: None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        settings = configuration.settings
        self._configuration = configuration
        self._settings = settings
        self._on_taken = on_taken  # The nodes file and the ports are ours: no other node runs in our place.
        self._on_ready = on_ready
        self._scribe = Scribe()
        # A link would be replaced, and the file it leads to, perhaps on a disk that outlives this one, left old.
        self._keeper = NodesKeeper(os.path.realpath(settings.cluster_config_file), self._scribe, log)
        self._host = ProcessHost(configuration, self._scribe, self._keeper, self.stop, may_restart=may_restart)
        self._listeners = Listeners(settings)
        self._notifier = Notifier(settings.supervised)
        self._shell: Shell
        self._broker: Broker
        self._bus: Bus
        self._membership: Membership
        self._end: asyncio.Future[Ending]
        self._interrupts = 0
        self._is_known = False  # The nodes file has this node's id.
        self._remembering: Remembering
        self._spill: SpillPlace
        self._events: EventPlace
        self._disk: FileDisk | None = None
        self._files: Files | None = None

    async def run(self) -> Ending:
        """Start, serve until `stop`, end. StartError."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_exception)
        self._end = loop.create_future()
        self._shell = Shell(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            lines = self._keeper.open()
            self._is_known = bool(lines)
            self._listeners.bind()
            self._on_taken()
            side = self._build(lines)
            try:
                await self._start(side)
            except StartError:
                await self._bus.close()
                self._events.abandon()
                raise
        except StartError:
            self._listeners.close()
            self._keeper.close()
            raise
        ending = await self._end
        await self._finish(ending)
        return ending

    def stop(self, ending: Ending) -> None:
        """End after this turn; the first call counts, and whatever comes before the start is over, too."""
        if not self._end.done():
            self._end.set_result(ending)

    # -- start -------------------------------------------------------------------------------------

    async def _start(self, side: ClusterSide) -> None:
        """Open it, to other nodes and then to clients, which wait or hear LOADING until the journal was read."""
        settings = self._settings
        try:
            # The id is ours for ever from here on: nobody may see it before it is on disk.
            self._keeper.save_now()
        except OSError as error:
            if error.errno not in FULL_DISK or not self._is_known:
                raise StartError(f"can't write the nodes file {self._keeper.path}: {error.strerror or error}") from None
            self._keeper.save()  # It has our id already: there is no hurry.
        # From the first message on: a copy that is confirmed before the journal is open would be in no journal.
        self._broker.is_loading = settings.appendonly or settings.aof_enqueue_jobs_once
        self._broker.loading_wait_until_ms = self._broker.now_ms + 1000 * settings.loading_wait
        await self._open_bus()
        self._host.bus = self._bus
        self._host.listeners = self._listeners
        self._host.watchdog = Watchdog(self._shell.loop, log)
        await self._events.open()
        await self._listeners.serve(lambda: ClientConnection(self._shell))
        self._warn()
        side.meet_seeds()
        self._shell.start()
        Chores(self._shell, self._notifier).start()
        tune_collector()
        self._open_spill()
        await self._load()
        if self._end.done():
            return  # Nobody was served: it was told to stop while it read.
        self._events.keeper.started("memory lost" if self._remembering.last_load is None else "journal loaded")
        tune_collector()
        for name in self._listeners.names:
            tell("ready", address=name)
        self._notifier.ready()
        self._on_ready()

    async def _load(self) -> None:
        """Read the journal, if there is to be one; StartError."""
        loaded: asyncio.Future[str] = self._shell.loop.create_future()

        def over(reason: str) -> None:
            if not loaded.done():
                loaded.set_result(reason)

        self._shell.driver.begin()
        try:
            self._refuse_foreign_journal()
            self._remembering.start(lambda: over(""), over)
        except OSError as error:
            where = "" if isinstance(error, JournalInUseError) else f"{journal_directory(self._settings)}: "
            raise StartError(f"can't open the journal: {where}{error.strerror or error}") from None
        ended = asyncio.ensure_future(asyncio.shield(self._end))
        await asyncio.wait((loaded, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if loaded.done() and loaded.result():
            raise StartError(loaded.result())

    def _open_spill(self) -> None:
        """Where bodies go when memory is short; StartError. What a crash left is removed even if they stay here."""
        settings = self._settings
        if not settings.maxmemory_spill and not self._spill.is_there:
            return
        try:
            self._spill.open()
        except OSError as error:
            if settings.maxmemory_spill:
                raise StartError(f"can't open {self._spill.directory}: {error.strerror or error}") from None

    def _refuse_foreign_journal(self) -> None:
        """The original's file, and none of ours: starting empty would look like losing everything."""
        settings = self._settings
        wanted = settings.appendonly or settings.aof_enqueue_jobs_once
        path = os.path.abspath(settings.appendfilename)
        if wanted and os.path.isfile(path) and not has_journal(journal_directory(settings)):
            raise StartError(
                f"{path} is a journal of Disque's and there is none of disque-py's yet: import it with"
                f" `disque-check-journal import {path} {journal_directory(settings)}`, or move it away to start empty"
            )

    def _open_disk(self) -> FileDisk:
        """The journal's directory, ours alone; OSError."""
        self._files = Files(journal_directory(self._settings))
        self._host.backups_directory = self._files.directory.removesuffix(".d") + ".backups"
        self._disk = FileDisk(self._files, self._shell.loop.call_soon_threadsafe)
        return self._disk

    def _close_disk(self) -> None:
        """Give the directory up; nothing but a removal of old files can be under way."""
        disk, files = self._disk, self._files
        self._disk = self._files = None
        if disk is not None and files is not None:
            disk.close(LANES_SECONDS)
            files.close()

    def _build(self, lines: list[NodeLine]) -> ClusterSide:
        """The node out of its parts; nothing is open yet."""
        settings = self._settings
        shell = self._shell
        rng = Random(os.urandom(SEED_BYTES))
        outgoing = Outgoing()
        me = myself(settings, lines[0].id if lines else rng.randbytes(ID_BYTES))
        tell("start", version=__version__, node=me.name.decode(), pid=os.getpid())
        membership = self._membership = Membership(
            me,
            outgoing,
            rng,
            node_timeout_ms=settings.cluster_node_timeout,
            announced_host=settings.cluster_announce_ip,
        )
        self._keeper.nodes = lambda: list(membership.nodes.values())
        self._keeper.text = membership.dump
        side = ClusterSide(shell, membership, settings.cluster_seeds)
        bus_server_tls, bus_client_tls = tls.bus_contexts(settings)
        self._bus = Bus(
            side,
            secret=settings.cluster_secret.encode("utf-8", "surrogateescape"),
            frame_bytes_max=FRAME_BYTES_MAX,
            unsent_bytes_max=UNSENT_BYTES_MAX + settings.proto_max_bulk_len,  # One large job is no stalled node.
            server_tls=bus_server_tls,
            client_tls=bus_client_tls,
            log=_log_of_bus,
        )
        self._broker = Broker(membership, outgoing, settings, rng, self._host)
        inputs.install(self._broker, settings.rename_command)
        shell.driver = Driver(
            self._broker,
            membership,
            outgoing,
            self._bus,
            SystemClock(),
            shell.on_turn,
            self._keeper.save,
            write,
        )
        shell.driver.write_nodes = self._keeper.write
        self._host.begin_turn = shell.driver.begin
        self._remembering = self._host.remembering = Remembering(shell.driver, self._open_disk, self._close_disk, write)
        self._spill = self._host.spill = SpillPlace(settings, shell)
        self._events = self._host.events = EventPlace(settings, shell)
        shell.driver.begin()
        membership.load(lines)
        membership.resume(self._keeper.notes)
        return side

    async def _open_bus(self) -> None:
        settings = self._settings
        hosts = bind_addresses(
            settings.bind, has_secret=bool(settings.cluster_secret), protected_mode=settings.protected_mode
        )
        try:
            await self._bus.listen(hosts, settings.bus_port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise StartError(
                f"can't accept other nodes on port {settings.bus_port} of {', '.join(hosts)}: {reason}"
            ) from None

    def _warn(self) -> None:
        """What is allowed, and yet perhaps not meant."""
        settings = self._settings
        if self._configuration.is_default:
            tell("no-config-file")
        for name in self._configuration.ignored:
            tell("environment-ignored", variable=name)
        if not self._listeners.names:
            tell("no-listener")
        if is_protected(settings):
            tell("protected")
        if settings.protected_mode and not settings.cluster_secret and not all(map(is_loopback, settings.bind or [""])):
            tell("no-cluster-secret")
        if 0 < settings.maxmemory < MAXMEMORY_LOW:
            tell("maxmemory-low", bytes=settings.maxmemory)
        limit = backlog_limit()
        if 0 < limit < settings.tcp_backlog:
            tell("backlog-cut", wanted=settings.tcp_backlog, limit=limit)

    # -- serving -----------------------------------------------------------------------------------

    def _on_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                tell("second-interrupt")
                os._exit(1)
        tell("signal", signal=number.name)
        self.stop(Ending())

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What the loop caught; see the module."""
        error = context.get("exception")
        message = context.get("message", "")
        if error is None or isinstance(error, OSError):  # A connection's trouble, TLS included.
            tell("connection-trouble", context=message, reason=str(error))
        elif "transport" in context or "protocol" in context:
            log_mistake(error, consequence="the connection is closed", context=message)
        else:
            log_mistake(error, consequence="the node stops", context=message)
            self.stop(Ending(status=1, is_graceful=False))

    # -- end ---------------------------------------------------------------------------------------

    async def _finish(self, ending: Ending) -> None:
        self._notifier.stopping()
        self._listeners.close()
        shell = self._shell
        if ending.is_graceful:
            for connection in list(shell.connections.values()):
                connection.close(after_replies=True)
            for _ in range(round(END_SECONDS / LOOK_AGAIN_SECONDS)):
                if not shell.connections:
                    break
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
        shell.stop()
        for connection in list(shell.connections.values()):
            connection.close(after_replies=False)
        if ending.is_graceful:
            await self._close_journal()
            await self._events.close()
        else:
            self._events.abandon()
        self._spill.close()
        await asyncio.sleep(0)  # What the last turn wrote to links and clients leaves.
        await self._bus.close()
        self._scribe.close()
        if ending.is_graceful:
            try:
                self._keeper.save_now()
            except OSError as error:
                tell("nodes-file-lost", path=self._keeper.path, reason=error.strerror or str(error))
        self._host.watchdog.watch(0)  # Its timer would outlive the program, and end the one that takes its place.
        self._keeper.close()
        is_last = ending.restart_delay_ms == NO_RESTART
        tell("stopped" if is_last else "stopped-for-restart")

    async def _close_journal(self) -> None:
        """Everything that was acknowledged gets on disk; a disk that can't has some seconds to recover."""
        loop = self._shell.loop
        deadline_s = loop.time() + JOURNAL_SECONDS
        while True:
            closed: asyncio.Future[OSError | None] = loop.create_future()
            self._remembering.close(closed.set_result)
            try:
                failure = await asyncio.wait_for(asyncio.shield(closed), max(0.1, deadline_s - loop.time()))
            except TimeoutError:
                failure = OSError("the disk doesn't answer")
            if failure is None:
                return
            if loop.time() >= deadline_s:
                tell("journal-not-closed", reason=str(failure))
                return
            journal = self._remembering.journal
            if journal is not None:
                self._shell.driver.begin()
                journal.tick()
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


def _log_of_bus(_: str, text: str) -> None:
    tell("bus", text=text)


def journal_directory(settings: Settings) -> str:
    """Where the journal is: beside the nodes file."""
    return os.path.abspath(settings.appendfilename + ".d")


def myself(settings: Settings, node_id: bytes) -> Node:
    """This node, as it presents itself to others."""
    if not is_host(settings.cluster_announce_ip):
        raise StartError(f"cluster-announce-ip: '{settings.cluster_announce_ip}' is not an address")
    me = Node(
        node_id,
        settings.cluster_announce_ip,
        settings.cluster_announce_port or settings.port or settings.tls_port,
        settings.cluster_announce_bus_port or settings.bus_port,
    )
    if settings.tls_port:
        announced = settings.cluster_announce_port if not settings.port else 0
        me.tls_port = settings.cluster_announce_tls_port or announced or settings.tls_port
    me.version = __version__
    return me
