"""The trace of a run: a running hash of all that happened, and text if a person wants to read it.

Every frame that leaves a node, every batch of replies and every fault goes into the hash with its moment. So two runs
of one seed have the same hash, or they differ somewhere. Text costs ten times as much. It is made only when a seed is
run again for it: its last lines are the transcript of a failure.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final

LINES_MAX: Final = 40_000
# Messages that only say that nodes are alive, as they follow two spaces in a line (transcript.py).
HEARTBEATS: Final = frozenset(("PING", "PONG", "MEET"))
# The beginning of lines about faults.
FAULT: Final = "** fault"


class Trace:
    """The record of one run.

    lines     what happened, oldest first, the last LINES_MAX of it; None: no reader wants it
    """

    __slots__ = ("_hash", "lines")

    def __init__(self, *, is_read: bool = False) -> None:
        self._hash = blake2b(digest_size=16)
        self.lines: deque[str] | None = deque(maxlen=LINES_MAX) if is_read else None

    def add(self, at_ms: int, label: bytes, data: bytes) -> None:
        """Add an event to the hash."""
        self._hash.update(b"%d %b %b" % (at_ms, label, data))

    def tell(self, at_ms: int, text: str) -> None:
        """Add an event that is a text, to the hash and to the lines."""
        self._hash.update(b"%d %b" % (at_ms, text.encode()))
        if self.lines is not None:
            self.write(at_ms, text)

    def write(self, at_ms: int, text: str) -> None:
        """Add a line that is for the reader alone."""
        if self.lines is not None:
            self.lines.append(f"{at_ms / 1000:10.3f}  {text}")

    def digest(self) -> str:
        """Return the hash so far: 32 hexadecimal digits."""
        return self._hash.hexdigest()

    def around(self, words: list[str], count: int) -> list[str]:
        """Return the lines that have one of the words, and faults; without words all lines but heartbeats.

        Of more than `count` lines the last ones are shown; with words a third of them is how the story began.
        """
        lines = [line for line in self.lines or () if FAULT in line or names_any(line, words)]
        if not words or len(lines) <= count:
            return lines[-count:]
        first = [line for line in lines if names_any(line, words)][: count // 3]
        end = lines[len(first) - count :]
        return [*(line for line in first if line not in end), f"{len(lines) - count:>10} lines left out", *end]


def names_any(line: str, words: list[str]) -> bool:
    """Return whether a line has one of the words, or, where there are none, says more than that nodes are alive."""
    if words:
        return any(word in line for word in words)
    return not HEARTBEATS.issuperset(line.rpartition("  ")[2].split("; "))
