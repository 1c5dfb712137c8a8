r"""Reading the original's disque.aof, for nodes that move from Disque to disque-py. Spec J6.

The file is a sequence of RESP commands, of two kinds. `LOADJOB <blob>`: the job exists. `DELJOB <id>`: it is gone or
acknowledged. Deliveries, nacks and leases are not in it, so the fate of a job after it was queued is unknown. Hence:

* RETRY > 0: the job waits for its retry (or the rest of its DELAY, counted from its creation) and is queued then. A job
  that was in a queue is queued at once when the node is started with `aof-enqueue-jobs-once yes`.
* RETRY 0: the job may have been delivered. It is imported as a job that can't be queued and that SHOW shows, unless the
  caller knows that it was not delivered (spec O5: at-most-once prefers loss).

The file does not say which node it belongs to. That node holds every job in it, so its id is in every set of holders
(the original names itself there when it keeps a copy). `common_holders` are the ids that all jobs share.
"""

# Stays Python: runs in programs only, not in a node.
from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from persistence.items import ID_BYTES, NODE_BYTES, Facts
from persistence.layouts import IS_DELIVERED, IS_QUEUED, WAS_QUEUED

# Length, id, state and collection attempts, flags, replicate, expire s, ctime, delay s, retry s, nacks, deliveries.
_BLOB: Final = struct.Struct("<I40sBBHIQIIHH")
_LENGTH: Final = struct.Struct("<I")
_STATE_BITS: Final = 0x0F
ACTIVE: Final = 1
QUEUED: Final = 2
_BCAST_QUEUED: Final = 1  # Its next queueing is a requeue.
_DELIVERED: Final = 4
_NAME_BYTES: Final = 2 * NODE_BYTES  # A node's id in a blob is hex.

# No record of the original has more words, or a longer one.
WORDS_MAX: Final = 1_000_000
WORD_BYTES_MAX: Final = 1 << 31
PIECE_BYTES: Final = 1 << 20
# Retries of jobs that were loaded together are spread out: this many jobs become due per millisecond.
SPREAD_JOBS_PER_MS: Final = 20


class AofError(ValueError):
    """An error in the original's journal: it is another file, or it is damaged. The text names the byte."""


class Blob(NamedTuple):
    """The content of a LOADJOB: the original's fields, times in the original's units."""

    id: bytes
    state: int
    flags: int
    replicate: int
    expire_at_s: int
    ctime: int
    delay_s: int
    retry_s: int
    nacks: int
    deliveries: int
    queue: bytes
    body: bytes
    holders: tuple[bytes, ...]


def parse_blob(data: bytes, sets: dict[bytes, tuple[bytes, ...]] | None = None) -> Blob:
    """Parse a LOADJOB's argument; AofError with the reason.

    sets   holders that were met before, by their bytes: a million jobs have few different ones
    """
    try:
        length, job_id, state, flags, replicate, expire_at_s, ctime, delay_s, retry_s, nacks, deliveries = (
            _BLOB.unpack_from(data)
        )
        at = _BLOB.size
        parts = []
        for _ in range(2):
            (size,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            parts.append(data[at : at + size])
            at += size
        (count,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
    except struct.error:
        raise AofError("a LOADJOB that is cut off") from None
    if at + count * _NAME_BYTES != len(data) or length not in (len(data), len(data) - _LENGTH.size):
        raise AofError("a LOADJOB with wrong lengths")
    if job_id[:2] != b"D-" or job_id[10] != 45 or job_id[35] != 45:
        raise AofError("a LOADJOB with a malformed job id")
    named = data[at:]
    holders = sets.get(named) if sets is not None else None
    if holders is None:
        holders = _holders(named)
        if sets is not None:
            sets[named] = holders
    return Blob(
        job_id,
        state & _STATE_BITS,
        flags,
        replicate,
        expire_at_s,
        ctime,
        delay_s,
        retry_s,
        nacks,
        deliveries,
        parts[0],
        parts[1],
        holders,
    )


def _holders(named: bytes) -> tuple[bytes, ...]:
    try:
        names = named.decode("ascii")
        return tuple(bytes.fromhex(names[at : at + _NAME_BYTES]) for at in range(0, len(names), _NAME_BYTES))
    except ValueError:
        raise AofError("a LOADJOB with malformed node ids") from None


class AofReader:
    """A reader that takes the file in pieces of any size.

    jobs            id -> blob of each job that exists, in the file's order
    record_count    LOADJOB and DELJOB so far
    offset          end of the last whole record
    """

    def __init__(self) -> None:
        self.jobs: dict[bytes, bytes] = {}
        self.record_count = 0
        self.offset = 0
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes; AofError with the place of bytes that are no record."""
        data = self._rest + piece if self._rest else piece
        at = 0
        jobs = self.jobs
        while True:
            try:
                taken = take_record(data, at)
            except AofError as wrong:
                raise AofError(f"byte {self.offset + at}: {wrong}") from None
            if taken is None:
                break
            words, end = taken
            name = words[0].upper()
            if name == b"LOADJOB" and len(words) == 2 and len(words[1]) >= _BLOB.size:
                # The first of two jobs with one id counts, as in the original. After a DELJOB it is a new job.
                jobs.setdefault(words[1][_LENGTH.size : _LENGTH.size + ID_BYTES], words[1])
            elif name == b"DELJOB" and len(words) >= 2:
                for job_id in words[1:]:
                    jobs.pop(job_id, None)
            else:
                shown = words[0][:40].decode("ascii", "backslashreplace")
                raise AofError(f"byte {self.offset + at}: {shown} with {len(words) - 1} arguments is no record")
            self.record_count += 1
            at = end
        self.offset += at
        self._rest = data[at:]

    @property
    def torn_bytes(self) -> int:
        """Return how many bytes follow the last whole record."""
        return len(self._rest)

    @property
    def piece_bytes(self) -> int:
        """Return how much to feed next, so that a long record is not put together from many small pieces."""
        return max(PIECE_BYTES, len(self._rest))

    def holder_sets(self) -> list[tuple[bytes, ...]]:
        """Return the different sets of holders that there are."""
        found: dict[bytes, None] = {}
        for data in self.jobs.values():
            at = _BLOB.size
            for _ in range(2):  # Behind the queue's name and the body. `blobs` reports wrong lengths.
                at += _LENGTH.size + int.from_bytes(data[at : at + _LENGTH.size], "little")
            found[data[at + _LENGTH.size :]] = None
        return [_holders(named) for named in found]

    def blobs(self) -> Iterator[Blob]:
        """Yield the jobs that exist; AofError with the id of a job that can't be read."""
        sets: dict[bytes, tuple[bytes, ...]] = {}
        for job_id, data in self.jobs.items():
            try:
                yield parse_blob(data, sets)
            except AofError as wrong:
                raise AofError(f"job {job_id.decode('ascii', 'backslashreplace')}: {wrong}") from None


def take_record(data: bytes, at: int) -> tuple[list[bytes], int] | None:
    """Return the words of the record at `at` and its end; None if it isn't complete. AofError if it is no record."""
    head = _line(data, at, b"*")
    if head is None:
        return None
    count, at = head
    if not 1 <= count <= WORDS_MAX:
        raise AofError(f"a record of {count} words")
    words = []
    for _ in range(count):
        head = _line(data, at, b"$")
        if head is None:
            return None
        size, at = head
        end = at + size
        if end + 2 > len(data):
            return None
        if data[end : end + 2] != b"\r\n":
            raise AofError("a word that is longer than it says")
        words.append(data[at:end])
        at = end + 2
    return words, at


def _line(data: bytes, at: int, sign: bytes) -> tuple[int, int] | None:
    """Return the number of a line like `*2` and the start of the next line; None if it isn't complete."""
    end = data.find(b"\r\n", at, at + 16)
    if end < 0:
        if len(data) - at >= 16 or (len(data) > at and data[at : at + 1] != sign):
            raise AofError(f"`{sign.decode()}` and a number expected")
        return None
    digits = data[at + 1 : end]
    if data[at : at + 1] != sign or not digits.isdigit() or int(digits) > WORD_BYTES_MAX:
        raise AofError(f"`{sign.decode()}` and a number expected")
    return int(digits), end + 2


def facts_of_blob(blob: Blob, index: int, wall_ms: int) -> Facts | None:
    """Return the job for our journal; None if its life is over or its producer never got a reply.

    index     its place among the jobs: jobs that become due together are spread a little
    wall_ms   now
    """
    expire_at_ms = blob.expire_at_s * 1000
    if expire_at_ms <= wall_ms or blob.state not in (ACTIVE, QUEUED):
        return None
    delay_ms, retry_ms = blob.delay_s * 1000, blob.retry_s * 1000
    delayed_until_ms = blob.ctime // 1_000_000 + delay_ms if delay_ms else 0
    # A copy that another node made: it is queued here one RETRY after it should have been queued there.
    is_copy = bool(blob.flags & _BCAST_QUEUED)
    flags = IS_DELIVERED if blob.flags & _DELIVERED else 0
    due_at_ms = 0
    if blob.state == QUEUED:
        flags |= IS_QUEUED | WAS_QUEUED
    elif delayed_until_ms > wall_ms and not is_copy:
        due_at_ms = delayed_until_ms
    elif retry_ms:
        due_at_ms = max(delayed_until_ms, wall_ms) + retry_ms + index // SPREAD_JOBS_PER_MS
        flags |= WAS_QUEUED
    return Facts(
        blob.id,
        blob.queue,
        blob.body,
        blob.ctime,
        expire_at_ms,
        retry_ms,
        delay_ms,
        blob.replicate,
        blob.nacks,
        blob.deliveries,
        0,
        flags,
        due_at_ms,
        blob.holders,
    )


def common_holders(holder_sets: list[tuple[bytes, ...]]) -> set[bytes]:
    """Return the ids that all sets name; empty if there are none, or no sets."""
    return set.intersection(*map(set, holder_sets)) if holder_sets else set()
