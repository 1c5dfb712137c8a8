"""Files: a directory of the real file system as the journal's folder.

Nothing here is asynchronous. file_disk.py puts it on threads, several of which may work on different files at once.

* One owner. The constructor takes an advisory lock on the file `lock` and keeps it until `close` or the end of the
  process: two servers writing one journal would ruin it. Tools read with `readonly=True`, without a lock.
* All or nothing. A new file is written under a hidden name, synced, renamed to its own, and the directory is synced.
  A crash leaves at worst a hidden file, which the next owner's constructor removes.
* A failed sync stays failed. The kernel reports a lost page once and then treats it as written. So a second fsync would
  succeed without having saved anything. Syncs of that file go on failing until it is removed or made again.
* No writing to a lost file. A descriptor outlives `rm -r` and still takes writes. So before each write and sync, the
  file must still be at its place. When an operator has put back a directory that was away, the lock is taken again.
"""

# Stays Python: files.
from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

from persistence.descriptors import Descriptors, OpenFile, place_of
from persistence.disk import Window
from persistence.window import FileWindow

LOCK_NAME: Final = "lock"
HIDDEN_PREFIX: Final = ".new."
# Joining small pieces costs less than handing them over one by one. Joining a few or large ones does not pay.
PIECES_MAX: Final = 16
SMALL_PIECE_BYTES: Final = 2048
# Linux takes no more pieces in one call (IOV_MAX).
CALL_PIECES_MAX: Final = 1024


class JournalInUseError(OSError):
    """An error: another process holds the directory. The text names the process and the remedy."""

    def __init__(self, directory: str, pid: int) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            errno.EBUSY,
            f"the journal in {directory} is in use by {holder}: stop that one, or give this node another directory",
            directory,
        )

    def __str__(self) -> str:
        return str(self.strerror)


class Files:
    """A Folder on a real directory, made (its last part) if need be; OSErrors of the system pass through.

    directory  a path for the system
    readonly   only read: no lock, nothing is made or removed, and every change is EROFS

    Raises JournalInUseError when another process owns the directory.
    """

    def __init__(self, directory: str, *, readonly: bool = False) -> None:
        self.directory = directory
        self._is_readonly = readonly
        self._lock_fd = -1
        self._lock_check = threading.Lock()
        self._descriptors = Descriptors()
        self._failed_syncs: dict[str, int] = {}
        if not readonly:
            self._make_directory()
            self._lock_fd = take_lock(directory)
            self._remove_leftovers()

    # Questions.

    def names(self) -> list[str]:
        """Return the names of all files, sorted, except the lock, hidden files and directories."""
        with os.scandir(self.directory) as entries:
            return sorted(
                entry.name for entry in entries if entry.name[0] != "." and entry.name != LOCK_NAME and entry.is_file()
            )

    def size(self, name: str) -> int:
        """Return the length in bytes."""
        return os.stat(self._path(name)).st_size

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only at the end of the file."""
        file = self._descriptors.take_for_reading(name, self._path(name))
        try:
            data = os.pread(file.fd, size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]  # One call gives 2 GiB at most, and less on some file systems.
            got = len(data)
            while got < size and (data := os.pread(file.fd, size - got, offset + got)):
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        finally:
            self._descriptors.give_back(file)

    # Writing into a file.

    def write(self, name: str, offset: int, chunks: Sequence[bytes]) -> None:
        """Write all chunks at `offset`. FileNotFoundError when the file is not at its place any more."""
        file = self._take_for_writing(name)
        try:
            write_all(file.fd, offset, chunks)
        finally:
            self._descriptors.give_back(file)

    def sync(self, name: str) -> None:
        """Make writes survive a power cut. Once this has failed for a file, it goes on failing."""
        file = self._take_for_writing(name)
        try:
            self._sync_file(name, lambda: os.fdatasync(file.fd))
        finally:
            self._descriptors.give_back(file)

    def write_synced(self, name: str, offset: int, chunks: Sequence[bytes]) -> None:
        """Write all chunks at `offset` so that they survive a power cut.

        On file systems that are known to support it this is one call of the system. A thread waits for the
        interpreter's lock after each call, and a busy loop wakes it in vain several times until it gets the lock.
        """
        file = self._take_for_writing(name)
        try:
            if file.may_write_synced:
                self._sync_file(name, lambda: write_all(file.fd, offset, chunks, os.RWF_DSYNC))
            else:
                write_all(file.fd, offset, chunks)
                self._sync_file(name, lambda: os.fdatasync(file.fd))
        finally:
            self._descriptors.give_back(file)

    def truncate(self, name: str, size: int) -> None:
        """Cut the file, or fill it up with zeros, and sync it."""
        file = self._take_for_writing(name)
        try:
            os.ftruncate(file.fd, size)
            self._sync_file(name, lambda: os.fdatasync(file.fd))
        finally:
            self._descriptors.give_back(file)

    # As memory.

    def map(self, name: str, size: int) -> FileWindow | None:
        """Return a window on the file's first `size` bytes; None where the system has none."""
        file = self._take_for_writing(name)
        try:
            return FileWindow(file.fd, size)
        except (OSError, ValueError):
            return None
        finally:
            self._descriptors.give_back(file)

    def prepare(self, name: str, window: Window, start: int, end: int) -> None:
        """Allocate these bytes of the window and make them writable without waiting."""
        assert isinstance(window, FileWindow)
        file = self._take_for_writing(name)
        try:
            window.prepare(file.fd, start, end)
        finally:
            self._descriptors.give_back(file)

    def sync_window(self, name: str, window: Window, start: int, end: int) -> None:
        """Sync these bytes only."""
        assert isinstance(window, FileWindow)
        file = self._take_for_writing(name)
        try:
            self._sync_file(name, lambda: window.sync(start, end))
        finally:
            self._descriptors.give_back(file)

    # Whole files.

    def create(self, name: str, data: bytes) -> None:
        """Make a new file; FileExistsError if there is one. After an error there is none."""
        self._put(name, data, 0, is_new=True)

    def replace(self, name: str, data: bytes) -> None:
        """Replace the content; after an error the old one is there, except when only the directory's sync failed."""
        self._put(name, data, 0, is_new=False)

    def allocate(self, name: str, size: int) -> None:
        """Make a new file of zeros with its blocks. File systems that never write in place can't promise the space."""
        self._put(name, None, size, is_new=True)

    def remove(self, name: str) -> None:
        """Remove the file and sync the directory, also if it is gone already: the last try may not have synced."""
        self._refuse_if_readonly(name)
        try:
            os.unlink(self._path(name))
        except FileNotFoundError:
            pass
        self._forget(name)
        sync_directory(self.directory)

    def rename(self, old: str, new: str) -> None:
        """Rename in one step; a file that had the name `new` is gone then."""
        self.sync(old)
        os.rename(self._path(old), self._path(new))
        self._forget(old)
        self._forget(new)
        sync_directory(self.directory)

    # Copies: links and small files in another directory, two levels of which are made if need be.

    def link(self, name: str, directory: str) -> None:
        """Make a hard link with the same name in another directory, and sync that directory."""
        self._refuse_if_readonly(name)
        make_copy_directory(directory)
        os.link(self._path(name), os.path.join(directory, name))
        sync_directory(directory)

    def store(self, directory: str, name: str, data: bytes, *, is_private: bool = False) -> None:
        """Write a small file in another directory, synced with the directory; after an error it may be partly there."""
        mode = 0o600 if is_private else 0o644
        self._refuse_if_readonly(name)
        make_copy_directory(directory)
        fd = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            write_all(fd, 0, (data,))
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_directory(directory)

    def stored(self, directory: str) -> list[str]:
        """Return the names in another directory, sorted; none if it isn't there."""
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def discard(self, directory: str) -> None:
        """Remove another directory and the files in it."""
        self._refuse_if_readonly(os.path.basename(directory))
        names = self.stored(directory)
        for name in names:
            os.unlink(f"{directory}/{name}")
        if names or os.path.isdir(directory):
            os.rmdir(directory)
            sync_directory(parent_of(directory))

    def close(self) -> None:
        """Close every descriptor and release the lock."""
        self._descriptors.forget_all()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # Descriptors.

    def _path(self, name: str) -> str:
        assert name[:1] not in ("", "."), name
        assert "/" not in name, name
        assert name != LOCK_NAME
        return f"{self.directory}/{name}"

    def _forget(self, name: str) -> None:
        """Forget descriptors and errors of a name that leads to another file from now on."""
        self._descriptors.forget(name)
        self._failed_syncs.pop(name, None)

    def _take_for_writing(self, name: str) -> OpenFile:
        """Return the file's descriptor, if it still leads to the file at its place; else FileNotFoundError."""
        self._refuse_if_readonly(name)
        path = self._path(name)
        file = self._descriptors.take_for_writing(name, path)
        try:
            if place_of(os.stat(path)) != file.place:
                raise FileNotFoundError(errno.ENOENT, "another file has taken its place", path)
        except OSError as error:
            self._descriptors.give_back(file)
            if isinstance(error, FileNotFoundError):
                self._forget(name)
            raise
        return file

    def _sync_file(self, name: str, sync: Callable[[], None]) -> None:
        failed = self._failed_syncs.get(name)
        if failed is not None:
            raise OSError(failed, f"an earlier sync failed ({os.strerror(failed)})", self._path(name))
        try:
            sync()
        except OSError as error:
            self._failed_syncs[name] = error.errno or errno.EIO
            raise OSError(error.errno, error.strerror, self._path(name)) from None

    # The directory.

    def _put(self, name: str, data: bytes | None, size: int, *, is_new: bool) -> None:
        """Put a whole file under its name: `data`, or `size` bytes of zeros if it is None."""
        self._refuse_if_readonly(name)
        self._check_lock()
        path = self._path(name)
        if is_new and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        hidden = f"{self.directory}/{HIDDEN_PREFIX}{name}"
        try:
            fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                if data is not None:
                    write_all(fd, 0, (data,))
                elif size:
                    os.posix_fallocate(fd, 0, size)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(hidden, path)  # When is_new, no other process can have made it: the directory is ours.
        except OSError:
            unlink_if_possible(hidden)
            raise
        self._forget(name)
        try:
            sync_directory(self.directory)
        except OSError:
            if is_new:
                unlink_if_possible(path)
            raise

    def _make_directory(self) -> None:
        if make_directory(self.directory):
            sync_directory(parent_of(self.directory))

    def _remove_leftovers(self) -> None:
        """Remove hidden files of an owner that died while it made them."""
        with os.scandir(self.directory) as entries:
            leftovers = [entry.path for entry in entries if entry.name.startswith(HIDDEN_PREFIX)]
        for path in leftovers:
            os.unlink(path)

    def _check_lock(self) -> None:
        """Take the lock again if an operator moved the directory away and put it, or an empty one, back.

        Our old lock is then on a file that other processes do not see.
        """
        with self._lock_check:
            try:
                if place_of(os.stat(f"{self.directory}/{LOCK_NAME}")) == place_of(os.fstat(self._lock_fd)):
                    return
            except FileNotFoundError:
                pass
            lock_fd = take_lock(self.directory)
            os.close(self._lock_fd)
            self._lock_fd = lock_fd

    def _refuse_if_readonly(self, name: str) -> None:
        if self._is_readonly:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), self._path(name))


def take_lock(directory: str) -> int:
    """Return the descriptor that holds the directory's lock until it is closed; JournalInUseError.

    The file stays behind when the lock is released: removing it would let two processes lock different files.
    """
    fd = os.open(f"{directory}/{LOCK_NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(fd, 20, 0).strip()
        os.close(fd)
        raise JournalInUseError(directory, int(pid) if pid.isdigit() else 0) from None
    except OSError:
        os.close(fd)
        raise
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    except OSError:
        pass  # The pid is for the message above only; a full disk must not keep a node from starting.
    return fd


def write_all(fd: int, offset: int, chunks: Sequence[bytes], flags: int = 0) -> None:
    """Write all chunks at `offset`, in as many calls as it takes; after OSError a part of them is written.

    flags  of the calls: RWF_DSYNC returns when the bytes are on disk
    """
    size = sum(map(len, chunks))
    if len(chunks) > PIECES_MAX and (size < len(chunks) * SMALL_PIECE_BYTES or len(chunks) > CALL_PIECES_MAX):
        chunks = (b"".join(chunks),)
    written = os.pwritev(fd, chunks, offset, flags) if size else 0
    while written < size:  # A full disk or a limit: a part was written, and the next call says why.
        rest = memoryview(b"".join(chunks))[written:]
        taken = os.pwritev(fd, (rest,), offset + written, flags)
        if not taken:
            raise OSError(errno.EIO, "the system takes no more bytes and gives no reason")
        written += taken


def make_directory(directory: str) -> bool:
    """Make a directory; False if it exists. Its parent must exist, so that a typing error makes no tree."""
    try:
        os.mkdir(directory, 0o755)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise
        return False
    return True


def make_copy_directory(directory: str) -> None:
    """Make a directory for copies and its parent, synced; a longer missing path is a typing error."""
    for path in (parent_of(directory), directory):
        if make_directory(path):
            sync_directory(parent_of(path))


def sync_directory(directory: str) -> None:
    """Make the names in it survive a power cut."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_private(path: str, data: bytes) -> None:
    """Replace a file, or make it, for its owner alone. It is on disk when this returns; after an OSError nothing is."""
    new_path = f"{path}.new"
    # A file that an earlier write left may have other permissions.
    if os.path.lexists(new_path):
        os.unlink(new_path)
    fd = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            write_all(fd, 0, (data,))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(new_path, path)
    except OSError:
        unlink_if_possible(new_path)  # On a full disk, a part of a large file would take the room of the journal.
        raise
    sync_directory(parent_of(path))


def parent_of(directory: str) -> str:
    """Return the directory that has the directory's own name."""
    return os.path.dirname(os.path.abspath(directory))


def unlink_if_possible(path: str) -> None:
    """Remove a file after a failure that matters more than this one. The next owner removes a leftover."""
    try:
        os.unlink(path)
    except OSError:
        pass
