"""Backup: one consistent copy of a journal, made while the journal is written.

JOURNAL BACKUP makes one. The segment that is being written is closed, and later records go to a new one. When the
closed segment is on disk, all closed files are linked into another directory: no byte is copied, and no reply waits.
Meanwhile no file is removed, not even by a compaction in progress. So the copy is the journal of one moment. Records in
it name the segments that were dropped before. A description (`backup.json`) comes last: a directory without it is not a
backup.

Beside the journal's files, a backup has the nodes file, and the queue settings if there are any. The description has
their lengths and checksums.

The copy has the mark of a restored journal (recovery.py). A node that starts from it does not know the time since the
backup, so it never queues at-most-once jobs from it (spec O5).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from persistence.disk import READING, Disk, Folder
from persistence.journal import Journal
from persistence.records import Part, file_name
from persistence.recovery import RESTORED_NAME, DamagedJournalError

DESCRIPTION_NAME: Final = "backup.json"
NODES_NAME: Final = "nodes.conf"
# Queue settings, schedules, topics and users, in the format of the node's own file of them.
SETTINGS_NAME: Final = "nodes.conf.queues"
FORMAT: Final = 1
NAME_LENGTH_MAX: Final = 100
_NAME_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Made(NamedTuple):
    """A complete backup: its directory, how many files of the journal it has, their bytes."""

    directory: str
    file_count: int
    size: int


class Beside(NamedTuple):
    """The bytes and the CRC-32 of a file that is not the journal's."""

    size: int
    checksum: int


class Description(NamedTuple):
    """A backup's description.

    node       the id of its node
    wall_ms    when it was made (Unix ms)
    files      the journal's files, with their bytes
    position   the journal's end
    beside     the other files; empty in backups of older versions
    """

    node: bytes
    wall_ms: int
    files: dict[str, int]
    position: int
    beside: dict[str, Beside] = {}  # noqa: RUF012  # Never changed.


class DescriptionError(ValueError):
    """The text is no backup's description."""


def is_name(name: str) -> bool:
    """Whether a backup may be called that: a plain file name, not hidden."""
    return 0 < len(name) <= NAME_LENGTH_MAX and name[0] not in ".-" and _NAME_CHARS.issuperset(name)


def encode_description(description: Description) -> bytes:
    """Return the content of DESCRIPTION_NAME."""
    row = {
        "format": FORMAT,
        "node": description.node.hex(),
        "made_at_ms": description.wall_ms,
        "position": description.position,
        "files": description.files,
        "beside": {name: file._asdict() for name, file in description.beside.items()},
    }
    return json.dumps(row, indent=2).encode() + b"\n"


def decode_description(data: bytes) -> Description:
    """Read the content of DESCRIPTION_NAME; DescriptionError with the reason."""
    try:
        row: Any = json.loads(data)
        if row["format"] != FORMAT:
            raise DescriptionError(f"{DESCRIPTION_NAME}: format {row['format']}, this version reads {FORMAT}")
        files = {str(name): int(size) for name, size in row["files"].items()}
        beside = {
            str(name): Beside(int(file["size"]), int(file["checksum"])) for name, file in row.get("beside", {}).items()
        }
        return Description(bytes.fromhex(row["node"]), int(row["made_at_ms"]), files, int(row["position"]), beside)
    except (ValueError, TypeError, KeyError, AttributeError) as broken:
        if isinstance(broken, DescriptionError):
            raise
        raise DescriptionError(f"{DESCRIPTION_NAME} is damaged: {broken}") from broken


def refuse_incomplete(folder: Folder, files: Mapping[str, int]) -> None:
    """Raise DamagedJournalError if one of these files is missing or has another length than when it was copied."""
    names = set(folder.names())
    for name, size in files.items():
        if name not in names:
            raise DamagedJournalError(f"{name} is missing in the backup. Copy it again")
        if folder.size(name) != size:
            raise DamagedJournalError(f"{name} has {folder.size(name)} bytes instead of {size}. Copy it again")


def refuse_damaged(name: str, data: bytes, description: Description) -> None:
    """Raise DamagedJournalError if a file beside the journal's has not the content that was copied."""
    if Beside(len(data), zlib.crc32(data)) != description.beside[name]:
        raise DamagedJournalError(f"{name} is damaged in the backup, or incomplete. Copy it again")


class Backup:
    """The making of one backup. `done` is called once, with Made or with the OSError that prevented it.

    After an error nothing is left behind.

    directory    the directory to make; two levels of it are made
    beside       the content of files that are not the journal's, by name
    begin_turn   called before the journal is touched from the disk's callback
    """

    def __init__(
        self,
        journal: Journal,
        disk: Disk,
        directory: str,
        beside: Mapping[str, bytes],
        begin_turn: Callable[[], None],
        done: Callable[[Made | OSError], None],
    ) -> None:
        self._journal = journal
        self._disk = disk
        self._directory = directory
        self._beside = beside
        self._begin_turn = begin_turn
        self._done = done
        self._number = 0
        self._position = 0

    def start(self) -> None:
        """Check that the place is free; clear away the remains of a backup that was cut short."""
        directory = self._directory

        def look(folder: Folder) -> None:
            names = folder.stored(directory)
            if DESCRIPTION_NAME in names:
                raise FileExistsError(f"there is a backup in {directory} already")
            if names:
                folder.discard(directory)

        self._disk.start(READING, look, self._looked)

    def _looked(self, outcome: OSError | None) -> None:
        self._begin_turn()
        if isinstance(outcome, OSError):
            self._done(outcome)
            return
        journal = self._journal
        journal.hold()
        journal.append([])  # So that there is something to close.
        self._position = journal.position
        self._number = journal.rotate()
        journal.append([])  # So that the next file is opened now.
        journal.when_closed(self._number, self._closed)

    def _closed(self, failure: OSError | None) -> None:
        self._begin_turn()
        if failure is not None:
            self._end(failure)
            return
        # This work comes after the removals in flight in the same lane, so the journal knows of them before we go on.
        self._disk.start(READING, lambda folder: None, self._settled)

    def _settled(self, outcome: OSError | None) -> None:
        self._begin_turn()
        directory, beside = self._directory, self._beside
        parts = self._journal.files_up_to(self._number)
        node, wall_ms, position = self._journal.node, self._journal.wall_ms, self._position

        def link(folder: Folder) -> Made:
            try:
                files = {name: _linked(folder, name, directory) for name in names_of(parts)}
                folder.store(directory, RESTORED_NAME, b"")
                for name, data in beside.items():
                    folder.store(directory, name, data, is_private=name == SETTINGS_NAME)
                others = {name: Beside(len(data), zlib.crc32(data)) for name, data in beside.items()}
                description = Description(node, wall_ms, files, position, others)
                folder.store(directory, DESCRIPTION_NAME, encode_description(description))
            except OSError:
                folder.discard(directory)
                raise
            return Made(directory, len(files), sum(files.values()))

        self._disk.start(READING, link, self._linked)

    def _linked(self, outcome: Made | OSError) -> None:
        self._begin_turn()
        self._end(outcome)

    def _end(self, outcome: Made | OSError) -> None:
        self._journal.release()
        self._done(outcome)


def names_of(parts: list[Part]) -> list[str]:
    """Return the names of their files."""
    return [file_name(part.number, part.part) for part in parts]


def _linked(folder: Folder, name: str, directory: str) -> int:
    folder.link(name, directory)
    return folder.size(name)
