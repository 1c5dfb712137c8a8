"""Reads a whole journal without a broker, to count its records or to collect its jobs.

`read` walks over the journal as a starting node does (recovery.py), and passes every block to a reader. So it refuses
the same journals as a node, with the same error texts. This module has two such readers. `Tally` counts, and keeps
only one number per living job. `JobCollector` keeps the jobs themselves, as items. Its `jobs` turns them into facts.
"""

# Stays Python: runs in programs only, and defines protocols.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from persistence.disk import Folder
from persistence.items import Facts, check_base, check_state, facts_of
from persistence.layouts import (
    ATTRIBUTES_AT,
    BASE_BYTES,
    BASE_STATE,
    BASE_STATE_AT,
    BODY_AT,
    HEADER,
    HEADER_AT,
    HOLDERS_AT,
    ID_AT,
    IS_ACKED,
    IS_DELIVERED,
    IS_QUEUED,
    PAUSED_AT,
    QUEUE_AT,
    RETRY_END,
    RETRY_START,
    SEGMENT_AT,
    STATE_AT,
    STATE_FIELDS,
    STATE_FIELDS_V1,
    STATE_FIELDS_V2,
    STATE_HOLDERS_AT,
    STATE_PART_AT,
)
from persistence.records import (
    DROPPED,
    GONE,
    IS_ALWAYS,
    JOB,
    KIND_NAMES,
    PAUSE,
    STATE,
    Block,
    FormatError,
)
from persistence.recovery import ADVICE, DamagedJournalError, Recovery

# A Tally keeps one number per job. From the lowest bit on, it has: the flags of the job's state, the bits _HAS_STATE
# and _IS_ONCE, the bytes of its base, and the base's segment.
_FLAGS: Final = 0xFF
# Positions in the changeable part of a job: its queue, ms of life left, ms until due (docs/bus.md).
PART_QUEUE_AT: Final = 2
PART_LEFT_AT: Final = 4
PART_DUE_AT: Final = 5
_HAS_STATE: Final = 1 << 8
_IS_ONCE: Final = 1 << 9
_SIZE_SHIFT: Final = 10
_SIZE_MAX: Final = (1 << 38) - 1
_PLACE_SHIFT: Final = 48


class Reader(Protocol):
    """A receiver of the blocks, in order."""

    def take(self, number: int, block: Block) -> None:
        """Take a block of segment `number`. FormatError if the block has a malformed record."""


def read(folder: Folder, reader: Reader, progress: Callable[[int, int], None] | None = None) -> Recovery:
    """Read a whole journal. Return the Recovery, which says how the journal ended.

    progress   called with the bytes read so far and the bytes in all

    DamagedJournalError and FormatError name the place of the damage. Raises OSError, too.
    """
    recovery = Recovery(folder)
    dropped: set[int] = set()
    while blocks := recovery.step():
        for number, block in blocks:
            try:
                reader.take(number, block)
                for run in block.runs:
                    if run[0] == DROPPED:
                        dropped.update(run[1:])
            except (FormatError, TypeError, IndexError, ValueError) as broken:
                raise DamagedJournalError(
                    f"segment {number}, position {block.position}: {broken}. {ADVICE}"
                ) from broken
        if progress is not None:
            progress(recovery.done_bytes, recovery.total_bytes)
    lost = recovery.missing - dropped
    if lost:
        raise DamagedJournalError(f"segment {min(lost)} of the journal is missing. {ADVICE}")
    return recovery


class SegmentTally:
    """The sums of one segment. `live_bytes` is the approximate size of the bases of living jobs."""

    __slots__ = ("block_count", "bytes", "job_count", "live_bytes", "live_jobs", "record_count")

    def __init__(self) -> None:
        self.block_count = self.bytes = self.record_count = self.job_count = self.live_jobs = self.live_bytes = 0


class KindTally(NamedTuple):
    """Records of one kind: how many there are, and how many still count."""

    name: str
    total: int
    live: int


class Tally:
    """Sums over a journal.

    segments        number -> SegmentTally; its live figures are computed by `settle`
    always_blocks   blocks that were written under `appendfsync always`
    first_ms, last_ms   wall clock of the first and the last block
    """

    def __init__(self) -> None:
        self.segments: dict[int, SegmentTally] = {}
        self.block_count = self.always_blocks = 0
        self.first_ms = self.last_ms = 0
        self._counts = dict.fromkeys(KIND_NAMES, 0)
        self._unknown = 0
        self._jobs: dict[bytes, int] = {}
        self._gone: list[int] = []
        self._dropped: list[int] = []
        self._pauses: set[bytes] = set()

    def take(self, number: int, block: Block) -> None:
        """Count a block of segment `number`."""
        segment = self.segments.get(number)
        if segment is None:
            segment = self.segments[number] = SegmentTally()
        segment.block_count += 1
        segment.bytes += block.size
        self.block_count += 1
        self.always_blocks += bool(block.flags & IS_ALWAYS)
        self.first_ms = self.first_ms or block.wall_ms
        self.last_ms = block.wall_ms or self.last_ms
        for run in block.runs:
            kind = run[0]
            count = len(run) - 1
            segment.record_count += count
            if kind not in self._counts:
                self._unknown += count
                continue
            self._counts[kind] += count
            if kind == JOB:
                segment.job_count += count
                self._bases(number, run)
            elif kind == STATE:
                self._states(run)
            elif kind == GONE:
                for item in run[1:]:
                    self._jobs.pop(item[ID_AT], None)
                    self._gone.append(item[SEGMENT_AT])
            elif kind == PAUSE:
                self._pauses.update(item[PAUSED_AT] for item in run[1:])
            elif kind == DROPPED:
                self._dropped += run[1:]

    def _bases(self, number: int, run: list[Any]) -> None:
        jobs = self._jobs
        place = number << _PLACE_SHIFT
        for item in run[1:]:
            check_base(item)
            size = min(BASE_BYTES + len(item[QUEUE_AT]) + len(item[BODY_AT]), _SIZE_MAX)
            flags = item[BASE_STATE_AT][0]
            is_once = not any(item[HEADER_AT][RETRY_START:RETRY_END])
            jobs[item[ID_AT]] = place | size << _SIZE_SHIFT | (_IS_ONCE if is_once else 0) | flags

    def _states(self, run: list[Any]) -> None:
        jobs = self._jobs
        for item in run[1:]:
            check_state(item)
            known = jobs.get(item[ID_AT])
            if known is not None:
                jobs[item[ID_AT]] = known & ~_FLAGS | _HAS_STATE | item[STATE_AT][0]

    def settle(self) -> None:
        """Compute the live figures of each segment. Call it after the last block."""
        for segment in self.segments.values():
            segment.live_jobs = segment.live_bytes = 0
        for value in self._jobs.values():
            segment = self.segments[value >> _PLACE_SHIFT]
            segment.live_jobs += 1
            segment.live_bytes += value >> _SIZE_SHIFT & _SIZE_MAX

    def kinds(self) -> list[KindTally]:
        """Return the sums per kind of record.

        A GONE or DROPPED record still counts while the journal has the segment that it names. All records of the kinds
        without a rule here count. Records of unknown kinds are one sum, and none of them counts as live.
        """
        living = self._jobs.values()
        live = {
            JOB: len(living),
            STATE: sum(1 for value in living if value & _HAS_STATE),
            GONE: sum(1 for place in self._gone if place in self.segments),
            PAUSE: len(self._pauses),
            DROPPED: sum(1 for number in self._dropped if number in self.segments),
        }
        kinds = [
            KindTally(name, self._counts[kind], live.get(kind, self._counts[kind])) for kind, name in KIND_NAMES.items()
        ]
        return [*kinds, KindTally("unknown", self._unknown, 0)] if self._unknown else kinds

    def states(self) -> dict[str, int]:
        """Return how many living jobs there are per state, and how many of them are at-most-once."""
        found = {"queued": 0, "active": 0, "acked": 0, "delivered": 0, "at-most-once": 0}
        for value in self._jobs.values():
            name = "acked" if value & IS_ACKED else "queued" if value & IS_QUEUED else "active"
            found[name] += 1
            found["delivered"] += bool(value & IS_DELIVERED)
            found["at-most-once"] += bool(value & _IS_ONCE)
        return found

    @property
    def job_count(self) -> int:
        """Return the number of living jobs."""
        return len(self._jobs)

    @property
    def live_bytes(self) -> int:
        """Return the approximate size of the bases of living jobs, in bytes."""
        return sum(segment.live_bytes for segment in self.segments.values())

    @property
    def bytes(self) -> int:
        """Return the bytes of all blocks."""
        return sum(segment.bytes for segment in self.segments.values())


class _Job:
    """A living job's base and the records after it."""

    __slots__ = ("base", "serial", "state", "state_wall_ms", "wall_ms")

    def __init__(self, base: Any, wall_ms: int, serial: int) -> None:
        self.base = base
        self.wall_ms = wall_ms
        self.serial = serial
        self.state: bytes | None = None
        self.state_wall_ms = 0


class JobCollector:
    """The living jobs of a journal, and its pauses.

    pauses   queue -> (flags, version ms, node) of its last record
    """

    def __init__(self) -> None:
        self.pauses: dict[bytes, tuple[int, int, bytes]] = {}
        self._jobs: dict[bytes, _Job] = {}
        self._names: dict[bytes, bytes] = {}
        self._serial = 0
        self._uncertain = 0

    def take(self, number: int, block: Block) -> None:
        """Take a block."""
        self._serial += 1
        if not block.flags & IS_ALWAYS:
            self._uncertain = self._serial
        jobs = self._jobs
        one = self._names.setdefault
        for run in block.runs:
            kind = run[0]
            if kind == JOB:
                for item in run[1:]:
                    check_base(item)
                    # There are few queues and sets of holders, so jobs share one object for each.
                    item[QUEUE_AT] = one(item[QUEUE_AT], item[QUEUE_AT])
                    item[HOLDERS_AT] = one(item[HOLDERS_AT], item[HOLDERS_AT])
                    jobs.pop(item[ID_AT], None)  # A base that is written again moves to the position of its new record.
                    jobs[item[ID_AT]] = _Job(item, block.wall_ms, self._serial)
            elif kind == STATE:
                for item in run[1:]:
                    check_state(item)
                    job = jobs.get(item[ID_AT])
                    if job is not None:
                        job.state = item[STATE_AT]
                        job.state_wall_ms = block.wall_ms
                        holders = item[STATE_HOLDERS_AT]
                        if holders is not None:
                            job.base[HOLDERS_AT] = one(holders, holders)
                        if len(item) > STATE_PART_AT:
                            _take_changes(job.base, item[STATE_PART_AT], max(0, block.wall_ms - job.wall_ms))
            elif kind == GONE:
                for item in run[1:]:
                    jobs.pop(item[ID_AT], None)
            elif kind == PAUSE:
                for name, flags, version_ms, version_node, *_ in run[1:]:
                    self.pauses[name] = (flags, version_ms, version_node)

    def __len__(self) -> int:
        return len(self._jobs)

    def jobs(self, *, is_certain: bool, is_whole: bool) -> Iterator[Facts]:
        """Yield the jobs as a restart would find them, including expired ones.

        is_certain   whether the shutdown was clean, so that the journal has every change
        is_whole     whether the journal has no torn tail

        An at-most-once job that may have been delivered is yielded as delivered (spec O4).
        """
        uncertain = self._uncertain if is_whole else self._serial
        for job in self._jobs.values():
            facts = facts_of(job.base, job.wall_ms, job.state, job.state_wall_ms)
            if not facts.retry_ms and not is_certain and job.serial <= uncertain:
                facts = facts._replace(flags=facts.flags & ~IS_QUEUED | IS_DELIVERED, due_at_ms=0)
            yield facts


def _take_changes(base: list[Any], part: Any, since_ms: int) -> None:
    """Put the changeable part of a STATE record into a base that was written `since_ms` earlier. FormatError.

    The part counts its spans from the time of the STATE record. A base counts them from its own time, so they grow by
    `since_ms`.
    """
    if not isinstance(part, list | tuple) or len(part) <= PART_DUE_AT or type(part[PART_QUEUE_AT]) is not bytes:
        raise FormatError("a malformed state record")
    if type(part[PART_LEFT_AT]) is not int or type(part[PART_DUE_AT]) is not int:
        raise FormatError("a malformed state record")
    changed = list(part)
    changed[PART_LEFT_AT] += since_ms
    if changed[PART_DUE_AT]:
        changed[PART_DUE_AT] += since_ms
    base[QUEUE_AT] = changed[PART_QUEUE_AT]
    base[ATTRIBUTES_AT:] = [base[ATTRIBUTES_AT] if len(base) > ATTRIBUTES_AT else None, changed]


class RecordReceiver(Protocol):
    """A receiver of records, one by one."""

    def __call__(self, number: int, block: Block, kind: int, item: Any) -> None:
        """Take one record."""


class RecordFeed:
    """A reader of blocks that passes every record to `show`."""

    def __init__(self, show: RecordReceiver) -> None:
        self._show = show

    def take(self, number: int, block: Block) -> None:
        """Pass on the records of a block."""
        show = self._show
        for run in block.runs:
            kind = run[0]
            for item in run[1:]:
                show(number, block, kind, item)


def described_state(packed: bytes) -> tuple[int, int]:
    """Return the flags of a base's or a STATE's bytes, and the ms until the job is due, or -1."""
    flags, due_ms = BASE_STATE.unpack_from(packed)
    return flags, due_ms


def described_numbers(packed: bytes) -> dict[str, int]:
    """Return the other numbers of a STATE's bytes, by name. Older formats have fewer of them."""
    layouts = (STATE_FIELDS, STATE_FIELDS_V2)
    layout = next((layout for layout in layouts if len(packed) >= layout.size), STATE_FIELDS_V1)
    names = ("attempt", "nacks", "deliveries", "version")
    return dict(zip(names, layout.unpack_from(packed)[2:], strict=False))


def described_header(packed: bytes) -> dict[str, int]:
    """Return the numbers of a base's header, by name."""
    names = ("ctime", "left_ms", "retry_ms", "delay_ms", "replicate", "nacks", "deliveries", "attempt")
    return dict(zip(names, HEADER.unpack_from(packed), strict=True))
