"""core/queue_settings.py: versions of settings that merge in any order."""

from __future__ import annotations

from itertools import permutations

import pytest

from disque_py.core import queue_settings
from disque_py.core.queue_fields import DEFAULTS
from disque_py.core.queue_settings import (
    FIELD_BYTES,
    QUEUE,
    RESET_FIELD,
    STATE_BYTES,
    TOPIC,
    QueueSettingsTable,
    is_item,
    split_key,
    state_key,
)

A, B = b"a" * 20, b"b" * 20


def table_of(*items):
    table = QueueSettingsTable()
    for item in items:
        assert is_item(item)
        table.merge(item)
    return table


def test_queues_without_settings_share_one_object():
    table = QueueSettingsTable()
    assert table.of(b"q") is DEFAULTS
    table.merge((b"q", b"lease", b"30", 1, A))
    assert table.of(b"other") is DEFAULTS
    assert table.of(b"q").lease_ms == 30_000


def test_versions_merge_in_any_order_to_the_same_state():
    """Spec QS1."""
    items = [
        (b"q", b"lease", b"30", 1, A),
        (b"q", b"lease", b"40", 1, B),
        (b"q", b"ttl", b"60", 2, A),
        (b"q", RESET_FIELD, b"", 2, B),
        (b"q", b"maxlen", b"9", 3, A),
        (b"q", b"maxlen", b"8", 3, A),
    ]
    tables = [table_of(*order) for order in permutations(items)]
    assert len({table.digest for table in tables}) == 1
    assert all(sorted(table.items_of(b"q")) == sorted(tables[0].items_of(b"q")) for table in tables)
    assert tables[0].of(b"q").maxlen == 9
    assert tables[0].of(b"q").lease_ms == 0


def test_a_reset_has_no_value():
    """A node that is told one with a value agrees with a node that it tells the RESET. Spec QS1."""
    one = table_of((b"q", RESET_FIELD, b"x", 2, A), (b"q", RESET_FIELD, b"y", 3, B))
    other = table_of(*one.items_of(b"q"))
    assert one.digest == other.digest


def test_a_known_or_older_setting_changes_nothing():
    table = table_of((b"q", b"lease", b"30", 2, A))
    assert not table.merge((b"q", b"lease", b"30", 2, A))
    assert not table.merge((b"q", b"lease", b"99", 1, B))


def test_operators_who_set_different_fields_both_succeed():
    table = table_of((b"q", b"lease", b"30", 1, A), (b"q", b"ttl", b"60", 1, B))
    assert (table.of(b"q").lease_ms, table.of(b"q").ttl_ms) == (30_000, 60_000)


def test_a_field_or_a_value_of_a_newer_version_is_kept():
    """Spec QS2."""
    table = table_of((b"q", b"colour", b"red", 1, A), (b"q", b"type", b"striped", 2, A))
    assert table.of(b"q") is DEFAULTS
    assert (b"q", b"colour", b"red", 1, A) in table.items_of(b"q")
    assert dict(table.shown(b"q"))[b"type"] == b"striped"


def test_the_next_counter_is_above_all_of_the_queue():
    table = table_of((b"q", b"lease", b"30", 7, A), (b"q", RESET_FIELD, b"", 3, B))
    assert table.next_counter(b"q") == 8
    assert table.next_counter(b"new") == 1


def test_changed_settings_are_given_to_the_file_once():
    table = table_of((b"q", b"lease", b"30", 1, A), (b"q", b"lease", b"31", 2, A))
    assert table.take_unsaved() == [(b"q", b"lease", b"31", 2, A)]
    assert table.take_unsaved() == []


@pytest.mark.parametrize(
    ("kind", "name"), [(QUEUE, b"q"), (QUEUE, b"\0tq"), (TOPIC, b"q"), (TOPIC, b"\0q"), (QUEUE, b"")]
)
def test_the_key_of_a_state_says_its_kind_and_name(kind, name):
    """Spec QS9."""
    assert split_key(state_key(kind, name)) == (kind, name)


def test_states_of_other_kinds_are_not_settings_of_queues():
    table = table_of((state_key(TOPIC, b"q"), b"maxlen", b"5", 1, A))
    assert table.of(b"q") is DEFAULTS
    assert not table.limited
    assert not table.in_force


def test_a_watcher_hears_of_states_that_are_there_and_of_each_change():
    heard = []
    news = state_key(TOPIC, b"news")
    table = table_of((news, b"queue", b"a", 1, A), (b"q", b"lease", b"30", 1, A))
    table.watch(TOPIC, lambda name, fields: heard.append((name, fields)))
    table.merge((news, b"where", b"x", 2, A))
    table.merge((news, RESET_FIELD, b"", 3, A))
    table.load([(news, b"queue", b"b", 4, A)])
    table.clear()
    assert heard == [
        (b"news", {b"queue": b"a"}),
        (b"news", {b"queue": b"a", b"where": b"x"}),
        (b"news", {}),
        (b"news", {b"queue": b"b"}),
        (b"news", {}),
    ]


def test_no_more_queues_than_the_limit_have_settings(monkeypatch):
    """A queue whose settings were reset makes room."""
    table = table_of((b"q1", b"lease", b"30", 1, A), (b"q2", b"lease", b"30", 1, A))
    assert table.has_room(b"q3", 1, 10)
    for at in range(queue_settings.QUEUES_MAX - 2):
        table.states[b"%d" % at] = table.states[b"q2"]
    assert not table.has_room(b"q3", 1, 10)
    table.merge((b"q1", RESET_FIELD, b"", 2, A))
    assert table.has_room(b"q3", 1, 10)
    assert b"q1" not in table.states


def test_the_bytes_of_states_are_accounted_for_and_given_back():
    table = table_of((b"q", b"lease", b"30", 1, A))
    assert table.bytes == STATE_BYTES + 1 + FIELD_BYTES + len(b"lease" + b"30")
    table.merge((b"q", b"lease", b"", 2, A))
    table.merge((b"q", RESET_FIELD, b"", 3, A))
    assert table.bytes == STATE_BYTES + 1
    assert not table.has_room(b"x", 1, queue_settings.TABLE_BYTES_MAX)


@pytest.mark.parametrize(
    "item",
    [
        (b"q", b"lease", b"30", 1),
        (b"q", b"lease", b"30", 0, A),
        (b"q", b"lease", b"30", 1 << 60, A),
        (b"q", b"lease", b"30", True, A),
        (b"q", b"lease", b"30", 1, b"short"),
        (b"q", b"f" * 65, b"30", 1, A),
        (b"q", b"lease", b"3" * 65_537, 1, A),
        ("q", b"lease", b"30", 1, A),
        7,
    ],
)
def test_an_item_out_of_bounds_is_invalid(item):
    assert not is_item(item)
