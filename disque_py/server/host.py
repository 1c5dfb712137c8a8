"""ProcessHost: the process as administrative commands see it (ports.Host).

It belongs to the server, and asks it to stop. Functions that need no server (memory, CPU, dying on purpose) are in
process.py. The server sets the bus, the listeners and the function that opens a turn when it has made them, before
clients can connect. The file writer's thread writes files. The caller gets the outcome within a new turn.
"""

from __future__ import annotations

import os
import platform
import struct
import sys
import time
import zlib
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from disque_py import __version__
from disque_py.config.settings import DirectiveError
from disque_py.server import log, process, settings_effects, settings_file, time_zones, user_files
from disque_py.storage.queue_settings_file import QUEUE_SETTINGS
from persistence.backup import NODES_NAME, SETTINGS_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster_bus.bus import Bus
    from disque_py.core.queue_settings import Item
    from disque_py.server.event_storage import EventStorage
    from disque_py.server.file_writer import FileWriter
    from disque_py.server.framed_store import FramedStore
    from disque_py.server.listeners import Listeners
    from disque_py.server.nodes_file_saver import NodesFileSaver
    from disque_py.server.settings_file import Configuration
    from disque_py.server.spill_storage import SpillStorage
    from disque_py.server.user_files import AuditLog
    from disque_py.server.watchdog import Watchdog
    from disque_py.storage.journal_service import JournalService

NO_RESTART: Final = -1
UVLOOP_VERSION: Final = version("uvloop")


class Ending(NamedTuple):
    """How a process ends: with an exit status, or with a restart after `restart_delay_ms` if that is not negative.

    is_graceful   clients get their written replies, and the nodes file is saved; else sockets are just closed
    """

    status: int = 0
    restart_delay_ms: int = NO_RESTART
    is_graceful: bool = True


class ProcessHost:
    """ports.Host of a server. `stop` may be called at any time, and ends the server soon."""

    bus: Bus
    listeners: Listeners
    watchdog: Watchdog
    journal_service: JournalService
    spill: SpillStorage
    events: EventStorage
    begin_turn: Callable[[], None]
    audit_log: AuditLog
    backups_directory = ""
    acl_path = ""

    def __init__(
        self,
        configuration: Configuration,
        file_writer: FileWriter,
        saver: NodesFileSaver,
        queue_settings: FramedStore,
        votes: FramedStore,
        stop: Callable[[Ending], None],
        *,
        may_restart: bool,
    ) -> None:
        self._configuration = configuration
        self._file_writer = file_writer
        self._saver = saver
        self._queue_settings = queue_settings
        self._votes = votes
        self._stop = stop
        self._may_restart = may_restart
        self._executable = os.path.abspath(sys.argv[0])
        self._fields: list[tuple[str, str]] = []

    # -- numbers -----------------------------------------------------------------------------------

    def rss_bytes(self) -> int:
        """Return the resident memory."""
        return process.rss_bytes()

    def cpu_seconds(self) -> tuple[float, float, float, float]:
        """Return the CPU time used: system, user, children's system, children's user."""
        return process.cpu_seconds()

    def info_fields(self) -> list[tuple[str, str]]:
        """Return the fields of ports.Host.info_fields. They don't change while the process lives."""
        if not self._fields:
            settings = self._configuration.settings
            build = f"{__version__} {process.BUILD} {sys.version} uvloop {UVLOOP_VERSION}"
            system = platform.uname()
            self._fields = [
                ("disque_build_id", f"{zlib.crc32(build.encode()):016x}"),
                ("os", f"{system.system} {system.release} {system.machine}"),
                ("arch_bits", str(8 * struct.calcsize("P"))),
                ("multiplexing_api", "epoll" if sys.platform == "linux" else "kqueue"),
                ("gcc_version", platform.python_compiler().split()[-1]),
                ("process_id", str(os.getpid())),
                ("tcp_port", str(settings.port or settings.tls_port)),
                ("executable", self._executable),
                ("config_file", self._configuration.path),
                ("mem_allocator", os.environ.get("PYTHONMALLOC") or "pymalloc"),
                ("bus_port", str(self.bus.port)),
                ("build", process.BUILD),
                ("python_version", platform.python_version()),
                ("uvloop_version", UVLOOP_VERSION),
            ]
        return self._fields

    def links_rejected(self) -> dict[str, int]:
        """Return reason -> number of bus links closed for it."""
        return dict(self.bus.rejected)

    # -- settings and files ------------------------------------------------------------------------

    def apply_setting(self, name: str) -> None:
        """Put a changed directive into effect on the process. DirectiveError."""
        settings = self._configuration.settings
        settings_effects.apply(name, settings)
        if name == "tcp-keepalive":
            self.listeners.set_keepalive(settings.tcp_keepalive)
        elif name == "watchdog-period":
            self.watchdog.watch(settings.watchdog_period)
        elif name == "appendonly":
            try:
                self.journal_service.switch()
            except OSError as error:
                raise DirectiveError(f"ERR Unable to turn on AOF: {error.strerror or error}") from None
        elif name == "appendfsync":
            self.journal_service.set_policy()
            self.events.service.set_limits()
        elif name == "events":
            self.events.service.switch()
        elif name in ("events-max-bytes", "events-max-age"):
            self.events.service.set_limits()
        elif name == "maxmemory-spill":
            try:
                self.spill.switch()
            except OSError as error:
                raise DirectiveError(f"ERR Can't open {self.spill.directory}: {error.strerror or error}") from None
        log.tell("config-set", directive=name, value=settings.get_text(name))

    def has_config_file(self) -> bool:
        """Return whether there is a config file. Standard input and the command line are none."""
        return bool(self._configuration.path)

    def rewrite_config(self, done: Callable[[OSError | None], None]) -> None:
        """Rewrite the config file (CONFIG REWRITE). Rewrites happen in the order of the calls."""
        self._file_writer.write(settings_file.rewriting(self._configuration), self._in_turn(done))

    def save_nodes(self, done: Callable[[OSError | None], None]) -> None:
        """Save the nodes file (CLUSTER SAVECONFIG)."""
        self._saver.save_then(self._in_turn(done))

    def write_queue_settings(self, items: list[Item], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """Add settings to their file, or replace all others by them."""
        write = partial(self._queue_settings.write, items, is_void=is_void)
        self._file_writer.write(write, self._in_turn(done))

    def write_votes(self, items: list[tuple[int, Any]], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """Add items of a voter's memory to their file, or replace all others by them."""
        write = partial(self._votes.write, items, is_void=is_void)
        self._file_writer.write(write, self._in_turn(done), is_awaited=True)

    def write_acl_file(self, text: bytes, done: Callable[[OSError | None], None]) -> None:
        """Replace the ACL file."""
        self._file_writer.write(partial(user_files.write_acl_file, self.acl_path, text), self._in_turn(done))

    def read_acl_file(self, take: Callable[[bytes], None], done: Callable[[OSError | None], None]) -> None:
        """Read the ACL file. A file that is missing is an error: it has been written at the first change of a user."""

        def read() -> None:
            take(user_files.read_acl_file(self.acl_path, may_be_missing=False))

        self._file_writer.write(read, self._in_turn(done))

    def audit(self, line: str) -> None:
        """Add a line to the audit log."""
        self.audit_log.write(line)

    def random_bytes(self, count: int) -> bytes:
        """Return bytes of the system's generator."""
        return os.urandom(count)

    def time_zone(self, name: str) -> Callable[[int], int] | None:
        """Return the offsets of a time zone."""
        return time_zones.time_zone(name)

    def _in_turn(self, done: Callable[[OSError | None], None]) -> Callable[[OSError | None], None]:
        def on_done(failure: OSError | None) -> None:
            self.begin_turn()
            done(failure)

        return on_done

    # -- journal -----------------------------------------------------------------------------------

    def journal_fields(self) -> list[tuple[str, str | int]]:
        """Return the fields of INFO persistence."""
        return self.journal_service.fields()

    def nodes_file_trouble(self) -> str:
        """Return the system's error if the nodes file can't be written now; otherwise an empty text."""
        return self._saver.trouble

    def rewrite_journal(self) -> bool:
        """Start BGREWRITEAOF. OSError."""
        return self.journal_service.rewrite()

    def backup_journal(
        self, name: str, settings: list[Item], done: Callable[[tuple[str, int, int] | OSError], None]
    ) -> None:
        """Run JOURNAL BACKUP, into a directory beside the journal."""
        beside = {NODES_NAME: self._saver.text().encode()}

        def encode() -> None:
            if settings:
                beside[SETTINGS_NAME] = QUEUE_SETTINGS.rewritten(settings)

        def encoded(error: OSError | None) -> None:
            if error is not None:
                done(error)
            else:
                self.journal_service.backup(f"{self.backups_directory}/{name}", beside, done)

        self._file_writer.write(encode, self._in_turn(encoded))  # In its thread: there may be many settings.

    def reload_journal(self, done: Callable[[OSError | None], None]) -> None:
        """Run DEBUG LOADAOF. LookupError."""
        self.journal_service.reload(done)

    def shutdown_refusal(self) -> str:
        """Return why SHUTDOWN has to be refused; empty if it need not."""
        return self.journal_service.refusal()

    def rewrite_for_shutdown(self, done: Callable[[OSError | None], None]) -> None:
        """Write all jobs into a fresh journal (SHUTDOWN REWRITE-AOF)."""
        self.journal_service.rewrite_for_shutdown(lambda error: done(OSError(error) if error else None))

    # -- ending ------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Stop in an orderly way after this turn."""
        self._stop(Ending())

    def restart(self, delay_ms: int, *, graceful: bool) -> None:
        """Stop and run the same program again. LookupError if the configuration can't be read again."""
        if not self._may_restart:
            raise LookupError("the configuration came from standard input, which can't be read twice")
        self._stop(Ending(restart_delay_ms=delay_ms, is_graceful=graceful))

    def crash(self, how: str) -> None:
        """End the process on purpose."""
        process.crash(how)

    def sleep(self, seconds: float) -> None:
        """Block the whole process."""
        time.sleep(seconds)

    def log(self, level: str, text: str) -> None:
        """Write one line to the log."""
        log.log(level, text)
