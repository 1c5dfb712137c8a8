"""ClosedSegments: the closed files of which a journal consists, and their removal.

A journal is a chain of segments, and a segment is usually one file. After a disk error the segment continues in another
file (a *part*). The header of each file names all earlier files that still count. So the newest file defines the
journal.

A segment without live records is *dropped*: a DROPPED record says so. When that record is on disk, the files of the
segment are removed. Removals run in the READING lane, so they delay no write. The DROPPED record is repeated as long
as the header of the newest file names the segment, because the segment with the first one may itself be dropped. While
files are being copied (`hold`), none is removed. rewrite.py decides which segments to drop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from persistence.disk import READING, Disk, Folder
from persistence.records import Part, file_name


class ClosedSegments:
    """The closed files of one journal.

    files        the closed files, in order
    named        the segments that the header of the file being written names
    on_removed   called after a removal, with its error or None, and with the bytes of the files
    """

    def __init__(self, disk: Disk, on_removed: Callable[[OSError | None, int], None], files: Iterable[Part]) -> None:
        self.files = list(files)
        self.named: frozenset[int] = frozenset()
        self._disk = disk
        self._on_removed = on_removed
        # The last part of each segment that has a file or may have one.
        self._last_part: dict[int, int] = {}
        for file in self.files:
            self.mark_used(file.number, file.part)
        # Segments whose DROPPED record is not on disk yet: the segment's number, and the record's position.
        self._drops: deque[tuple[int, int]] = deque()
        self._removing: set[int] = set()
        # The number of copies in progress. Meanwhile no file is removed, and removals wait in _held.
        self._holds = 0
        self._held: list[list[Part]] = []

    # -- names ---------------------------------------------------------------------------------------

    def next_part(self, number: int) -> int:
        """Return the part number of a new file of this segment."""
        return self._last_part.get(number, -1) + 1

    def mark_used(self, number: int, part: int) -> None:
        """Mark the name of a part as used: its file exists, or a failed attempt left a file of this name behind."""
        self._last_part[number] = max(self._last_part.get(number, -1), part)

    def has_files(self, number: int) -> bool:
        """Return whether this segment has files, including files that are being removed."""
        return number in self._last_part

    # -- questions -----------------------------------------------------------------------------------

    @property
    def dropping(self) -> set[int]:
        """Return the segments being dropped: their record is not on disk yet, or their files are being removed."""
        return {number for number, _ in self._drops} | self._removing

    @property
    def is_dropping(self) -> bool:
        """Return whether DROPPED records are not on disk yet."""
        return bool(self._drops)

    def before(self, number: int) -> list[int]:
        """Return the segments before this one that are closed and not being dropped, oldest first."""
        return sorted({file.number for file in self.files if file.number < number} - self.dropping)

    def parts_of(self, number: int) -> list[Part]:
        """Return the files of a segment."""
        return [file for file in self.files if file.number == number]

    def up_to(self, number: int) -> list[Part]:
        """Return the files up to this segment, oldest first, including files that wait to be removed."""
        held = [file for files in self._held for file in files if file not in self.files]
        return sorted(file for file in (*held, *self.files) if file.number <= number)

    @property
    def size(self) -> int:
        """Return the bytes of all blocks."""
        return sum(file.end - file.start for file in self.files)

    @property
    def size_going(self) -> int:
        """Return how many of these bytes are being dropped."""
        going = self.dropping
        return sum(file.end - file.start for file in self.files if file.number in going)

    def forget_files(self, names: list[str]) -> None:
        """Forget these files: they are gone for an unknown reason."""
        self.files = [file for file in self.files if file_name(file.number, file.part) not in names]

    # -- dropping ------------------------------------------------------------------------------------

    def gone_with(self, number: int) -> list[int]:
        """Return the other segments that the record which drops this segment has to name."""
        left = {file.number for file in self.files}
        return sorted((self.named - left | self.dropping) - {number})

    def drop(self, number: int, position: int) -> None:
        """Remove the files of this segment as soon as the journal is on disk up to `position`."""
        assert not self._drops or self._drops[-1][1] <= position
        self._drops.append((number, position))

    def on_synced(self, synced: int) -> None:
        """Remove the files whose DROPPED record is on disk. The journal is on disk up to `synced`."""
        while self._drops and not self._holds and self._drops[0][1] <= synced:
            self._remove(self.parts_of(self._drops.popleft()[0]))

    def begin_anew(self) -> None:
        """Remove all closed files, because the header of the newest file names none of them any more."""
        old, self.files = self.files, []
        for number in sorted({part.number for part in old}):
            self._remove([part for part in old if part.number == number])

    def hold(self) -> None:
        """Remove no file until `release`."""
        self._holds += 1

    def release(self, synced: int) -> None:
        """Allow removals again, and start those that waited."""
        assert self._holds > 0
        self._holds -= 1
        if not self._holds:
            held, self._held = self._held, []
            for files in held:
                self._remove(files)
            self.on_synced(synced)

    def _remove(self, files: list[Part]) -> None:
        if self._holds:
            self._held.append(files)
            return
        names = [file_name(file.number, file.part) for file in files]
        numbers = {file.number for file in files}
        size = sum(file.end - file.start for file in files)
        self._removing |= numbers

        def work(folder: Folder) -> None:
            for name in names:
                folder.remove(name)

        def done(outcome: OSError | None) -> None:
            self._removing -= numbers
            # A file that can't be removed stays in the chain. So the records of the ends of its jobs are kept, too.
            if outcome is None:
                self.files = [file for file in self.files if file not in files]
                for number in sorted(numbers):
                    self._last_part.pop(number, None)
            self._on_removed(outcome, size)

        self._disk.start(READING, work, done)
