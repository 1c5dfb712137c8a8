"""persistence/checksum.py: whatever function computes a checksum, it is zlib's CRC-32."""

from __future__ import annotations

import zlib
from random import Random

from persistence.checksum import LARGE_BYTES, checksum_of, crc32_of_large


def test_the_checksum_of_a_large_block_is_that_of_zlib():
    rng = Random(1)
    for size in (0, 1, LARGE_BYTES - 1, LARGE_BYTES, 100_003):
        data = rng.randbytes(size)
        value = rng.getrandbits(32)
        assert crc32_of_large(data, value) == zlib.crc32(data, value)


def test_zeros_in_the_data_do_not_end_it():
    data = bytes(5_000) + b"x"
    assert crc32_of_large(data, 3) == zlib.crc32(data, 3)


def test_a_library_that_is_missing_or_has_no_such_function_is_not_used():
    assert checksum_of("libthere-is-none.so.9") is None
    assert checksum_of("libc.so.6") is None
