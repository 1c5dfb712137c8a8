"""The life of one node: its parts are made and connected here, then it serves, then it ends in an orderly way.

At the start, steps that may fail come before steps that others can see. The nodes file is locked, the ports are taken,
and the node's id is written. Then other nodes may connect, and clients last. A node that can't start raises StartError,
and has changed nothing but its own new nodes file.

At the end no new client is let in. Clients get their written replies, within END_SECONDS; an ADDJOB that waits for
copies may still be answered. A new journal gets all jobs. Then the links are closed, and the nodes file is saved.

Our own mistake, an unexpected exception, ends the connection for which the code ran, and is logged with its traceback.
If it happened between turns, the broker can't be trusted any more, and the node stops with status 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from random import Random, SystemRandom
from typing import Any, Final, cast

from cluster_bus.bus import Bus, is_loopback
from cluster_bus.handshake import is_host
from cluster_bus.link import UNSENT_BYTES_MAX
from cluster_bus.membership import Membership
from cluster_bus.node import ID_BYTES, Node
from cluster_bus.nodes_file import NodeLine
from cluster_bus.outgoing import Outgoing
from disque_py import __version__
from disque_py.commands import user_changes
from disque_py.config.settings import Settings
from disque_py.core import settings_sync, voting
from disque_py.core.broker import Broker
from disque_py.core.users import Catalog, User, read_lines
from disque_py.log_lines import DEBUG
from disque_py.node import dispatch
from disque_py.node.turn import Driver
from disque_py.server import tls
from disque_py.server.bus_adapter import BusAdapter
from disque_py.server.clock import CLOCK_COARSE_MS, SystemClock, stopwatch_ns
from disque_py.server.collector import tune_collector
from disque_py.server.connection import ClientConnection, is_protected
from disque_py.server.event_storage import EventStorage
from disque_py.server.file_writer import FileWriter
from disque_py.server.framed_store import FramedStore
from disque_py.server.host import NO_RESTART, Ending, ProcessHost
from disque_py.server.housekeeping import Housekeeping
from disque_py.server.listeners import Listeners, backlog_limit, bus_hosts, bus_refused
from disque_py.server.log import log, log_mistake, tell, write
from disque_py.server.nodes_file_saver import NodesFileSaver
from disque_py.server.settings_file import Configuration
from disque_py.server.spill_storage import SpillStorage
from disque_py.server.start_error import ACL_FILE, AUDIT_LOG, JOURNAL, SPILL, StartError
from disque_py.server.systemd import Notifier
from disque_py.server.turn_loop import TurnLoop
from disque_py.server.user_files import AuditLog, read_acl_file
from disque_py.server.watchdog import Watchdog
from disque_py.storage.journal_service import JournalService
from disque_py.storage.queue_settings_file import QUEUE_SETTINGS
from disque_py.storage.votes_file import VOTES
from persistence.disk_errors import FULL_DISK
from persistence.file_disk import FileDisk
from persistence.files import Files, JournalInUseError
from persistence.install import has_journal

# At the end, clients have this long to fetch their last replies, and ADDJOBs to get their copies.
END_SECONDS: Final = 2.0
LOOK_AGAIN_SECONDS: Final = 0.02
# At the end, a disk with errors has this long to recover.
JOURNAL_SECONDS: Final = 10.0
# After that, the threads of the disk have this long to end.
LANES_SECONDS: Final = 1.0

SEED_BYTES: Final = 32
MAXMEMORY_LOW: Final = 1_000_000
# The largest body that any node may be set to accept (proto-max-bulk-len, which is live), and the job around it. A job
# that another node accepted must not be refused here.
FRAME_BYTES_MAX: Final = (512 << 20) + (1 << 20)


class NodeLifecycle:
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
        self._on_taken = on_taken  # Called when the nodes file and the ports are ours: no other node uses them.
        self._on_ready = on_ready
        self._file_writer = FileWriter()
        self._saver, self._queue_settings, self._votes = cluster_files(settings, self._file_writer, log)
        self._host = ProcessHost(
            configuration,
            self._file_writer,
            self._saver,
            self._queue_settings,
            self._votes,
            self.stop,
            may_restart=may_restart,
        )
        self._listeners = Listeners(settings)
        self._notifier = Notifier(settings.supervised)
        self._turns: TurnLoop
        self._broker: Broker
        self._bus: Bus
        self._membership: Membership
        self._end: asyncio.Future[Ending]
        self._interrupts = 0
        self._is_known = False  # The nodes file has this node's id.
        self._journal_service: JournalService
        self._spill: SpillStorage
        self._events: EventStorage
        self._disk: FileDisk | None = None
        self._files: Files | None = None

    async def run(self) -> Ending:
        """Start, serve until `stop`, end. StartError."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_exception)
        self._end = loop.create_future()
        self._turns = TurnLoop(loop, self._file_writer)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            lines = self._saver.open()
            self._is_known = bool(lines)
            queue_settings = self._queue_settings.load()
            votes = self._votes.load()
            self._listeners.bind()
            self._on_taken()
            adapter = self._build(lines)
            self._load_users()
            settings_sync.start(self._broker, queue_settings)
            user_changes.join(self._broker)
            voting.start(self._broker, votes, is_repaired=self._votes.is_repaired)
            try:
                await self._start(adapter)
            except StartError:
                await self._bus.close()
                self._events.abandon()
                raise
        except StartError:
            self._listeners.close()
            self._saver.close()
            raise
        ending = await self._end
        await self._finish(ending)
        return ending

    def stop(self, ending: Ending) -> None:
        """End after this turn. The first call counts, also during the start."""
        if not self._end.done():
            self._end.set_result(ending)

    # -- start -------------------------------------------------------------------------------------

    async def _start(self, adapter: BusAdapter) -> None:
        """Open the node to other nodes, then to clients. These wait or get -LOADING until the journal is read."""
        settings = self._settings
        try:
            # From here on the id is ours for ever: no other node may see it before it is on disk.
            self._saver.save_now()
        except OSError as error:
            if error.errno not in FULL_DISK or not self._is_known:
                raise self._saver.write_refused(error) from None
            self._saver.save()  # The file has our id already, so the save may take its time.
        # Set before the first message: a copy that is confirmed before the journal is open would be in no journal.
        self._broker.is_loading = settings.appendonly or settings.aof_enqueue_jobs_once
        self._broker.waits.loading_until_ms = self._broker.now_ms + 1000 * settings.loading_wait
        await self._open_bus()
        self._host.bus = self._bus
        self._host.listeners = self._listeners
        self._host.watchdog = Watchdog(self._turns.loop, log)
        await self._events.open()
        await self._listeners.serve(lambda: cast(asyncio.Protocol, ClientConnection(self._turns)))
        self._warn()
        adapter.meet_seeds()
        self._turns.start()
        Housekeeping(self._turns, self._notifier).start()
        tune_collector()
        self._open_spill()
        await self._load()
        if self._end.done():
            return  # The node was told to stop while it read, and has served no client.
        self._events.service.started("memory lost" if self._journal_service.last_load is None else "journal loaded")
        tune_collector()
        for name in self._listeners.names:
            tell("ready", address=name)
        self._notifier.ready()
        self._on_ready()

    async def _load(self) -> None:
        """Read the journal if the settings ask for it. StartError."""
        loaded: asyncio.Future[str] = self._turns.loop.create_future()

        def over(reason: str) -> None:
            if not loaded.done():
                loaded.set_result(reason)

        self._turns.driver.begin()
        try:
            refuse_foreign_journal(self._settings)
            refuse_missing_journal(self._settings)
            self._journal_service.start(lambda: over(""), over)
        except OSError as error:
            if isinstance(error, JournalInUseError):
                raise StartError(f"can't open the journal: {error.strerror or error}") from None
            raise JOURNAL.refused(journal_directory(self._settings), error) from None
        ended = asyncio.ensure_future(asyncio.shield(self._end))
        await asyncio.wait((loaded, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if loaded.done() and loaded.result():
            raise journal_not_loaded(self._settings, loaded.result())

    def _load_users(self) -> None:
        """Read the ACL file, and open the audit log. StartError."""
        settings = self._settings
        try:
            self._host.audit_log = AuditLog(settings)
        except OSError as error:
            raise AUDIT_LOG.refused(settings.audit_log, error) from None
        if not settings.aclfile:
            return
        # `dir` may change later, and the file stays where it is.
        self._host.acl_path = os.path.abspath(settings.aclfile)
        user_changes.replace_all(self._broker, users_in_file(settings, self._broker.users.catalog))
        if not os.path.exists(self._host.acl_path):
            tell("acl-file-missing", path=settings.aclfile)

    def _open_spill(self) -> None:
        """Open the spill directory if it is on or a crash left files in it, which are removed. StartError."""
        settings = self._settings
        if not settings.maxmemory_spill and not self._spill.is_there:
            return
        try:
            self._spill.open()
        except OSError as error:
            if settings.maxmemory_spill:
                raise SPILL.refused(self._spill.directory, error) from None

    def _open_disk(self) -> FileDisk:
        """Open the journal's directory for this node alone. OSError."""
        self._files = Files(journal_directory(self._settings))
        self._host.backups_directory = self._files.directory.removesuffix(".d") + ".backups"
        self._disk = FileDisk(self._files, self._turns.loop.call_soon_threadsafe)
        return self._disk

    def _close_disk(self) -> None:
        """Release the directory. At most a removal of old files is under way."""
        disk, files = self._disk, self._files
        self._disk = self._files = None
        if disk is not None and files is not None:
            disk.close(LANES_SECONDS)
            files.close()

    def _build(self, lines: list[NodeLine]) -> BusAdapter:
        """Make the node's parts and connect them. Nothing is open yet."""
        settings = self._settings
        turns = self._turns
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
        self._saver.nodes = lambda: list(membership.table.nodes.values())
        self._saver.text = membership.dump
        adapter = BusAdapter(turns, membership, settings.cluster_seeds)
        bus_server_tls, bus_client_tls = tls.bus_contexts(settings)
        self._bus = Bus(
            adapter,
            secret=settings.cluster_secret.encode("utf-8", "surrogateescape"),
            frame_bytes_max=FRAME_BYTES_MAX,
            unsent_bytes_max=UNSENT_BYTES_MAX + settings.proto_max_bulk_len,  # One large job is no stalled node.
            server_tls=bus_server_tls,
            client_tls=bus_client_tls,
            log=_log_of_bus,
        )
        self._broker = Broker(membership, outgoing, settings, rng, self._host)
        self._broker.schedule.coarse_ms = CLOCK_COARSE_MS
        # A client may know many ids, and must not be able to compute those of other clients (spec US6).
        self._broker.ids.draw_from(SystemRandom())
        dispatch.install(self._broker, settings.rename_command)
        turns.driver = Driver(
            self._broker,
            membership,
            outgoing,
            self._bus,
            SystemClock(),
            turns.on_turn,
            self._saver.save,
            write,
        )
        self._broker.stopwatch_ns = stopwatch_ns
        turns.driver.write_nodes = self._saver.write
        self._host.begin_turn = turns.driver.begin
        self._journal_service = self._host.journal_service = JournalService(
            turns.driver, self._open_disk, self._close_disk, write
        )
        self._spill = self._host.spill = SpillStorage(settings, turns)
        self._events = self._host.events = EventStorage(settings, turns)
        turns.driver.begin()
        membership.load(lines)
        membership.resume(self._saver.notes)
        return adapter

    async def _open_bus(self) -> None:
        settings = self._settings
        try:
            await self._bus.listen(bus_hosts(settings), settings.bus_port)
        except OSError as error:
            if error.errno and error.errno > 0:  # The loop's text has more words around the reason.
                error.strerror = os.strerror(error.errno)
            raise bus_refused(settings, error) from None

    def _warn(self) -> None:
        """Log warnings about settings that are allowed, but perhaps not intended."""
        settings = self._settings
        if self._configuration.is_default:
            tell("no-config-file")
        for name in self._configuration.ignored:
            tell("environment-ignored", variable=name)
        if not self._listeners.names:
            tell("no-listener")
        if is_protected(self._broker):
            tell("protected")
        if settings.protected_mode and not settings.cluster_secret and not all(map(is_loopback, settings.bind or [""])):
            tell("no-cluster-secret")
        refusal = tls.refusal_of_own_certificate(settings)
        if refusal:
            tell("certificate-refused", path=settings.tls_cert_file, reason=refusal)
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
        """Handle an exception that the loop caught (see the module)."""
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
        turns = self._turns
        if ending.is_graceful:
            for connection in list(turns.connections.values()):
                connection.close(after_replies=True)
            for _ in range(round(END_SECONDS / LOOK_AGAIN_SECONDS)):
                if not turns.connections:
                    break
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            await self._fill_journal()
        turns.stop()
        for connection in list(turns.connections.values()):
            connection.close(after_replies=False)
        if ending.is_graceful:
            await self._close_journal()
            await self._events.close()
        else:
            self._events.abandon()
        self._spill.close()
        await asyncio.sleep(0)  # The loop sends the last turn's messages and replies.
        await self._bus.close()
        failure = self._file_writer.close(self._saver.save_now if ending.is_graceful else None)
        if failure is not None:
            tell("nodes-file-lost", path=self._saver.path, reason=failure.strerror or str(failure))
        self._host.watchdog.watch(0)  # Its timer would survive exec, and end the program that is started next.
        self._saver.close()
        is_last = ending.restart_delay_ms == NO_RESTART
        tell("stopped" if is_last else "stopped-for-restart")

    async def _fill_journal(self) -> None:
        """Wait until a journal that was just switched on has all jobs, as long as the disk takes them.

        The clean-shutdown mark says that all jobs are in the journal. SHUTDOWN is refused until then, but a signal
        can't be refused.
        """
        service = self._journal_service
        loop = self._turns.loop
        place = service.place
        moved_s = loop.time()
        while service.is_being_filled and loop.time() < moved_s + JOURNAL_SECONDS:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            if service.place != place:
                place = service.place
                moved_s = loop.time()

    async def _close_journal(self) -> None:
        """Close the journal with all records on disk. A disk in trouble has some seconds to recover."""
        loop = self._turns.loop
        deadline_s = loop.time() + JOURNAL_SECONDS
        while True:
            closed: asyncio.Future[OSError | None] = loop.create_future()
            self._journal_service.close(closed.set_result)
            try:
                failure = await asyncio.wait_for(asyncio.shield(closed), max(0.1, deadline_s - loop.time()))
            except TimeoutError:
                failure = OSError("the disk doesn't answer")
            if failure is None:
                return
            if loop.time() >= deadline_s:
                tell("journal-not-closed", reason=str(failure))
                return
            journal = self._journal_service.journal
            if journal is not None:
                self._turns.driver.begin()
                journal.tick()
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


def _log_of_bus(level: str, text: str) -> None:
    if level == DEBUG:
        tell("connection-trouble", context="bus", reason=text)
    else:
        tell("bus", text=text)


def cluster_files(
    settings: Settings, file_writer: FileWriter, log_line: Callable[[str, str], None]
) -> tuple[NodesFileSaver, FramedStore, FramedStore]:
    """Return the owners of the nodes file, and of the files of queue settings and votes beside it."""
    # The path with symbolic links resolved: a save would replace the link, and leave the linked file unchanged.
    saver = NodesFileSaver(os.path.realpath(settings.cluster_config_file), file_writer, log_line)
    queue_settings = FramedStore(
        f"{saver.path}.queues",
        QUEUE_SETTINGS,
        "queue-settings-torn",
        "Restore the file, or move it away: the other nodes tell this one their settings",
        log_line,
    )
    votes = FramedStore(
        f"{saver.path}.votes",
        VOTES,
        "votes-torn",
        "Restore the file, or move it away: this voter is mute then until every lease is over",
        log_line,
    )
    return saver, queue_settings, votes


def users_in_file(settings: Settings, catalog: Catalog) -> dict[bytes, User]:
    """Return the users of the ACL file; none if there is no file yet. StartError."""
    try:
        return read_lines(read_acl_file(settings.aclfile), catalog)
    except OSError as error:
        raise ACL_FILE.refused(settings.aclfile, error) from None
    except ValueError as error:
        raise StartError(
            f"the ACL file {settings.aclfile} can't be used: {error}. The number before each error is its line."
            " Correct the file, or change aclfile"
        ) from None


def refuse_foreign_journal(settings: Settings) -> None:
    """Refuse to start with the original's journal and none of ours: an empty start would look like a total loss."""
    wanted = settings.appendonly or settings.aof_enqueue_jobs_once
    path = os.path.abspath(settings.appendfilename)
    if wanted and os.path.isfile(path) and not has_journal(journal_directory(settings)):
        raise StartError(
            f"{path} is a journal of Disque, and disque-py has no journal yet: import it with"
            f" `disque-check-journal import {path} {journal_directory(settings)}`, or move it away to start empty"
        )


def refuse_missing_journal(settings: Settings) -> None:
    """Refuse to start without the jobs that `aof-enqueue-jobs-once` asks for.

    The start would set the option to no, so the jobs would not come back either when their directory is there again.
    With `appendonly yes` the first start has no journal yet.
    """
    directory = journal_directory(settings)
    wanted = settings.aof_enqueue_jobs_once and not settings.appendonly
    if wanted and (not os.path.exists(directory) or (os.path.isdir(directory) and not has_journal(directory))):
        raise StartError(
            f"aof-enqueue-jobs-once is yes, and there is no journal {directory}: SHUTDOWN REWRITE-AOF makes one."
            " Put it there, or set aof-enqueue-jobs-once to no to start without jobs"
        )


def journal_not_loaded(settings: Settings, reason: str) -> StartError:
    """Return the error of a journal that can't be read to its end."""
    return StartError(f"the journal {journal_directory(settings)}: {reason}")


def journal_directory(settings: Settings) -> str:
    """Return the directory of the journal, which is beside the nodes file."""
    return os.path.abspath(settings.appendfilename + ".d")


def myself(settings: Settings, node_id: bytes) -> Node:
    """Return this node as it presents itself to others."""
    if not is_host(settings.cluster_announce_ip):
        raise StartError(
            f"cluster-announce-ip: '{settings.cluster_announce_ip}' is not an address:"
            " give an IP address or a host name"
        )
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
    me.datacenter, me.zone = settings.datacenter, settings.zone
    return me
