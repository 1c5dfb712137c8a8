"""The nodes file of a running node: read once, then written when membership asks, without delaying clients.

A save takes two syncs of the disk, so the file writer's thread does it. It writes the table as it was when the save was
requested. All changes during a save lead to one more save. A caller that must know that the file is on disk (CLUSTER
RESET, CLUSTER SAVECONFIG) is called back. Only the start and the end write on the loop, when no client is served. Saves
are numbered, so an older text never replaces a newer one. A failed save is repeated until it works; the table in memory
is right in any case.

Before other nodes learn of a change, the table is written on the loop and without a sync (`write`). The file is small:
that takes some tens of microseconds. So a change survives a kill of the process. A power failure may undo it until the
next save is done.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from cluster_bus.nodes_file import NO_NOTES, NodeLine, NodesFileError, dump, parse, parse_notes
from cluster_bus.nodes_store import NodesFileLockedError, NodesFileStore, crc_of
from disque_py.log_lines import line
from disque_py.server import probes
from disque_py.server.start_error import NODES_FILE, NODES_FILE_WRITE, StartError

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.server.file_writer import FileWriter

RETRY_SECONDS: Final = 2.0
# The most older texts whose checksums are kept, because the file may still have one of them.
FOLLOWED_MAX: Final = 16


class NodesFileSaver:
    """The owner of the file at `path`, from `open` to `close`. `nodes` returns the table to be written.

    trouble   the system's error if the file can't be written now; otherwise empty
    """

    def __init__(self, path: str, file_writer: FileWriter, log: Callable[[str, str], None]) -> None:
        self.path = path
        self._file_writer = file_writer
        self.nodes: Callable[[], list[Node]] = list
        self.text: Callable[[], str] = lambda: dump(self.nodes())
        self.notes = NO_NOTES
        self._log = log
        self._store = NodesFileStore(path)
        self._writing = threading.Lock()
        self._asked = 0
        self._written = 0
        # crc_of the texts that the file may have now, by their numbers; 0: the text at the start.
        self._crcs: dict[int, int] = {}
        self._is_busy = False
        self._is_due = False
        self.trouble = ""

    def open(self) -> list[NodeLine]:
        """Lock the file and read it. `myself` is its first line; there is none at the first start. StartError."""
        return self._opened(self._store.lock)

    def look(self) -> None:
        """Raise the StartError of `open` and of the first save. Nothing is locked or changed."""
        self._opened(lambda: probes.writable(f"{self.path}.lock"))
        try:
            probes.writable(f"{self.path}.new")
        except OSError as error:
            raise self.write_refused(error) from None

    def write_refused(self, error: OSError) -> StartError:
        """Return the error of a start that can't save the file."""
        return NODES_FILE_WRITE.refused(self.path, error)

    def _opened(self, lock: Callable[[], None]) -> list[NodeLine]:
        try:
            lock()
            text = self._store.load()
            return [] if text is None else self._read(text)
        except NodesFileLockedError as error:
            raise StartError(str(error)) from None
        except NodesFileError as error:
            self.close()
            raise StartError(
                f"the nodes file {self.path} can't be used: {error}. Restore it, or move it away to start as a new node"
            ) from None
        except OSError as error:
            self.close()
            # The lock file may be the cause, for example if another user started the node before.
            path = self.path if isinstance(error, FileNotFoundError) else error.filename or self.path
            raise NODES_FILE.refused(path, error) from None

    def _read(self, text: str) -> list[NodeLine]:
        """Read the file, or the newer text of the last process. NodesFileError, OSError."""
        self._crcs[0] = crc_of(text)
        lines = parse(text)
        latest = self._store.load_latest(text)
        if latest is not None:
            try:
                lines = parse(latest)
                text = latest
            except NodesFileError as error:
                self._log("notice", line("nodes-file-latest-lost", path=self.path, reason=str(error)))
        self.notes = parse_notes(text, int(time.time() * 1000))
        return lines

    def write(self) -> None:
        """Write the table before other nodes learn of it. It survives the end of the process when this returns."""
        try:
            self._store.write(self.text(), list(self._crcs.values()))
        except OSError as error:
            self._complain(error)

    def save(self) -> None:
        """Write the table soon, because membership has changed."""
        if self._is_busy:
            self._is_due = True
            return
        self._is_busy = True
        self._is_due = False
        self.save_then(self._on_saved)

    def save_then(self, done: Callable[[OSError | None], None]) -> None:
        """Write the present table. `done` is called on the loop when it is on disk, or with the error."""
        self._file_writer.write(self._prepared_write(), done)

    def save_now(self) -> None:
        """Write the table. It is on disk when this returns. OSError."""
        self._prepared_write()()

    def _prepared_write(self) -> Callable[[], None]:
        self._asked += 1
        text = self.text()
        for number in [number for number in self._crcs if number < self._written]:
            del self._crcs[number]
        while len(self._crcs) >= FOLLOWED_MAX:  # The disk has taken none of them.
            del self._crcs[list(self._crcs)[1]]
        self._crcs[self._asked] = crc_of(text)
        return partial(self._write, self._asked, text)

    def close(self) -> None:
        """Release the file for other processes."""
        self._store.close()

    def _write(self, number: int, text: str) -> None:
        """Write a text: in the file writer's thread, or before and after its life."""
        with self._writing:
            if number > self._written:
                self._store.save(text)
                self._written = number

    def _on_saved(self, failure: OSError | None) -> None:
        if failure is not None:
            self._failed(failure)
            return
        self._is_busy = False
        if self.trouble:
            self.trouble = ""
            self._log("notice", line("nodes-file-written", path=self.path))
        if self._is_due:
            self.save()

    def _complain(self, error: OSError) -> None:
        is_new = not self.trouble
        self.trouble = error.strerror or str(error)
        if is_new:
            self._log("warning", line("nodes-file-failed", path=self.path, reason=self.trouble))

    def _failed(self, error: OSError) -> None:
        self._complain(error)
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._is_busy = False
        self.save()
