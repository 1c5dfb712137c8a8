"""The nodes file of a running node: read once, then written when membership says so, never in the way of clients.

A save takes two syncs of the disk, so it is done by a thread, with the text as of the moment it begins; changes
meanwhile cost one more save, however many they are. What must be on disk before the node goes on (CLUSTER RESET,
CLUSTER SAVECONFIG, the first start, the end) is written at once. Saves are numbered, so that an older text never
replaces a newer one. A save that fails is tried again until it works: the table in memory is right all the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cluster_bus.nodes_file import NodeLine, NodesFileError, dump, parse
from cluster_bus.nodes_store import NodesFileLockedError, NodesFileStore
from disque_py.server.start_error import StartError

if TYPE_CHECKING:
    from cluster_bus.node import Node

RETRY_SECONDS: Final = 2.0


class NodesKeeper:
    """Owner of the file at `path`, from `open` to `close`. `nodes` gives the table to be written."""

    def __init__(self, path: str, log: Callable[[str, str], None]) -> None:
        self.path = path
        self.nodes: Callable[[], list[Node]] = list
        self._log = log
        self._store = NodesFileStore(path)
        self._writing = threading.Lock()
        self._asked = 0
        self._written = 0
        self._is_busy = False
        self._is_due = False
        self._is_failing = False

    def open(self) -> list[NodeLine]:
        """Lock the file and read it; `myself` is the first line, none at the first start. StartError."""
        try:
            self._store.lock()
            text = self._store.load()
            return [] if text is None else parse(text)
        except NodesFileLockedError as error:
            raise StartError(str(error)) from None
        except NodesFileError as error:
            self.close()
            raise StartError(
                f"the nodes file {self.path} can't be used: {error}. Restore it, or move it away to start as a new node"
            ) from None
        except OSError as error:
            self.close()
            raise StartError(f"can't open the nodes file {self.path}: {error.strerror or error}") from None

    def save(self, must_sync: bool) -> None:
        """Membership has changed: write soon, or (`must_sync`) before this returns, if the disk lets us."""
        if not must_sync:
            self._save_soon()
            return
        try:
            self.save_now()
        except OSError as error:
            self._failed(error)

    def save_now(self) -> None:
        """Write; on disk when this returns. OSError."""
        self._asked += 1
        self._write(self._asked, dump(self.nodes()))

    def close(self) -> None:
        """Let another process have the file."""
        self._store.close()

    def _save_soon(self) -> None:
        if self._is_busy:
            self._is_due = True
            return
        self._is_busy = True
        self._is_due = False
        self._asked += 1
        saved = asyncio.get_running_loop().run_in_executor(None, self._write, self._asked, dump(self.nodes()))
        saved.add_done_callback(self._on_saved)

    def _write(self, number: int, text: str) -> None:
        """Also in threads."""
        with self._writing:
            if number > self._written:
                self._store.save(text)
                self._written = number

    def _on_saved(self, saved: asyncio.Future[None]) -> None:
        if saved.cancelled():
            return
        error = saved.exception()
        if isinstance(error, OSError):
            self._failed(error)
            return
        if error is not None:
            raise error
        self._is_busy = False
        if self._is_failing:
            self._is_failing = False
            self._log("notice", f"the nodes file {self.path} could be written again")
        if self._is_due:
            self._save_soon()

    def _failed(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._log("warning", f"can't write the nodes file {self.path}, trying again: {error.strerror or error}")
        self._is_busy = True
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._is_busy = False
        self._save_soon()
