"""What happened, as a running hash, and as text where somebody wants to read it.

Every frame that leaves a node, every batch of replies and every fault goes into the hash with its moment, so two runs
of one seed have the same hash or differ somewhere. Text costs ten times as much and is made only when a seed is run
again for it: the last lines of it are the transcript of a failure.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final

LINES_MAX: Final = 40_000
# How the lines about faults begin.
FAULT: Final = "** fault"


class Trace:
    """The record of one run.

    lines     what happened, oldest first, the last LINES_MAX of it; None: nobody reads it
    """

    __slots__ = ("_hash", "lines")

    def __init__(self, *, is_read: bool = False) -> None:
        self._hash = blake2b(digest_size=16)
        self.lines: deque[str] | None = deque(maxlen=LINES_MAX) if is_read else None

    def add(self, at_ms: int, label: bytes, data: bytes) -> None:
        """Something happened."""
        self._hash.update(b"%d %b %b" % (at_ms, label, data))

    def tell(self, at_ms: int, text: str) -> None:
        """Something happened that has words of its own."""
        self._hash.update(b"%d %b" % (at_ms, text.encode()))
        if self.lines is not None:
            self.write(at_ms, text)

    def write(self, at_ms: int, text: str) -> None:
        """A line for the reader alone."""
        if self.lines is not None:
            self.lines.append(f"{at_ms / 1000:10.3f}  {text}")

    def digest(self) -> str:
        """The hash so far: 32 hexadecimal digits."""
        return self._hash.hexdigest()

    def around(self, words: list[str], count: int) -> list[str]:
        """The last `count` lines that have one of the words, and faults; all lines if there are no words."""
        lines = [line for line in self.lines or () if not words or FAULT in line or any(word in line for word in words)]
        return lines[-count:]
