"""Compact sets of job ids, each with a status: the ids of a batch (batch_state.py).

Without its punctuation an id takes 24 bytes: 4 for the node, 18 random ones, 2 for the TTL. With a status and a version
an *entry* has 29 bytes. Entries are stored one after the other in byte arrays, the *buckets* of a linear hash table.
Whenever the buckets have FILL entries on average, one bucket is split. So no insertion takes long, and a job costs
about 35 bytes.

Of two entries with the same id, the one with the higher (rank, version, status) is kept. Ranks follow the order of
events: completed wins over canceled, canceled over expired, and these over all other statuses. So sets that are merged
in any order, any number of times, become equal. Spec BT2.

`digest` is the XOR of one hash per entry, so it does not depend on the order of the entries. The hash must be
cryptographic. A checksum such as CRC-32 is linear: the same change of a status always changes it in the same way, so
two such changes would cancel out. Then two keepers with different sets could have equal digests for ever. Spec BT3.
"""

from __future__ import annotations

import struct
from binascii import Error, a2b_base64, b2a_base64, hexlify, unhexlify
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from disque_py.event_format import FINAL_RANKS

KEY_BYTES: Final = 24
ENTRY_BYTES: Final = 29
# Status and version, which follow the key.
_TAIL: Final = struct.Struct("<BI")
# Entries of a bucket on average, above which one bucket is split.
FILL: Final = 64
VERSION_LIMIT: Final = 1 << 31
_HASH_AT: Final = 13
_HASH_END: Final = 17
# In a compiled build, an integer of this size needs no separate object.
DIGEST_BYTES: Final = 7
STATUSES: Final = 8


def pack_id(job_id: bytes) -> bytes | None:
    """Return an id in its packed form, without punctuation; None for an id that no node makes."""
    try:
        key = unhexlify(job_id[2:10]) + a2b_base64(job_id[11:35]) + unhexlify(job_id[36:40])
    except (Error, ValueError):
        return None
    return key if len(key) == KEY_BYTES and unpack_id(key) == job_id else None


def unpack_id(key: bytes) -> bytes:
    """Return the id from its packed form."""
    return b"D-%b-%b-%b" % (hexlify(key[:4]), b2a_base64(key[4:22], newline=False), hexlify(key[22:]))


def entry_of(key: bytes, status: int, version: int) -> bytes:
    """Return an entry in its packed form."""
    return key + _TAIL.pack(status, version if version < VERSION_LIMIT else VERSION_LIMIT - 1)


def check_entries(data: bytes) -> None:
    """Raise ValueError if these are not valid entries."""
    if type(data) is not bytes or len(data) % ENTRY_BYTES:
        raise ValueError("invalid entries of a batch")
    for at in range(KEY_BYTES, len(data), ENTRY_BYTES):
        status, version = _TAIL.unpack_from(data, at)
        if status >= STATUSES or version >= VERSION_LIMIT:
            raise ValueError("an invalid entry of a batch")


def _order(status: int, version: int) -> tuple[int, int, int]:
    return FINAL_RANKS.get(status, 0), version, status


class IdSet:
    """Ids with their statuses.

    count    number of ids
    counts   number of ids with each status
    digest   digest of all entries
    """

    __slots__ = ("_buckets", "_level", "_split", "count", "counts", "digest")

    def __init__(self) -> None:
        self._buckets: list[bytearray] = [bytearray()]
        self._level = 1  # The number of buckets when this round of splits began.
        self._split = 0  # The next bucket to be split.
        self.count = 0
        self.counts = [0] * STATUSES
        self.digest = 0

    def merge(self, key: bytes, status: int, version: int) -> bool:
        """Enter an id, or a later status of it. Return whether the set has changed."""
        bucket = self._buckets[self._number(key)]
        at = _find(bucket, key)
        if at >= 0:
            old_status, old_version = _TAIL.unpack_from(bucket, at + KEY_BYTES)
            if _order(status, version) <= _order(old_status, old_version):
                return False
            self.counts[old_status] -= 1
            self._note(bucket[at : at + ENTRY_BYTES])
            _TAIL.pack_into(bucket, at + KEY_BYTES, status, version)
            self.counts[status] += 1
            self._note(bucket[at : at + ENTRY_BYTES])
            return True
        entry = entry_of(key, status, version)
        bucket += entry
        self._note(entry)
        self.count += 1
        self.counts[status] += 1
        if self.count > FILL * len(self._buckets):
            self._split_one()
        return True

    def status_of(self, key: bytes) -> int | None:
        """Return the status of an id; None if it is not in the set."""
        bucket = self._buckets[self._number(key)]
        at = _find(bucket, key)
        return None if at < 0 else bucket[at + KEY_BYTES]

    def has(self, entry: bytes) -> bool:
        """Return whether the set has exactly this entry: id, status and version."""
        bucket = self._buckets[self._number(entry[:KEY_BYTES])]
        at = _find(bucket, entry)
        return at >= 0

    def entries(self) -> Iterator[bytes]:
        """Yield all entries, one bucket at a time. Entries that are added meanwhile may be missing."""
        at = 0
        while at < len(self._buckets):
            yield bytes(self._buckets[at])
            at += 1

    @property
    def size(self) -> int:
        """The size of all entries in bytes."""
        return self.count * ENTRY_BYTES

    def _note(self, entry: bytes | bytearray) -> None:
        """Add an entry to the digest, or remove it. Both are the same operation."""
        self.digest ^= int.from_bytes(blake2b(entry, digest_size=DIGEST_BYTES).digest(), "big")

    def _number(self, key: bytes) -> int:
        value = int.from_bytes(key[_HASH_AT:_HASH_END], "little")
        number = value % self._level
        return value % (2 * self._level) if number < self._split else number

    def _split_one(self) -> None:
        """Split the next bucket. About half of its entries move to a new bucket."""
        old = self._buckets[self._split]
        self._buckets.append(bytearray())
        stays = bytearray()
        goes = self._buckets[-1]
        wide = 2 * self._level
        for at in range(0, len(old), ENTRY_BYTES):
            value = int.from_bytes(old[at + _HASH_AT : at + _HASH_END], "little")
            if value % wide == self._split:
                stays += old[at : at + ENTRY_BYTES]
            else:
                goes += old[at : at + ENTRY_BYTES]
        self._buckets[self._split] = stays
        self._split += 1
        if self._split == self._level:
            self._level = wide
            self._split = 0


def _find(bucket: bytearray, key: bytes) -> int:
    """Return the offset of the entry with this key in a bucket; -1 if there is none."""
    at = bucket.find(key)
    while at >= 0 and at % ENTRY_BYTES:
        at = bucket.find(key, at + 1)
    return at
