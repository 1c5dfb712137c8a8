"""The trace of a run: a running hash of all events, and their text if a person wants to read it.

Every frame that leaves a node, every batch of replies and every fault goes into the hash with its moment. So two runs
of one seed have the same hash unless they differ somewhere. Text costs ten times as much. It is made only when a seed
is run again for it. Its last lines are the transcript of a failure.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final

LINES_MAX: Final = 40_000
# Messages that only say that nodes are alive. In a line they follow two spaces (transcript.py).
HEARTBEATS: Final = frozenset(("PING", "PONG", "MEET"))
# The beginning of lines about faults.
FAULT: Final = "** fault"


class Trace:
    """The record of one run.

    lines     the last LINES_MAX events as text, oldest first; None: the text is not wanted
    """

    __slots__ = ("_hash", "lines")

    def __init__(self, *, is_read: bool = False) -> None:
        self._hash = blake2b(digest_size=16)
        self.lines: deque[str] | None = deque(maxlen=LINES_MAX) if is_read else None

    def add(self, at_ms: int, label: bytes, data: bytes) -> None:
        """Add an event to the hash."""
        self._hash.update(b"%d %b %b" % (at_ms, label, data))

    def tell(self, at_ms: int, text: str) -> None:
        """Add a text to the hash and to the lines."""
        self._hash.update(b"%d %b" % (at_ms, text.encode()))
        if self.lines is not None:
            self.write(at_ms, text)

    def write(self, at_ms: int, text: str) -> None:
        """Add a text to the lines only."""
        if self.lines is not None:
            self.lines.append(f"{at_ms / 1000:10.3f}  {text}")

    def digest(self) -> str:
        """Return the hash so far: 32 hexadecimal digits."""
        return self._hash.hexdigest()

    def around(self, words: list[str], count: int) -> list[str]:
        """Return the lines that have one of the words, and faults. Without words, return all lines but heartbeats.

        If there are more than `count` lines, return the last ones. With words, a third of the result are the first
        lines, which show how it began.
        """
        lines = [line for line in self.lines or () if FAULT in line or names_any(line, words)]
        if not words or len(lines) <= count:
            return lines[-count:]
        first = [line for line in lines if names_any(line, words)][: count // 3]
        end = lines[len(first) - count :]
        return [*(line for line in first if line not in end), f"{len(lines) - count:>10} lines left out", *end]


def names_any(line: str, words: list[str]) -> bool:
    """Return whether a line has one of the words. Without words, return whether it is not a heartbeat."""
    if words:
        return any(word in line for word in words)
    return not HEARTBEATS.issuperset(line.rpartition("  ")[2].split("; "))
