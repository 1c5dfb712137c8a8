"""A file of frames on disk: appended and synced for each change, and rewritten when it has grown.

The files of queue settings and of votes are beside the nodes file and are named after it: `nodes.conf.queues` and
`nodes.conf.votes`. So the lock of the nodes file guards them, too, and two nodes that share a directory have different
files. They need no directive. They exist with `appendonly no` as well, because they belong to the cluster. A journal
holds jobs, and is removed with them.

The file writer's thread writes, one frame after the other, while the loop serves clients. A write that failed may leave
a part of its frame behind. The next write then makes a new file from the frames before it. A rewrite reads the items
from the old file, so the loop has no work with it.

A file may be moved away while the node runs, and an older one may be put in its place, for example when a volume comes
back. Nothing is added to such a file, because a frame at a wrong place would damage it. The write is a
FileNotFoundError, and the caller has all items written anew.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Final

from disque_py.log_lines import line
from disque_py.server.start_error import StartError, refused
from disque_py.storage.framed_file import DamagedFileError, Format, frame
from persistence.files import parent_of, replace_private, sync_directory, write_all

if TYPE_CHECKING:
    from collections.abc import Callable

# The file is rewritten when it is this large, and twice as large as after the last rewrite.
REWRITE_BYTES: Final = 1024 * 1024
# Queue settings may have users with hashes of their passwords among them.
PRIVATE: Final = 0o600
# The last bytes of a file, by which it is recognized. They contain the checksum of the last frame, or most of it.
TAIL_BYTES: Final = 256


class FramedStore:
    """The file at `path`. After `load`, all calls come from one thread at a time.

    is_repaired   `load` found a last frame that was not written completely
    """

    def __init__(
        self, path: str, layout: Format, torn_message: str, advice: str, log: Callable[[str, str], None]
    ) -> None:
        self.path = path
        self.is_repaired = False
        self._layout = layout
        self._torn_message = torn_message
        self._advice = advice
        self._log = log
        self._good_bytes = 0  # The length of the frames that were synced; 0: there is no file.
        self._rewritten_bytes = 0
        self._is_torn = False
        self._tail = b""  # The end of the frames that were synced.

    def load(self) -> list[Any]:
        """Return the items in the file. StartError."""
        title = self._layout.title
        try:
            with open(self.path, "rb") as file:
                data = file.read()
                # A killed process may have left bytes that no sync has reached. This process will rely on them.
                os.fsync(file.fileno())
            sync_directory(parent_of(self.path))
            contents = self._layout.parse(data)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise refused(f"can't read the {title} {self.path}", error, "cluster-config-file") from None
        except DamagedFileError as error:
            raise StartError(f"the {title} {self.path} can't be used: {error}. {self._advice}") from None
        if contents.good_bytes < len(data):
            self._is_torn = self.is_repaired = True
            line_of = line(self._torn_message, path=self.path, bytes=len(data) - contents.good_bytes)
            self._log(line_of.level, line_of)
        self._good_bytes = contents.good_bytes
        self._tail = data[: contents.good_bytes][-TAIL_BYTES:]
        return contents.items

    def write(self, items: list[Any], *, is_void: bool) -> None:
        """Add items; with `is_void`, forget all others. They are on disk when this returns. OSError."""
        added = frame(items) if items else b""
        if is_void or self._is_torn or not self._good_bytes or self._is_large():
            self._rewrite(items, is_void=is_void)
            return
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._recognize(fd)
            if os.fstat(fd).st_size != self._good_bytes:
                raise _replaced(self.path)
            self._is_torn = True
            os.fchmod(fd, PRIVATE)
            write_all(fd, self._good_bytes, (added,))
            os.fsync(fd)
        finally:
            os.close(fd)
        self._is_torn = False
        self._good_bytes += len(added)
        self._tail = (self._tail + added)[-TAIL_BYTES:]

    def _recognize(self, fd: int) -> None:
        """Raise FileNotFoundError if the file is not the one that was read or written last. A torn end may follow."""
        if os.pread(fd, len(self._tail), self._good_bytes - len(self._tail)) != self._tail:
            raise _replaced(self.path)

    def _is_large(self) -> bool:
        return self._good_bytes > max(REWRITE_BYTES, 2 * self._rewritten_bytes)

    def _rewrite(self, items: list[Any], *, is_void: bool) -> None:
        old: list[Any] = []
        if self._good_bytes and not is_void:
            with open(self.path, "rb") as file:
                self._recognize(file.fileno())
                data = file.read(self._good_bytes)
            try:
                old = self._layout.parse(data).items
            except DamagedFileError as error:
                raise OSError(f"{self.path} is damaged: {error}") from None
        data = self._layout.rewritten([*old, *items])
        replace_private(self.path, data)
        self._is_torn = False
        self._good_bytes = self._rewritten_bytes = len(data)
        self._tail = data[-TAIL_BYTES:]


def _replaced(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "another file is in its place", path)
