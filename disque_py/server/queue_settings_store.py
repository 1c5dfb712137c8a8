"""The file of queue settings on disk: appended and synced for each change, and rewritten when it has grown.

It lies beside the nodes file and is named after it: `nodes.conf.queues`. So the lock of the nodes file guards it, too,
and two nodes that share a directory have two files. It needs no directive of its own. It is there with `appendonly no`
as well: a journal holds jobs, and goes with them, while settings belong to the cluster.

The file writer's thread writes, one frame after the other, while the loop serves clients. A write that failed may leave
a part of its frame behind. The next write then makes a new file from the frames before it. A rewrite reads the old
file, so it takes nothing from the loop.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from disque_py.log_lines import line
from disque_py.server.start_error import StartError
from disque_py.storage.queue_settings_file import DamagedFileError, frame, parse, rewritten

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.core.queue_settings import Item

# The file is rewritten when it is this large, and twice as large as after the last rewrite.
REWRITE_BYTES: Final = 1024 * 1024


class QueueSettingsStore:
    """The file at `path`. After `load`, all calls come from one thread at a time."""

    def __init__(self, path: str, log: Callable[[str, str], None]) -> None:
        self.path = path
        self._log = log
        self._good_bytes = 0  # The length of the frames that were synced; 0: there is no file.
        self._rewritten_bytes = 0
        self._is_torn = False

    def load(self) -> list[Item]:
        """Return the settings in the file. StartError."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
            contents = parse(data)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StartError(f"can't read the queue settings {self.path}: {error.strerror or error}") from None
        except DamagedFileError as error:
            raise StartError(
                f"the queue settings {self.path} can't be used: {error}. Restore the file, or move it away: the other"
                " nodes tell this one their settings"
            ) from None
        if contents.good_bytes < len(data):
            self._is_torn = True
            torn = len(data) - contents.good_bytes
            self._log("notice", line("queue-settings-torn", path=self.path, bytes=torn))
        self._good_bytes = contents.good_bytes
        return contents.items

    def write(self, items: list[Item], *, is_void: bool) -> None:
        """Add settings; with `is_void`, forget all others. They are on disk when this returns. OSError."""
        added = frame(items) if items else b""
        if is_void or self._is_torn or not self._good_bytes or self._is_large():
            self._rewrite(items, is_void=is_void)
            return
        self._is_torn = True
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        with open(fd, "wb", buffering=0) as file:
            file.seek(self._good_bytes)
            _write_all(fd, added)
            os.fsync(fd)
        self._is_torn = False
        self._good_bytes += len(added)

    def _is_large(self) -> bool:
        return self._good_bytes > max(REWRITE_BYTES, 2 * self._rewritten_bytes)

    def _rewrite(self, items: list[Item], *, is_void: bool) -> None:
        old: list[Item] = []
        if self._good_bytes and not is_void:
            with open(self.path, "rb") as file:
                data = file.read(self._good_bytes)
            try:
                old = parse(data).items
            except DamagedFileError as error:
                raise OSError(f"{self.path} is damaged: {error}") from None
        data = rewritten([*old, *items])
        new_path = f"{self.path}.new"
        fd = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(new_path, self.path)
        directory_fd = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory_fd)
        finally:
            os.close(directory_fd)
        self._is_torn = False
        self._good_bytes = self._rewritten_bytes = len(data)


def _write_all(fd: int, data: bytes) -> None:
    """Write all bytes: a disk that is nearly full takes a part of them first. OSError."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
