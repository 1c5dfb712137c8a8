"""persistence/items.py: the broker's bytes as plain values."""

from __future__ import annotations

import pytest

from cluster_bus import node
from disque_py.core import ids
from made_journals import DAY_MS, ME, OTHER, WALL_MS, facts
from persistence import items, layouts
from persistence.records import FormatError


def test_ids_are_as_long_as_the_brokers():
    assert (items.ID_BYTES, items.NODE_BYTES) == (ids.ID_BYTES, node.ID_BYTES)


def test_facts_come_back_from_a_base():
    """A base may be read long after it was written. So moments stay, and spans count from the block's wall clock."""
    said = facts(
        holders=(ME, OTHER), nacks=2, deliveries=3, attempt=4, flags=layouts.IS_DELIVERED, due_at_ms=WALL_MS + 5
    )
    assert items.facts_of(items.base_item(said, WALL_MS), WALL_MS) == said


def test_fields_of_a_later_version_are_kept():
    said = facts(version=2, more=(b"x", [1], None))
    assert items.facts_of(items.base_item(said, WALL_MS), WALL_MS) == said


def test_a_later_state_wins():
    base = items.base_item(facts(), WALL_MS)
    state = layouts.STATE_FIELDS.pack(layouts.IS_LEASED | layouts.IS_DELIVERED, 700, 2, 1, 9, 5)
    found = items.facts_of(base, WALL_MS, state, WALL_MS + 1000)
    assert (found.attempt, found.nacks, found.deliveries, found.version) == (2, 1, 9, 5)
    assert (found.state, found.due_at_ms, found.expire_at_ms) == ("active", WALL_MS + 1700, WALL_MS + DAY_MS)


def test_a_state_of_version_1_leaves_the_counters_alone():
    base = items.base_item(facts(nacks=7, version=3), WALL_MS)
    found = items.facts_of(base, WALL_MS, layouts.STATE_FIELDS_V1.pack(layouts.IS_ACKED, -1, 3), WALL_MS)
    assert (found.attempt, found.nacks, found.state, found.body) == (3, 7, "acked", b"")
    found = items.facts_of(base, WALL_MS, layouts.STATE_FIELDS_V2.pack(0, -1, 3, 4, 5), WALL_MS)
    assert (found.nacks, found.deliveries, found.version) == (4, 5, 3)


@pytest.mark.parametrize("item", [None, (), (b"x",) * 6, [b"D" * 40, b"", b"", b"", b"", b""], 7])
def test_a_malformed_base_is_refused(item):
    with pytest.raises(FormatError):
        items.check_base(item)


@pytest.mark.parametrize("item", [None, (b"id", b"short", None), (b"id", b"x" * 20, b"odd"), (b"id", "text", None)])
def test_a_malformed_state_is_refused(item):
    with pytest.raises(FormatError):
        items.check_state(item)


def test_flags_have_names():
    assert items.flag_words(layouts.IS_QUEUED | layouts.IS_GIVEN) == ["queued", "given"]
