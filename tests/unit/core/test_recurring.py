"""core/recurring.py: definitions, progress, and the heap of schedules that are due."""

from __future__ import annotations

import msgpack
import pytest

from disque_py.core.recurring import (
    Definition,
    Progress,
    Recurring,
    Schedule,
    pack_pause,
    unpack_definition,
    unpack_pause,
    unpack_progress,
)

DEFINITION = Definition(7, 5, b"* * * * *", 0, b"UTC", b"last", b"allow", b"q", b"body", [b"RETRY", b"1"])


def known(recurring, name=b"s"):
    """A schedule that a table knows."""
    schedule = recurring.known[name] = Schedule(name, DEFINITION, DEFINITION.pack())
    return schedule


def test_values_of_fields_come_back_as_they_were():
    """Spec SD5."""
    assert unpack_definition(DEFINITION.pack()) == DEFINITION
    progress = Progress(7, 9, b"D-x", 1, 2)
    assert unpack_progress(progress.pack()) == progress
    assert unpack_pause(pack_pause(is_paused=True, floor_ms=4)) == (True, 4)


def test_positions_behind_the_known_ones_are_for_newer_versions():
    assert unpack_definition(msgpack.packb([*DEFINITION, "more"])) == DEFINITION


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        msgpack.packb(5),
        msgpack.packb([1]),
        msgpack.packb([*DEFINITION[:1], -1, *DEFINITION[2:]]),
        msgpack.packb([*DEFINITION[:3], 1_000, *DEFINITION[4:]]),
        msgpack.packb([*DEFINITION[:5], b"most", *DEFINITION[6:]]),
        msgpack.packb([*DEFINITION[:9], [1]]),
    ],
)
def test_a_malformed_definition_is_ignored(value):
    """Spec SD5: it may come from a newer version, and is passed on."""
    assert unpack_definition(value) is None
    assert unpack_progress(value) is None
    assert unpack_pause(b"\xc1" + value) == (False, 0)


def test_progress_never_falls():
    """Spec SD5: a merge that says less asks for ours to be told again."""
    schedule = known(Recurring())
    assert not schedule.merge(None)
    assert not schedule.merge(Progress(7, 100, b"", 1, 0))
    assert schedule.merge(Progress(7, 50, b"", 9, 0))
    assert schedule.merge(None)
    assert schedule.merge(Progress(6, 500, b"", 9, 0))
    assert schedule.progress.last_ms == schedule.base_ms == 100


def test_the_heap_gives_schedules_when_they_are_due():
    """Spec SD11."""
    recurring = Recurring()
    one, two = known(recurring, b"1"), known(recurring, b"2")
    recurring.set_due(one, 20)
    recurring.set_due(two, 10)
    assert recurring.next_due_ms() == 10
    assert recurring.take_due(9) is None
    assert recurring.take_due(30) is two
    assert recurring.take_due(30) is one
    assert recurring.take_due(30) is None


def test_an_entry_that_was_replaced_counts_no_more():
    recurring = Recurring()
    schedule = known(recurring)
    recurring.set_due(schedule, 10)
    recurring.set_due(schedule, 20)
    assert recurring.take_due(15) is None
    recurring.set_due(schedule, 0)
    assert recurring.take_due(100) is None
    assert recurring.due == []


def test_the_heap_does_not_grow_with_entries_that_were_replaced():
    """Spec SD11."""
    recurring = Recurring()
    schedule = known(recurring)
    for at_ms in range(1, 10_000):
        recurring.set_due(schedule, at_ms)
    assert len(recurring.due) < 100
    assert recurring.take_due(10_000) is schedule


def test_zones_are_looked_up_once():
    asked = []
    recurring = Recurring()
    for _ in range(2):
        assert recurring.zone(b"Mars/Base", lambda name: asked.append(name)) is None
    assert asked == ["Mars/Base"]
