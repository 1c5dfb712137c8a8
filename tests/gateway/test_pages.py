"""Trouble of queues in words, filters, the menu."""

from __future__ import annotations

import pytest

from disque_py.gateway.board import QueueRow
from disque_py.gateway.console.pages import MENU, PAGES, fits, trouble_of, where_of
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
def test_trouble_is_told_in_words(row, words):
    assert trouble_of(row) == words


def test_jobs_are_filtered_by_reason_and_age():
    job = {"error": "timeout after 5 s", "created_ms": 0}
    assert fits(job, "timeout", "60")
    assert not fits(job, "mailbox", "")
    assert not fits({"created_ms": 10**15}, "", "60")


def test_metadata_are_pairs():
    assert where_of(["a:b", ""]) == {"a": "b"}
    with pytest.raises(RefusedError, match="name:value"):
        where_of(["x"])


def test_the_menu_has_pages_only():
    assert {name for name, _, _ in MENU} <= set(PAGES)
