"""Event storage: the directory of the event log, the threads that work on it, and the line process.

The directory is inside `dir` and named after the nodes file. Each node has its own nodes file, while nodes without a
journal may share all else. The directory has one owner, like the journal's (persistence/files.py), because nodes files
of the same name may be in different directories.

Events never prevent a start. If the directory can't be opened, or the disk doesn't answer within START_SECONDS, the
node serves without a log, and storage/event_log_service.py goes on trying.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from disque_py.server.line_process import LineProcess
from disque_py.server.log import log, tell, write
from disque_py.storage.event_log_service import EventLogService
from persistence.file_disk import FileDisk
from persistence.files import Files, JournalInUseError

if TYPE_CHECKING:
    from disque_py.config.settings import Settings
    from disque_py.server.turn_loop import TurnLoop
    from persistence.disk import Disk

# A start doesn't wait longer for the disk.
START_SECONDS: Final = 3.0
# At the end, the last events have this long to be written, and after that the threads of the disk to end.
CLOSE_SECONDS: Final = 2.0
LANES_SECONDS: Final = 1.0


class EventStorage:
    """One node's directory of events. `service` writes there and reads from it."""

    def __init__(self, settings: Settings, turns: TurnLoop) -> None:
        self.directory = events_directory(settings)
        self._turns = turns
        self._files: Files | None = None
        self._disk: FileDisk | None = None
        self._lines = LineProcess(turns.loop, log)
        self.service = EventLogService(
            turns.driver,
            self._open_disk,
            self._close_disk,
            lambda: os.path.isdir(self.directory),
            write,
            self._lines,
        )

    async def open(self) -> None:
        """Open the log if events are on, else mark an old one so that it is never continued."""
        opened = self._turns.loop.create_future()
        self._turns.driver.begin()
        self.service.start(lambda: None if opened.done() else opened.set_result(None))
        try:
            await asyncio.wait_for(opened, START_SECONDS)
        except TimeoutError:
            tell("events-disk-silent", directory=self.directory)

    async def close(self) -> None:
        """Write all events if the disk takes them, because the node ends."""
        closed = self._turns.loop.create_future()
        self.service.close(lambda: None if closed.done() else closed.set_result(None))
        try:
            await asyncio.wait_for(closed, CLOSE_SECONDS)
        except TimeoutError:
            tell("events-cut-short")
        self.abandon()

    def abandon(self) -> None:
        """Release the directory and the threads without writing."""
        self._lines.close()
        self._close_disk()

    def _open_disk(self) -> Disk:
        try:
            self._files = Files(self.directory)
        except JournalInUseError:
            raise  # Its text names the directory.
        except OSError as error:
            raise OSError(error.errno, f"{self.directory}: {error.strerror or error}") from None
        self._disk = FileDisk(self._files, self._turns.loop.call_soon_threadsafe)
        return self._disk

    def _close_disk(self) -> None:
        disk, files = self._disk, self._files
        self._disk = self._files = None
        if disk is not None and files is not None:
            disk.close(LANES_SECONDS)
            files.close()


def events_directory(settings: Settings) -> str:
    """Return the directory of the event log. Call this when `dir` is the working directory."""
    return os.path.abspath(os.path.basename(settings.cluster_config_file) + ".events")
