"""gateway/metrics/selection.py: only a limited number of queues has labels."""

from __future__ import annotations

from disque_py.gateway.metrics.selection import NAME_MAX, Selection


def test_patterns_include_and_exclude_names():
    selection = Selection(allow=["mail*", "sms"], deny=["*-test"])
    assert selection.choose("a", ["mail", "mail-test", "sms", "push"]) == ["mail", "sms"]


def test_the_first_queues_keep_their_places():
    selection = Selection(limit=2)
    assert selection.choose("a", ["m", "n"]) == ["m", "n"]
    assert selection.choose("a", ["a", "m", "n"]) == ["m", "n"]
    assert selection.choose("a", ["a", "n"]) == ["a", "n"]


def test_nodes_share_the_places():
    """Each node shows the same queues, so that sums over nodes are right."""
    selection = Selection(limit=1)
    assert selection.choose("a", ["m"]) == ["m"]
    assert selection.choose("b", ["a", "m"]) == ["m"]
    assert selection.choose("a", []) == []
    assert selection.choose("b", ["a", "m"]) == ["m"]
    selection.forget("b")
    assert selection.choose("a", ["a"]) == ["a"]


def test_a_name_that_cannot_be_a_label_has_none():
    selection = Selection()
    names = ["_other", "x" * (NAME_MAX + 1), b"\xff".decode("utf-8", "surrogateescape"), "fine"]
    assert selection.choose("a", names) == ["fine"]


def test_a_limit_of_zero_shows_no_queue():
    assert Selection(limit=0).choose("a", ["m"]) == []
