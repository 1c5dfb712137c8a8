"""core/tombstones.py: ids of jobs that are done are remembered for a while, and only for a while."""

from __future__ import annotations

import pytest

from cluster_bus.node import Node
from disque_py.core import tombstones
from disque_py.core.tombstones import Tombstones

KEEP_MS = 30_000


def test_an_added_id_is_known():
    table = Tombstones(KEEP_MS)
    table.add(b"a", 0)
    assert b"a" in table
    assert b"b" not in table
    assert len(table) == 1


def test_an_id_is_kept_at_least_as_long_as_promised():
    """The moment within a generation does not matter: here it is the last millisecond."""
    table = Tombstones(KEEP_MS)
    table.expire(100_000)
    table.add(b"late", 129_999)
    for now_ms in range(130_000, 129_999 + KEEP_MS, 1000):
        table.expire(now_ms)
        assert b"late" in table


def test_an_id_goes_after_twice_that():
    table = Tombstones(KEEP_MS)
    table.expire(100_000)
    table.add(b"a", 100_000)
    for now_ms in range(100_000, 100_000 + 2 * KEEP_MS + 1, 1000):
        table.expire(now_ms)
    assert b"a" not in table
    assert len(table) == 0


@pytest.mark.plain
def test_many_newer_ids_push_the_oldest_out(monkeypatch):
    """The table is bounded, whatever the load."""
    monkeypatch.setattr(tombstones, "GENERATION_MAX", 100)
    table = Tombstones(KEEP_MS)
    for number in range(1000):
        table.add(b"%d" % number, 0)
    assert len(table) <= 200
    assert all(b"%d" % number in table for number in range(900, 1000))
    assert b"0" not in table


def test_clear_forgets_all():
    table = Tombstones(KEEP_MS)
    table.add(b"a", 0)
    table.expire(KEEP_MS)
    table.add(b"b", KEEP_MS)
    table.clear()
    assert len(table) == 0


def test_both_generations_tell_the_same_as_the_table():
    """Code that looks up many ids at once takes both once."""
    table = Tombstones(KEEP_MS)
    table.add(b"a", 0)
    table.expire(KEEP_MS)
    table.add(b"b", KEEP_MS)
    assert [list(ids) for ids in table.generations()] == [[b"b"], [b"a"]]


def test_the_set_of_a_collection_is_known_as_long_as_its_id():
    """Spec A14. The id may be added again by code that knows of no collection."""
    table = Tombstones(KEEP_MS)
    pair = frozenset(Node(bytes([number]) * 20) for number in (1, 2))
    table.add(b"a", 0, pair)
    table.add(b"a", 0)
    table.add(b"b", 0)
    assert (table.ended(b"a"), table.ended(b"b"), table.ended(b"c")) == (pair, None, None)
    table.expire(KEEP_MS)
    table.add(b"a", KEEP_MS)
    assert table.ended(b"a") == pair
    table.expire(2 * KEEP_MS)
    assert table.ended(b"a") is None
