"""Descriptions of problems of queues, filters, and the menu."""

from __future__ import annotations

import pytest

from disque_py.gateway.board import NodeRow, QueueRow
from disque_py.gateway.console.pages import MENU, PAGES, Filter, View, trouble_of, where_of, zones_of
from disque_py.gateway.problems import RefusedError


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (QueueRow("q"), []),
        (QueueRow("q", pending=5, consumers=1), []),
        (QueueRow("q", errored=2), ["2 errored"]),
        (QueueRow("q", paused="in"), ["paused (in)"]),
        (QueueRow("q", pending=5), ["no consumer"]),
        (QueueRow("q", pending=5, running=1, oldest_ms=120_000), ["oldest 2 min"]),
    ],
)
def test_problems_are_described_in_words(row, words):
    assert trouble_of(row) == words


def filter_of(**query):
    return Filter.of(View(None, None, "", query, {name: [text] for name, text in query.items()}))


def test_a_filter_by_reason_or_age_is_a_search():
    assert not filter_of(queue="q", where="a:b").is_search
    assert filter_of(queue="q", reason="timeout").is_search
    assert filter_of(queue="q", age_s="60").args["older_ms"] == 60_000
    with pytest.raises(RefusedError, match="number of seconds"):
        filter_of(age_s="old")


def test_zones_are_shown_where_there_are_several():
    rows = [NodeRow("h:1", "eu/a", True, pending=2), NodeRow("h:2", "eu/b", True, pending=3, oldest_ms=7)]
    assert zones_of(rows[:1]) == []
    assert [(row.name, row.pending) for row in zones_of([*rows, rows[1]])] == [("eu/a", 2), ("eu/b", 6)]


def test_metadata_are_pairs():
    assert where_of(["a:b", ""]) == {"a": "b"}
    with pytest.raises(RefusedError, match="name:value"):
        where_of(["x"])


def test_every_entry_of_the_menu_is_a_page():
    assert {name for name, _, _ in MENU} <= set(PAGES)
