"""SimFolder: the journal's folder in memory, with power cuts, process deaths and disk faults.

A file has the content that all processes read (`content`, the system's cache) and the content that a power cut leaves
(`durable`). The difference is the writes since the last sync. A process can end in three ways:

* `kill`: the process dies. All its writes remain.
* `cut_power`: all synced data remains. Of the unsynced sectors, any may have reached the disk, in any order, each with
  any content that it had since the sync. The length may be the old one, the new one or one between, and a hole reads
  as zeros. The names are those of the last sync of the directory, or those after any of the later changes, in order.
* `crash_in`: the process dies in the middle of an operation, some steps from now. The work raises CrashError.
  Afterwards the folder is dead until one of the other two is called.

`fail`, `capacity_bytes` and `vanish` cause faults. A failed sync is as bad as on a real system: some sectors are on
disk, and the others are not until they are written again. Reading does not show the difference.

All chance comes from the given generator. No time passes here (disk.py has the delays).
"""

from __future__ import annotations

import errno as errnos
import sys
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from disque_py.simulator.world.disk_errors import CrashError, Fault, os_error
from disque_py.simulator.world.sectors import SimFile
from persistence.disk import Window

STEPS_MAX: Final = 2  # The largest number of places at which an operation can break off.


class SimWindow:
    """A Window on a file in memory."""

    __slots__ = ("_file", "size")

    def __init__(self, file: SimFile, size: int) -> None:
        self.size = size
        self._file = file

    def put(self, offset: int, data: bytes) -> None:
        """Write to the cache: all processes read it immediately, and it becomes durable when it is synced."""
        end = offset + len(data)
        assert end <= len(self._file.content), "a write beyond the prepared part"
        self._file.write(offset, data)


class SimFolder:
    """A Folder in memory.

    capacity_bytes  room for all files together; None: no limit; a hole takes as much room as written data
    used_bytes      the part of it that is in use
    trace           if it is a list: (operation, name, offset, bytes) of every call; None: calls are not recorded
    linked          the files that `link` and `store` made: names by directory
    has_windows     True: files can be mapped into memory
    """

    def __init__(self, rng: Random, capacity_bytes: int | None = None) -> None:
        self.rng = rng
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.trace: list[tuple[str, str, int, int]] | None = None
        self.linked: dict[str, dict[str, SimFile]] = {}
        self.has_windows = True
        self._files: dict[str, SimFile] = {}
        # The directory at its last sync, and after each later change.
        self._lineage: list[dict[str, SimFile]] = [{}]
        self._failed_syncs: dict[
            str, int
        ] = {}  # As in files.py: only the process knows them, so a restart forgets them.
        self._faults: list[Fault] = []
        self._is_vanished = False
        self._is_dead = False
        # Steps until the current operation breaks off with an error, and until the process dies; negative: never.
        self._stop_in = -1
        self._crash_in = -1
        self._stop_errno = 0
        self._stop_is_partial = False
        self._has_trouble = False  # One test for all of the above.

    # Looking.

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        self._begin("names", "")
        self._step("")
        return sorted(self._files)

    def size(self, name: str) -> int:
        """Return a file's length in bytes."""
        self._begin("size", name)
        self._step(name)
        return len(self._file(name).content)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset` on."""
        self._begin("read", name, offset, size)
        self._step(name)
        return bytes(self._file(name).content[offset : offset + size])

    # Writing into a file.

    def write(self, name: str, offset: int, chunks: Sequence[bytes]) -> None:
        """Write all chunks at `offset`. If the write fails in part or finds no room, its first bytes are written."""
        data = b"".join(chunks)
        self._begin("write", name, offset, len(data))
        file = self._file(name)
        if self._has_trouble and self._stops_here():
            if self._stop_is_partial:
                self._write(name, file, offset, data[: self.rng.randrange(len(data) + 1)])
            raise self._stopped(name)
        self._write(name, file, offset, data)
        self._finish(name)

    def sync(self, name: str) -> None:
        """Make the content of the file durable."""
        self._begin("sync", name)
        self._sync_file(name, self._file(name))
        self._finish(name)

    def write_synced(self, name: str, offset: int, chunks: Sequence[bytes]) -> None:
        """Write all chunks at `offset`, and make them durable."""
        self.write(name, offset, chunks)
        size = sum(map(len, chunks))
        self._begin("sync", name, offset, size)
        self._sync_file(name, self._file(name), (offset, offset + size))
        self._finish(name)

    def truncate(self, name: str, size: int) -> None:
        """Cut the file, or fill it up with zeros, and sync it."""
        self._begin("truncate", name, 0, size)
        file = self._file(name)
        self._step(name)
        grown = size - len(file.content)
        if grown > self._room_bytes():
            raise os_error(errnos.ENOSPC, name)
        self.used_bytes += grown
        file.resize(size)
        self._sync_file(name, file)
        self._finish(name)

    # Files as memory.

    def map(self, name: str, size: int) -> SimWindow | None:
        """Return a window on the file, or None without `has_windows`."""
        self._begin("map", name, 0, size)
        file = self._file(name)
        self._step(name)
        return SimWindow(file, size) if self.has_windows else None

    def prepare(self, name: str, window: Window, start: int, end: int) -> None:
        """Make the file as long as `end`."""
        if start > end:
            raise os_error(errnos.EINVAL, name)
        self._begin("prepare", name, start, end - start)
        file = self._file(name)
        self._step(name)
        assert isinstance(window, SimWindow)
        grown = min(end, window.size) - len(file.content)
        if grown > self._room_bytes():
            raise os_error(errnos.ENOSPC, name)
        if grown > 0:
            self.used_bytes += grown
            file.resize(len(file.content) + grown)
        self._finish(name)

    def sync_window(self, name: str, window: Window, start: int, end: int) -> None:
        """Make a range of the file durable."""
        self._begin("sync", name, start, end - start)
        self._sync_file(name, self._file(name), (start, end))
        self._finish(name)

    # Whole files.

    def create(self, name: str, data: bytes) -> None:
        """Write a new file."""
        self._begin("create", name, 0, len(data))
        self._put(name, data, is_new=True)

    def replace(self, name: str, data: bytes) -> None:
        """Replace a file's content. After a crash it is either the old content or the new one."""
        self._begin("replace", name, 0, len(data))
        self._put(name, data, is_new=False)

    def allocate(self, name: str, size: int) -> None:
        """Make a new file of zeros."""
        self._begin("allocate", name, 0, size)
        self._put(name, bytes(size), is_new=True)

    def remove(self, name: str) -> None:
        """Remove a file. It is no error if the file is already gone."""
        self._begin("remove", name)
        self._step(name)
        self._release(name)
        self._lineage.append(dict(self._files))
        self._sync_directory(name)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, in one step."""
        self._begin("rename", old)
        file = self._file(old)
        self._sync_file(old, file)
        if old != new:
            self._release(new)
            self._files[new] = self._files.pop(old)
            self._failed_syncs.pop(new, None)
            self._lineage.append(dict(self._files))
        self._sync_directory(old)

    def link(self, name: str, directory: str) -> None:
        """Make a hard link, and note it in `linked`."""
        self._begin("link", name)
        file = self._file(name)
        names = self.linked.setdefault(directory, {})
        if name in names:
            raise os_error(errnos.EEXIST, name)
        self._step(name)
        names[name] = file
        file.links += 1
        self._finish(name)

    def store(self, directory: str, name: str, data: bytes, *, is_private: bool = False) -> None:
        """Write a small file beside links, and note it in `linked`."""
        self._begin("store", name, 0, len(data))
        self._step(name)
        if len(data) > self._room_bytes():
            raise os_error(errnos.ENOSPC, name)
        file = SimFile(data)
        file.links = 1
        self.used_bytes += len(data)
        self.linked.setdefault(directory, {})[name] = file
        self._finish(name)

    def stored(self, directory: str) -> list[str]:
        """Return the names that `link` and `store` made in this directory."""
        self._begin("stored", directory)
        self._step(directory)
        return sorted(self.linked.get(directory, ()))

    def discard(self, directory: str) -> None:
        """Remove the files that `link` and `store` made in this directory."""
        self._begin("discard", directory)
        self._step(directory)
        for file in self.linked.pop(directory, {}).values():
            file.links -= 1
            if not file.links:
                self.used_bytes -= len(file.content)
        self._finish(directory)

    def close(self) -> None:
        """End the process's use of the folder. The next process may use it. This syncs nothing."""
        self._failed_syncs.clear()

    # Changes of the files while no process uses them.

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return name in self._files

    def flip(self, name: str, bit: int) -> None:
        """Flip one bit of the file, as a rotten disk does."""
        file = self._files[name]
        for content in (file.content, file.durable):
            content[bit // 8] ^= 1 << bit % 8

    def replace_all(self, files: dict[str, bytes]) -> None:
        """Replace all files by these, synced. Files that `link` made stay."""
        self._files = {name: SimFile(content) for name, content in files.items()}
        for file in self._files.values():
            file.links = 1
        self._lineage = [dict(self._files)]
        self._count_bytes()

    # Ends of a process.

    def kill(self) -> None:
        """Note that the process has died. All its writes remain for the next process."""
        self._failed_syncs.clear()
        self._is_dead = False
        self._stop_in = self._crash_in = -1
        self._watch()

    def cut_power(self, rng: Random | None = None) -> None:
        """Note that the machine has lost power. Faults remain, because they belong to the disk."""
        rng = rng or self.rng
        self._files = dict(rng.choice(self._lineage))
        self._lineage = [dict(self._files)]
        for file in self._all_files():
            file.settle(rng)
            file.content = bytearray(file.durable)
            file.links = 0
        for names in (self._files, *self.linked.values()):
            for file in names.values():
                file.links += 1
        self._count_bytes()
        self.kill()

    def crash_in(self, steps: int) -> None:
        """Let the process die after this many steps. An operation has one or two steps."""
        self._crash_in = steps
        self._watch()

    @property
    def is_dead(self) -> bool:
        """Return whether a crash that `crash_in` requested has happened."""
        return self._is_dead

    @property
    def is_in_trouble(self) -> bool:
        """Return whether operations may fail or the process may die in one."""
        return self._has_trouble

    def copy(self, rng: Random) -> SimFolder:
        """Return a copy of the folder without its faults, to see what a restart would find."""
        copied = SimFolder(rng)
        twins = {file: file.copy() for file in self._all_files()}
        copied._lineage = [{name: twins[file] for name, file in names.items()} for names in self._lineage]
        copied._files = dict(copied._lineage[-1])
        for directory, names in self.linked.items():
            copied.linked[directory] = {name: twins[file] for name, file in names.items()}
        copied.used_bytes = self.used_bytes
        return copied

    # Faults.

    def fail(
        self,
        ops: str,
        errno: int,
        *,
        nth: int = 1,
        times: int = 1,
        is_partial: bool = False,
        when: Callable[[str], bool] | None = None,
    ) -> None:
        """Let operations fail: `times` of them (-1: all), beginning with the `nth` from now.

        ops         names of operations, separated by spaces; only operations on files that `when` accepts count
        is_partial  a part is done nevertheless: the first bytes are written, a name is changed and not synced, or all
        """
        self._faults.append(Fault(ops.split(), errno, nth - 1, times, is_partial, when))
        self._watch()

    def vanish(self) -> None:
        """Remove the directory, as if it were moved or unmounted."""
        self._is_vanished = True
        self._watch()

    def appear(self, *, is_empty: bool = False) -> None:
        """Bring the folder back, as it was or as a new one."""
        self._is_vanished = False
        if is_empty:
            self._files = {}
            self._lineage = [{}]
            self._count_bytes()
        self._watch()

    def heal(self) -> None:
        """End all failures of operations."""
        self._faults.clear()
        self._watch()

    def _watch(self) -> None:
        self._has_trouble = self._is_dead or self._is_vanished or bool(self._faults) or self._crash_in >= 0

    # Steps of an operation.

    def _begin(self, op: str, name: str, offset: int = 0, size: int = 0) -> None:
        if self.trace is not None:
            self.trace.append((op, name, offset, size))
        if not self._has_trouble:
            return
        self._stop_in = -1  # The break-off may remain from an operation that failed for another reason.
        if self._is_dead:
            raise CrashError
        if self._is_vanished:
            raise os_error(errnos.ENOENT, name)
        for fault in self._faults:
            if fault.strikes(op, name):
                self._stop_in = self.rng.randrange(STEPS_MAX + 1) if fault.is_partial else 0
                self._stop_errno = fault.errno
                self._stop_is_partial = fault.is_partial
                return

    def _stops_here(self) -> bool:
        """Count a step, and return whether the operation breaks off here. Called only while there are faults."""
        if self._crash_in >= 0:
            self._crash_in -= 1
            if self._crash_in < 0:
                self._is_dead = True
                self._stop_is_partial = True
                return True
        if self._stop_in < 0:
            return False
        self._stop_in -= 1
        return self._stop_in < 0

    def _stopped(self, name: str) -> BaseException:
        """Return the error to raise."""
        return CrashError() if self._is_dead else os_error(self._stop_errno, name)

    def _step(self, name: str) -> None:
        """Mark a place at which the operation may break off."""
        if self._has_trouble and self._stops_here():
            raise self._stopped(name)

    def _finish(self, name: str) -> None:
        """End an operation: an error that it still has to raise is raised now. A crash waits for the next operation."""
        if self._stop_in >= 0:
            self._stop_in = -1
            raise os_error(self._stop_errno, name)

    # Parts of operations.

    def _file(self, name: str) -> SimFile:
        file = self._files.get(name)
        if file is None:
            raise os_error(errnos.ENOENT, name)
        return file

    def _write(self, name: str, file: SimFile, offset: int, data: bytes) -> None:
        """Write as much as there is room for, and raise ENOSPC if that is not all."""
        if not data:
            return
        grown = offset + len(data) - len(file.content)
        missing = max(0, grown - self._room_bytes())
        data = data[: max(0, len(data) - missing)]
        if data:
            file.write(offset, data)
            self.used_bytes += max(0, grown - missing)
        if missing:
            raise os_error(errnos.ENOSPC, name)

    def _count_bytes(self) -> None:
        self.used_bytes = sum(len(file.content) for file in self._all_files())

    def _room_bytes(self) -> int:
        return sys.maxsize if self.capacity_bytes is None else max(0, self.capacity_bytes - self.used_bytes)

    def _sync_file(self, name: str, file: SimFile, part: tuple[int, int] | None = None) -> None:
        failed = self._failed_syncs.get(name)
        if failed is not None:
            raise os_error(failed, name)
        if self._has_trouble and self._stops_here():
            if not self._is_dead:
                file.settle(self.rng)
                self._failed_syncs[name] = self._stop_errno
            raise self._stopped(name)
        if part is None:
            file.sync()
        else:
            file.sync_part(*part)

    def _put(self, name: str, data: bytes, *, is_new: bool) -> None:
        """Write a whole file. Until it has its name, neither this process nor the next one sees it."""
        if is_new and name in self._files:
            raise os_error(errnos.EEXIST, name)
        self._step(name)
        if len(data) > self._room_bytes():
            raise os_error(errnos.ENOSPC, name)
        self._release(name)
        file = self._files[name] = SimFile(data)
        file.links = 1
        self.used_bytes += len(data)
        self._lineage.append(dict(self._files))
        try:
            self._sync_directory(name)
        except OSError:
            if is_new:
                self._release(name)
                self._lineage.append(dict(self._files))
            raise

    def _release(self, name: str) -> None:
        """Remove a name. If the file has no other name, its room is free again."""
        file = self._files.pop(name, None)
        self._failed_syncs.pop(name, None)
        if file is not None:
            file.links -= 1
            if not file.links:
                self.used_bytes -= len(file.content)

    def _sync_directory(self, name: str) -> None:
        self._step(name)
        self._lineage = [dict(self._files)]
        self._finish(name)

    def _all_files(self) -> list[SimFile]:
        """Return all files that have a name or may have one after a power cut, in a deterministic order."""
        directories = (*self._lineage, *self.linked.values())
        return list(dict.fromkeys(file for names in directories for file in names.values()))
