"""Spilled: the value of a job's `body` while the body is in a file (spilling.py).

A Spilled is a number, not bytes. Code that sends or shows it as a body by mistake fails immediately, and a type checker
finds such code. Its `len` is its size in memory, so `used_memory` is the sum over `len(job.body)`, whether bodies are
spilled or not. Its `size` is the length of the body, which counts in the journal.

Files are numbered from 1, in the order in which they are made (persistence/spill.py).
"""

# Stays Python: a class here derives from int, which a compiled class cannot do.
from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.core.broker import Broker
    from disque_py.core.client import Client
    from disque_py.core.job import Job
    from disque_py.core.queue import Queue

    # Called with the body, or with None if it could not be read: the job is gone then.
    Reader = Callable[[Broker, Job, bytes | None], None]

# A mark that memory never reaches.
NEVER: Final = 1 << 62

# A smaller body stays in memory, because spilling it would free little memory for the same work.
BODY_BYTES_MIN: Final = 256
# At the head of a queue, bodies of at most this many jobs and bytes are kept in memory and read ahead.
NEAR_JOBS: Final = 512
NEAR_BYTES: Final = 2 << 20

# The bytes that such a number takes beyond the header, which every bytes object has, too.
SPILLED_BYTES: Final = 16

OFFSET_BITS: Final = 30
SIZE_BITS: Final = 30
_OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
_SIZE_MASK: Final = (1 << SIZE_BITS) - 1


class Spilled(int):
    """A body's place on disk: the number of the file, the offset in it, and the body's length in bytes."""

    __slots__ = ()

    @classmethod
    def at(cls, file: int, offset: int, size: int) -> Spilled:
        """Return the place with these parts. Offset and size have 30 bits each."""
        assert offset <= _OFFSET_MASK
        assert size <= _SIZE_MASK
        return cls((file << OFFSET_BITS | offset) << SIZE_BITS | size)

    def __len__(self) -> int:
        return SPILLED_BYTES

    def __bool__(self) -> bool:
        return True

    @property
    def file(self) -> int:
        """The number of the file."""
        return self >> (OFFSET_BITS + SIZE_BITS)

    @property
    def offset(self) -> int:
        """The offset in the file."""
        return self >> SIZE_BITS & _OFFSET_MASK

    @property
    def size(self) -> int:
        """The length of the body."""
        return self & _SIZE_MASK


Body = bytes | Spilled


class Unread:
    """A body that could not be read from its place on disk, and may be in the journal (storage/body_recovery.py).

    place      where the body should be
    reason     the error at that place
    position   the end of the journal when the search in it began; -1: it has not begun
    tries      how often the journal could not be read
    """

    __slots__ = ("job", "place", "position", "reader", "reason", "tries")

    def __init__(self, job: Job, reader: Reader, place: Spilled, reason: str) -> None:
        self.job = job
        self.reader = reader
        self.place = place
        self.reason = reason
        self.position = -1
        self.tries = 0


def size_of(body: Body) -> int:
    """Return the body's real length, in memory or on disk."""
    return body.size if type(body) is Spilled else len(body)


class Spill:
    """A broker's knowledge of its bodies on disk. `spilling.py` has the rules, and the spill service does the work.

    The core leaves requests for the spill service here:

    readings         bodies that the core wants -> the function that gets each
    released         places that the core does not need any more
    heads            queues whose next jobs should be in memory -> the job that stalls the queue
    is_void          whether all jobs were forgotten together

    The rest is state:

    is_on            whether bodies may leave memory: `maxmemory-spill yes`, and there is a directory for them
    above            bodies leave memory while used_memory is above this
    writing          jobs whose bodies are being written
    writing_bytes    the bytes of these bodies
    reading          jobs whose bodies were asked for or are being read
    unread           bodies that could not be read, and may be in the journal, until their readers are called
    lent             bodies that were read for the journal in this turn (journaling.py)
    fresh            the newest jobs that came since bodies may leave memory, in order
    older            the earlier ones, in chunks; `tidied` is the chunk that was last tidied
    shard, eviction_level, round_bytes   the state of the walk that finds other bodies (spilling.seek)
    rest_until_ms, rest_bytes   the walk rests until this moment, or until bodies take this many bytes of memory
    body_bytes_min, near_jobs, near_bytes   limits of spilling.py; tests make them smaller
    bytes_on_disk    bytes of bodies on disk
    files, file_bytes   the number of spill files and their length
    written, read, rescued, lost   bodies so far; rescued: read from the journal; lost: not found there either
    wrote_ms         when a body last left memory, or when the first of the bodies that are being written was started
    blocked_producers   clients that wait for room
    trouble          why no body can be written at the moment; empty if bodies can be written
    """

    __slots__ = (
        "above",
        "blocked_producers",
        "body_bytes_min",
        "bytes_on_disk",
        "eviction_level",
        "file_bytes",
        "files",
        "fresh",
        "heads",
        "is_on",
        "is_void",
        "lent",
        "lost",
        "near_bytes",
        "near_jobs",
        "older",
        "read",
        "reading",
        "readings",
        "released",
        "rescued",
        "rest_bytes",
        "rest_until_ms",
        "round_bytes",
        "shard",
        "tidied",
        "trouble",
        "unread",
        "writing",
        "writing_bytes",
        "written",
        "wrote_ms",
    )

    def __init__(self) -> None:
        self.is_on = False
        self.above = NEVER
        self.readings: list[tuple[Job, Reader]] = []
        self.released: list[Spilled] = []
        self.heads: dict[Queue, Job | None] = {}
        self.is_void = False
        self.writing: dict[Job, None] = {}
        self.writing_bytes = 0
        self.wrote_ms = 0
        self.blocked_producers: dict[Client, None] = {}
        self.reading: dict[Job, None] = {}
        self.unread: dict[Unread, None] = {}
        self.lent: dict[Job, bytes] = {}
        self.fresh: list[Job] = []
        self.older: list[list[Job]] = []
        self.tidied = 0
        self.body_bytes_min = BODY_BYTES_MIN
        self.near_jobs = NEAR_JOBS
        self.near_bytes = NEAR_BYTES
        self.shard = 0
        self.eviction_level = 0
        self.round_bytes = 0
        self.rest_until_ms = 0
        self.rest_bytes = 0
        self.bytes_on_disk = 0
        self.files = 0
        self.file_bytes = 0
        self.written = 0
        self.read = 0
        self.rescued = 0
        self.lost = 0
        self.trouble = ""


def released(broker: Broker, body: Spilled) -> int:
    """Free the place of a body that is back in memory or not needed any more. Return the body's length."""
    size = body.size
    broker.memory.spilled_count -= 1
    broker.spill.bytes_on_disk -= size
    broker.spill.released.append(body)
    return size
