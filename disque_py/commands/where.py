"""WHERE: the pairs of metadata that a command's jobs must carry. Spec W1."""

from __future__ import annotations

from typing import Final

from disque_py.core.errors import CommandError
from disque_py.core.filters import PAIRS_MAX
from disque_py.core.job_attributes import NAME_BYTES_MAX, TRACE_NAMES

PAIR_ERROR: Final = "ERR syntax error: WHERE needs a name and a value"
TWICE_ERROR: Final = "ERR WHERE has the same name twice"
MOST_ERROR: Final = f"ERR at most {PAIRS_MAX} WHERE"
# Trace context differs in each job, so an index of it would help no consumer.
TRACE_ERROR: Final = "ERR WHERE can't use the names traceparent and tracestate"
NAME_ERROR: Final = f"ERR a name of META must have 1 to {NAME_BYTES_MAX} bytes"


def read_pair(pairs: dict[bytes, bytes], argv: list[bytes], at: int) -> None:
    """Add the pair behind the WHERE at `at`. CommandError if it is incomplete, repeated or one too many."""
    if at + 2 >= len(argv):
        raise CommandError(PAIR_ERROR)
    name = read_name(argv[at + 1])
    if name in pairs:
        raise CommandError(TWICE_ERROR)
    if len(pairs) == PAIRS_MAX:
        raise CommandError(MOST_ERROR)
    pairs[name] = argv[at + 2]


def read_name(name: bytes) -> bytes:
    """Return the name of a META pair that jobs are found by. CommandError."""
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise CommandError(NAME_ERROR)
    if name in TRACE_NAMES:
        raise CommandError(TRACE_ERROR)
    return name
