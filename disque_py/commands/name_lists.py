"""LIST [pattern] of names that all nodes know: queues with settings, schedules, batches.

There may be very many names, so they are compared and sorted part by part (core/incremental.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import islice
from typing import Final

from disque_py.commands.subcommands import syntax_error, text_of
from disque_py.core import incremental
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.users import visible
from disque_py.resp.glob import matches
from disque_py.resp.replies import bulk, bulk_array

# Names that are compared with a pattern, or sorted, at a time; and the longest pattern. That is at most about a
# millisecond of work.
NAMES_PER_PART: Final = 200
PATTERN_BYTES_MAX: Final = 1_024


def list_names(broker: Broker, client: Client, argv: list[bytes], names: Iterable[bytes]) -> bytes | None:
    """Answer a LIST with the names that match and that the client's user may use, sorted. CommandError."""
    if len(argv) == 3 and len(argv[2]) > PATTERN_BYTES_MAX:
        raise syntax_error(argv[2])
    pattern = text_of(argv[2]) if len(argv) == 3 else "*"
    return incremental.begin(broker, client, listed(visible(client, names), pattern))


def listed(names: list[bytes], pattern: str) -> incremental.Steps:
    """Sort the names that match, part by part, and merge the parts."""
    parts: list[list[bytes]] = []
    for at in range(0, len(names), NAMES_PER_PART):
        if at:
            yield
        part = names[at : at + NAMES_PER_PART]
        parts.append(sorted(part if pattern == "*" else [each for each in part if matches(pattern, text_of(each))]))
    if len(parts) < 2:
        return bulk_array(parts[0] if parts else [])
    found = merge(*parts)
    chunks: list[bytes] = []
    for _ in range(0, len(names), NAMES_PER_PART):
        yield
        chunks.append(b"".join(map(bulk, islice(found, NAMES_PER_PART))))
    return b"*%d\r\n%b" % (sum(map(len, parts)), b"".join(chunks))
