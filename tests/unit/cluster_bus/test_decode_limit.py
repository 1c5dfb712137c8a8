"""cluster_bus/decode_limit.py: objects are counted without creating them."""

from __future__ import annotations

import msgpack
import pytest

from cluster_bus.decode_limit import has_few_objects

VALUES = [
    None, True, 0, -1, 200, 70_000, 1 << 40, -200, -70_000, -(1 << 40), 1.5, "", "x" * 40, "x" * 300, "x" * 70_000,
    b"", b"x" * 300, b"x" * 70_000, msgpack.ExtType(1, b"xxxx"), msgpack.ExtType(1, b"x" * 300),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
def test_a_value_is_one_object_whatever_its_length(value: object):
    payload = msgpack.packb([value, value])
    assert has_few_objects(payload, 3)
    assert not has_few_objects(payload, 2)


@pytest.mark.parametrize("count", [0, 10, 100, 70_000])
def test_lists_and_maps_count_with_their_content(count: int):
    assert has_few_objects(msgpack.packb([7] * count), count + 1)
    assert has_few_objects(msgpack.packb(dict.fromkeys(range(count), 7)), 2 * count + 1)
    assert not has_few_objects(msgpack.packb([7] * count), count)
    assert not has_few_objects(msgpack.packb(dict.fromkeys(range(count), 7)), 2 * count)


def test_lists_within_lists_are_found():
    assert not has_few_objects(msgpack.packb([[[]] * 100] * 100), 10_000)


def test_bytes_that_end_early_or_announce_too_much_are_left_to_msgpack():
    assert has_few_objects(b"")
    assert has_few_objects(b"\xdd\xff\xff\xff\xff")
    assert has_few_objects(b"\xc6\xff\xff")
