"""Backups: asking nodes to make them, collecting them, and restoring one.

A node makes its own copy (`JOURNAL BACKUP`, hard links in its own directories), and returns its path. To collect
copies, this program reads that path, so it must be readable from this machine; copies on another machine are collected
there. A backup is a directory with a description (persistence/backup.py). Collected backups are directories by node id,
in a directory or in a tar file.

A restored journal carries a mark: its node asks the other holders about every job, and at-most-once jobs are never
queued (spec O5). No file is put in place before every byte of the restored journal has been read back.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol, cast

from cluster_bus.nodes_file import NodesFileError, parse
from cluster_bus.nodes_store import NodesFileLockedError, NodesFileStore
from disque_py.cli.address import Target
from disque_py.cli.cluster.view import patient
from disque_py.client import commands
from disque_py.output_errors import naming
from persistence.backup import (
    DESCRIPTION_NAME,
    NODES_NAME,
    SETTINGS_NAME,
    Description,
    decode_description,
    refuse_damaged,
    refuse_incomplete,
)
from persistence.check import Tally, read
from persistence.files import Files, parent_of, replace_private, sync_directory
from persistence.install import Install, free_name
from persistence.records import parse_file_name
from persistence.recovery import RESTORED_NAME, DamagedJournalError

Progress = Callable[[int, int], None]
# A node links its files quickly, unless its disk is busy.
MAKING_S: Final = 600.0
PIECE_BYTES: Final = 4 * 1024 * 1024
TAR_SUFFIXES: Final = {".tar": "w", ".tgz": "w:gz", ".tar.gz": "w:gz"}
# Bodies are often compressed already, so a higher level would take much time and save little.
GZIP_LEVEL: Final = 1


class BackupError(Exception):
    """A backup can't be made or restored in this way; the text gives the reason and the next step."""


class Made(NamedTuple):
    """A backup as the node that made it describes it."""

    path: str
    files: int
    size: int


def default_name() -> str:
    """Return a name that sorts by time: 20240131-235959, UTC."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime())


def make(target: Target, name: str) -> Made:
    """Ask a node to make a backup of itself. Raises ConnectError, DisqueError."""
    with patient(target, MAKING_S) as node:
        items = node.run(commands.execute("JOURNAL", "BACKUP", name))
    row = dict(zip(items[::2], items[1::2], strict=True))
    return Made(row[b"path"].decode(), int(row[b"files"]), int(row[b"bytes"]))


# -- gathering ----------------------------------------------------------------------------------------


def tar_mode(to: Path) -> str:
    """Return the mode in which the tar file is written; empty for a directory."""
    return next((mode for suffix, mode in TAR_SUFFIXES.items() if to.name.endswith(suffix)), "")


def refuse_occupied(to: Path) -> None:
    """Raise BackupError if there are files that would be mixed with the backup or overwritten, or no directory."""
    refuse_missing(to.parent)
    if to.exists() and (tar_mode(to) or not to.is_dir() or any(to.iterdir())):
        raise BackupError(f"{to} exists already")
    if os.path.lexists(_fresh(to)):
        raise BackupError(f"{_fresh(to)} exists. If an interrupted backup left it, remove it")


def refuse_missing(directory: Path) -> None:
    """Raise BackupError if nothing can be made in a directory. A program makes only the end of a path by itself."""
    if not directory.is_dir():
        is_there = os.path.lexists(directory)
        raise BackupError(f"{directory} " + ("is not a directory" if is_there else "does not exist: create it"))
    try:
        with tempfile.TemporaryFile(dir=directory):  # Permissions alone don't tell it of every file system.
            pass
    except OSError as error:
        raise BackupError(f"{directory} can't be written ({error.strerror}): name another directory") from error


def _fresh(to: Path) -> Path:
    """Return the path at which the backup is assembled."""
    return to.with_name(to.name + ".new")


def refuse_unreadable(paths: list[str]) -> None:
    """Raise BackupError if one of the nodes' backups can't be read from here."""
    for path in paths:
        if not os.access(f"{path}/{DESCRIPTION_NAME}", os.R_OK):
            raise BackupError(
                f"{path} can't be read from here. The backup exists: fetch it on that machine, or leave out --to"
            )
        settings = f"{path}/{SETTINGS_NAME}"
        if os.path.exists(settings) and not os.access(settings, os.R_OK):
            raise BackupError(
                f"{settings} can't be read by this user, because it may have users with hashes of their passwords. The"
                " backup exists: fetch it as the user of the node"
            )


def refuse_foreign(made: list[tuple[str, str]]) -> None:
    """Raise BackupError if a path on this machine has another node's backup: nodes on other machines use equal paths.

    made   node id and path, as the nodes report them
    """
    for node, path in made:
        ids = {decode_description(Path(path, DESCRIPTION_NAME).read_bytes()).node.hex()}
        with suppress(OSError, NodesFileError):  # The journal may be older than the id (CLUSTER RESET HARD).
            ids.add(parse(Path(path, NODES_NAME).read_text(encoding="utf-8", errors="surrogateescape"))[0].id.hex())
        if node not in ids:
            raise BackupError(
                f"{path} on this machine does not belong to node {node[:8]}, whose backup is in a directory of that"
                " name on its own machine. The backup exists: fetch it there, or name the nodes of this machine"
                " with --only"
            )


def gather(paths: list[str], to: Path, progress: Progress) -> None:
    """Copy these backups into `to`, one directory per node id. After an OSError nothing is left there.

    Everything is on disk when this returns, because the nodes' own copies are removed next.
    """
    sizes = [(path, entry.name, entry.stat().st_size) for path in paths for entry in os.scandir(path)]
    total = sum(size for _, _, size in sizes)
    fresh = _fresh(to)
    done = 0
    try:
        with _tar_or_directory(fresh, tar_mode(to)) as add:
            for path, name, size in sizes:
                node = decode_description(Path(path, DESCRIPTION_NAME).read_bytes()).node.hex()
                add(Path(path, name), f"{node}/{name}")
                done += size
                progress(done, total)
        if to.is_dir():
            to.rmdir()
        fresh.rename(to)
        sync_directory(parent_of(str(to)))
    except BaseException:  # An interrupt, too, must leave no half backup behind.
        shutil.rmtree(fresh, ignore_errors=True) if fresh.is_dir() else fresh.unlink(missing_ok=True)
        raise


@contextmanager
def _tar_or_directory(fresh: Path, mode: str) -> Iterator[Callable[[Path, str], None]]:
    """Yield a function that puts a file under a name: into a tar file, or, without a mode, into a directory."""
    if not mode:
        yield lambda path, name: _copy_file(path, fresh / name)
        for directory, _, _ in os.walk(fresh):
            sync_directory(directory)
        return
    # Settings of queues may have users with hashes of their passwords among them.
    with naming(fresh), open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        # tarfile has no level for its own compression, so the stream is compressed here.
        with _compressed(file, mode) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
            yield lambda path, name: tar.add(path, name, recursive=False)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _compressed(file: IO[bytes], mode: str) -> Iterator[IO[bytes]]:
    if mode == "w":
        yield file
        return
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=GZIP_LEVEL) as stream:
        yield cast(IO[bytes], stream)


def _copy_file(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, to)
    with to.open("rb") as file:
        os.fsync(file.fileno())


def remove_made(paths: list[str]) -> None:
    """Remove the nodes' own copies."""
    for path in paths:
        shutil.rmtree(path)


# -- restoring ----------------------------------------------------------------------------------------


class Source(Protocol):
    """One node's backup, in a directory or in a tar file."""

    def open(self, name: str) -> IO[bytes]:
        """Return a file of the backup. Raises FileNotFoundError."""


class DirectorySource:
    """A backup that is a directory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, name: str) -> IO[bytes]:
        """Return a file of the backup. Raises FileNotFoundError."""
        return (self._path / name).open("rb")


class TarSource:
    """A backup inside a tar file, below `prefix`."""

    def __init__(self, tar: tarfile.TarFile, prefix: str) -> None:
        self._tar = tar
        self._prefix = prefix

    def open(self, name: str) -> IO[bytes]:
        """Return a file of the backup. Raises FileNotFoundError."""
        try:
            file = self._tar.extractfile(self._prefix + name)
        except KeyError:
            file = None
        if file is None:
            raise FileNotFoundError(f"{name} is missing in the backup")
        return file


@contextmanager
def opened(backup: Path, node: str) -> Iterator[tuple[Source, Description]]:
    """Yield the backup of one node. Raises BackupError unless `node`, the beginning of an id, names exactly one."""
    if backup.is_dir():
        yield _chosen(_directories(backup), node, backup)
        return
    try:
        with tarfile.open(backup) as tar:
            yield _chosen(_members(tar), node, backup)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        reason = str(error).partition("\n")[0].removesuffix(":")
        raise BackupError(f"{backup} is neither a directory with a backup nor a complete tar file: {reason}") from error


def _directories(backup: Path) -> Iterator[tuple[Source, Description]]:
    for path in (backup, *sorted(path for path in backup.iterdir() if path.is_dir())):
        description = path / DESCRIPTION_NAME
        if description.is_file():
            yield DirectorySource(path), decode_description(description.read_bytes())


def _members(tar: tarfile.TarFile) -> Iterator[tuple[Source, Description]]:
    for name in tar.getnames():
        prefix, slash, last = name.rpartition("/")
        if last == DESCRIPTION_NAME:
            source = TarSource(tar, prefix + slash)
            with source.open(DESCRIPTION_NAME) as file:
                yield source, decode_description(file.read())


def _chosen(found: Iterator[tuple[Source, Description]], node: str, backup: Path) -> tuple[Source, Description]:
    choices = list(found)
    fitting = [choice for choice in choices if choice[1].node.hex().startswith(node.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if not choices:
        raise BackupError(f"{backup} has no backup: {DESCRIPTION_NAME} is missing")
    ids = ", ".join(sorted(description.node.hex()[:8] for _, description in choices))
    raise BackupError(f"{backup} has the backups of {ids}: choose one with --node")


class Restored(NamedTuple):
    """The result of a restore: jobs, bytes, the backup's time, whether it had settings, and the files moved aside."""

    jobs: int
    size: int
    made_at_ms: int
    node: bytes
    has_identity: bool
    has_settings: bool
    moved: list[str]


def restore(
    source: Source,
    description: Description,
    directory: Path,
    nodes_path: Path,
    progress: Progress,
    *,
    is_new: bool,
    moves_aside: bool,
) -> Restored:
    """Restore a backup. After BackupError, DamagedJournalError or OSError nothing has changed.

    directory    directory of the journal; its parent must exist
    nodes_path   the node's nodes file
    is_new       the node keeps its current id and settings, or gets a new id; else it gets those in the backup
    moves_aside  move an existing journal, or another node's files, away
    """
    store = NodesFileStore(str(nodes_path))
    try:
        store.lock()
    except NodesFileLockedError as error:
        raise BackupError(f"{nodes_path} is in use by a running node: stop it first") from error
    try:
        must_write = False if is_new else _wants_nodes_file(nodes_path, description.node, moves_aside=moves_aside)
        is_foreign = must_write and nodes_path.exists()
        settings_path = _beside(nodes_path, "queues")
        settings = b""
        if not is_new and (is_foreign or not settings_path.exists()):
            settings = _settings(source, description)
        with Install(str(directory), moves_aside=moves_aside) as place:
            tally = _copy(source, description, place.folder, progress)
            moved = []
            nodes_text = _nodes_text(source, description) if must_write else ""
            place.commit()
            if place.moved_to:
                moved.append(place.moved_to)
            if is_foreign:  # That node's settings and votes must not become those of this one.
                for path in (nodes_path, settings_path, _beside(nodes_path, "votes")):
                    if path.exists():
                        aside = free_name(str(path))
                        path.rename(aside)
                        moved.append(aside)
            if settings:
                replace_private(str(settings_path), settings)
            if must_write:
                store.save(nodes_text)
    finally:
        store.close()
    has_identity = not is_new
    return Restored(
        tally.job_count, tally.bytes, description.wall_ms, description.node, has_identity, bool(settings), moved
    )


def _beside(nodes_path: Path, suffix: str) -> Path:
    """Return the path of a file that a node keeps beside its nodes file."""
    return Path(f"{os.path.realpath(nodes_path)}.{suffix}")


def _settings(source: Source, description: Description) -> bytes:
    """Return the file of queue settings in a backup; empty if it has none. Raises DamagedJournalError, OSError."""
    if SETTINGS_NAME not in description.beside:
        return b""
    with source.open(SETTINGS_NAME) as file:
        data = file.read()
    refuse_damaged(SETTINGS_NAME, data, description)
    return data


def _wants_nodes_file(path: Path, node: bytes, *, moves_aside: bool) -> bool:
    """Return whether the nodes file has to be written. Raises BackupError if it belongs to another node."""
    try:
        there = parse(path.read_text(encoding="utf-8", errors="surrogateescape"))[0].id
    except FileNotFoundError:
        return True
    except NodesFileError as error:
        if moves_aside:
            return True
        raise BackupError(f"{path} can't be read ({error}): --force moves it aside") from error
    if there == node:
        return False  # The existing file is newer than the backup.
    if moves_aside:
        return True
    raise BackupError(
        f"{path} belongs to node {there.hex()[:8]}, and the backup to {node.hex()[:8]}: with --new-id the node keeps"
        " its own id, with --force the file is moved aside"
    )


def _nodes_text(source: Source, description: Description) -> str:
    with source.open(NODES_NAME) as file:
        text = file.read().decode("utf-8", "surrogateescape")
    try:
        node = parse(text)[0].id
    except NodesFileError as error:
        raise BackupError(f"{NODES_NAME} of the backup: {error}. Restore with --new-id") from error
    if node != description.node:
        raise BackupError(f"{NODES_NAME} of the backup belongs to another node. Restore with --new-id")
    return text


def _copy(source: Source, description: Description, folder: Files, progress: Progress) -> Tally:
    """Copy the journal's files, set the mark, and read everything back. Raises OSError, DamagedJournalError."""
    # Each byte is copied once and read once.
    total = 2 * sum(description.files.values())
    done = 0
    for name in description.files:
        if parse_file_name(name) is None:
            raise BackupError(f"{DESCRIPTION_NAME} names {name}, which is not a file of a journal")
        folder.create(name, b"")
        at = 0
        with source.open(name) as file:
            while piece := file.read(PIECE_BYTES):
                folder.write(name, at, [piece])
                at += len(piece)
                done += len(piece)
                progress(done, total)
        folder.sync(name)
    refuse_incomplete(folder, description.files)
    folder.create(RESTORED_NAME, b"")
    tally = Tally()
    recovery = read(folder, tally, lambda read_bytes, _: progress(done + read_bytes, total))
    if recovery.newest is None or recovery.torn is not None or recovery.position != description.position:
        raise DamagedJournalError("The backup is incomplete: it ends too early. Copy it again")
    return tally
