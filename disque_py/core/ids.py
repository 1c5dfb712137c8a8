"""Job ids: making and reading them.

An id is `D-` + 8 hex digits of the creating node + `-` + 24 random characters (144 bits) + `-` + 4 hex digits of the
TTL in minutes. The TTL is made odd for an at-least-once job, and even for an at-most-once job (spec F4). Unlike in the
original, no character repeats bits of another (spec Q18).
"""

from __future__ import annotations

from base64 import b64encode
from random import Random
from struct import Struct
from typing import Final

from cluster_bus.node import Node

ID_BYTES: Final = 40
TTL_MINUTES_MAX: Final = 65535
# With a KEY, only this many characters, the last ones, are random. The others come from the key.
OWN_CHARS: Final = 6

# One draw of random bytes makes this many ids, because a call of the generator per job would cost more than everything
# else about an id.
IDS_PER_DRAW: Final = 128
# Ids of one draw share their first random characters, which choose the shard in a node's index (broker.py). So jobs
# that are made together are close together in memory, on every node that holds them. 126 bits are left to distinguish
# them.
SHARED_CHARS: Final = 3
# Of each 24 random characters, 21 are used for one id. The prefix (11) and the shared characters (3) precede them, so
# the head of an id has 35 characters.
_cut_chars: Final = Struct("21s3x" * IDS_PER_DRAW).unpack
_cut_heads: Final = Struct("35s" * IDS_PER_DRAW).unpack


class IdSource:
    """Makes the ids of one node. All random bits come from the given generator."""

    __slots__ = ("_last_suffix", "_last_ttl_ms", "_last_was_retried", "_pool", "_prefix", "_rng")

    def __init__(self, node_name: bytes, rng: Random) -> None:
        self._rng = rng
        self._prefix = b"D-" + node_name[:8] + b"-"
        self._pool: list[bytes] = []
        # Producers rarely vary TTL and RETRY from one job to the next.
        self._last_ttl_ms = -1
        self._last_was_retried = False
        self._last_suffix = b""

    def draw_from(self, rng: Random) -> None:
        """Use another generator. The server's can't be predicted, and the simulator's depends on its seed."""
        self._rng = rng
        self._pool.clear()

    def rename(self, node_name: bytes) -> None:
        """Use the node's new id (CLUSTER RESET HARD)."""
        self._prefix = b"D-" + node_name[:8] + b"-"
        self._pool.clear()

    def next(self, ttl_ms: int, is_retried: bool) -> bytes:
        """Return a new id of 40 bytes for a job that lives `ttl_ms`."""
        if ttl_ms != self._last_ttl_ms or is_retried != self._last_was_retried:
            self._last_ttl_ms = ttl_ms
            self._last_was_retried = is_retried
            self._last_suffix = ttl_suffix(ttl_ms, is_retried)
        if not self._pool:
            drawn = b64encode(self._rng.randbytes(18 * IDS_PER_DRAW))
            prefix = self._prefix + drawn[:SHARED_CHARS]
            self._pool = list(_cut_heads(prefix + prefix.join(_cut_chars(drawn))))
        return self._pool.pop() + self._last_suffix

    def keyed(self, chars: bytes, like: bytes) -> bytes:
        """Return a new id with these characters of a key (keys.py), and with the TTL field of another id."""
        return self._prefix + chars + b64encode(self._rng.randbytes(OWN_CHARS))[:OWN_CHARS] + like[35:]


def ttl_suffix(ttl_ms: int, is_retried: bool) -> bytes:
    """Return `-` and the TTL field: whole minutes, capped, odd for an at-least-once job."""
    minutes = min(ttl_ms // 60_000, TTL_MINUTES_MAX)
    minutes = minutes | 1 if is_retried else minutes & ~1
    return b"-%04x" % minutes


def is_valid_id(job_id: bytes) -> bool:
    """Return whether an id has its length and its punctuation in the right places.

    Commands check no other part of an id.
    """
    return len(job_id) == 40 and job_id[0] == 68 and job_id[1] == 45 and job_id[10] == 45 and job_id[35] == 45


def ttl_minutes(job_id: bytes) -> int:
    """Return the TTL field. A character that is not a hex digit counts as 0."""
    value = 0
    for char in job_id[36:40]:
        value = value << 4 | _HEX.get(char, 0)
    return value


def is_retried_id(job_id: bytes) -> bool:
    """Return whether the job is an at-least-once job, which an odd TTL field says."""
    return bool(ttl_minutes(job_id) & 1)


def creator_of(nodes: tuple[Node, ...], job_id: bytes) -> Node | None:
    """Return which of `nodes` made the job, or None. An id has eight digits of its creator's (spec F4)."""
    digits = job_id[2:10]
    return next((node for node in nodes if node.name[:8] == digits), None)


_HEX: Final = {char: int(chr(char), 16) for char in b"0123456789abcdefABCDEF"}
