"""queue_view.py: observations of the queues of a cluster."""

from __future__ import annotations

from datetime import timedelta

import pytest

from client_node import closed_port
from disque_py.cli import queue_view
from disque_py.cli.address import Target
from disque_py.cli.queue_view import OldServerError, QueueWatch, all_settings, changed_settings, span_text
from disque_py.client import Address, ReplyError
from disque_py.client.results import queue_settings
from scripted_queues import NODE_ID, SETTINGS, STAT, answers, reply


def settings_of(**changes):
    flat = [word for pair in {**SETTINGS, **changes}.items() for word in pair]
    return queue_settings([word.encode() if isinstance(word, str) else word for word in flat])


@pytest.fixture
def watch(scripted):
    """Makes a QueueWatch on a scripted node with these answers."""
    opened = []

    def make(**more):
        opened.append(QueueWatch(Target(Address("127.0.0.1", scripted(answers(**more)).port))))
        return opened[-1]

    yield make
    for each in opened:
        each.__exit__()


def test_a_row_has_depth_by_status_age_and_changed_settings(watch):
    (row,) = watch().look().rows
    assert (row.pending, row.running, row.invisible, row.errored, row.oldest_ms) == (5, 3, 1, 4, 65_000)
    assert row.settings == {"attempts": "5", "dead-letter": "failed"}


def test_rates_are_the_difference_of_two_samples(watch):
    """The first observation has no rates. A restart of the node does not make rates negative."""
    counts = iter([100, 150, 0])
    looking = watch(QSTAT=lambda words: reply({**STAT, "jobs-in": next(counts)}))
    rates = [looking.look().rows[0].rate_in for _ in range(3)]
    assert rates[0] is None
    assert rates[1] > 0
    assert rates[2] == 0


def test_a_pattern_chooses_queues(watch):
    assert watch().look("x*").rows == []


def test_the_longest_queue_comes_first(watch):
    names = reply(["0", ["short", "long"]])
    stat = lambda words: reply({**STAT, "len": 9 if words[1] == b"long" else 1})  # noqa: E731
    assert [row.queue for row in watch(QSCAN=names, QSTAT=stat, QUEUE_LIST=reply([])).look().rows] == ["long", "short"]


def cluster_of(*others):
    """Return HELLO of the scripted node with other nodes: pairs of a port and a priority."""
    nodes = [
        [letter * 40, "127.0.0.1", str(port), str(priority)]
        for letter, (port, priority) in zip("bc", others, strict=False)
    ]
    return reply([1, NODE_ID, [NODE_ID, "", "7711", "1"], *nodes])


def test_figures_are_the_sums_of_all_nodes(watch, scripted):
    """A queue is paused in both directions if one node says in, and another one out."""
    two = answers(QSTAT=reply({**STAT, "len": 7, "oldest-ms": 70_000, "pause": "out"}), HELLO=reply([1, "b" * 40]))
    one = watch(QSTAT=reply({**STAT, "pause": "in"}), HELLO=cluster_of((scripted(two).port, 1)))
    (row,) = one.look().rows
    assert (row.pending, row.running, row.oldest_ms, row.paused) == (12, 6, 70_000, "all")


def test_a_node_is_not_asked_for_the_figures_of_the_cluster(watch):
    """Each QSTAT CLUSTER makes every node visit all its jobs."""
    asked = []
    watch(QSTAT=lambda words: asked.append(words[2:]) or reply(STAT)).look()
    assert asked == [[b"RECENT"]]


def test_nodes_that_are_away_are_named(watch):
    """Their peers say so, too."""
    looking = watch(HELLO=cluster_of((closed_port(), 100)))
    assert (looking.look().missing, len(looking.look().rows)) == (["b" * 40], 1)


def test_a_healthy_node_that_is_out_of_reach_is_asked_through_another_one(watch):
    """Its announced address may be that of another network."""
    stat = lambda words: reply({**STAT, "len": 9 if words[2] == b"CLUSTER" else 1, "nodes-missing": ["c" * 40]})  # noqa: E731
    look = watch(QSTAT=stat, HELLO=cluster_of((closed_port(), 1))).look()
    assert ([row.pending for row in look.rows], look.missing) == ([9], ["c" * 40])


def test_the_longest_queues_are_shown_and_have_their_settings(watch, monkeypatch):
    """The settings of other queues are not asked for."""
    monkeypatch.setattr(queue_view, "QUEUES_MAX", 2)
    names = [f"q{number}" for number in range(5)]
    asked = []
    stat = lambda words: reply({**STAT, "name": words[1], "len": int(words[1][1:])})  # noqa: E731
    get = lambda words: asked.append(words[2]) or reply(SETTINGS)  # noqa: E731
    look = watch(QSCAN=reply(["0", names]), QSTAT=stat, QUEUE_LIST=reply(names), QUEUE_GET=get).look()
    assert ([row.queue for row in look.rows], look.left_out, asked) == (["q4", "q3"], 3, [b"q4", b"q3"])


def test_a_queue_with_settings_and_without_jobs_is_shown(watch):
    (row,) = watch(QSCAN=reply(["0", []]), QSTAT=b"$-1\r\n").look().rows
    assert (row.pending, row.rate_in, row.settings["attempts"]) == (0, None, "5")


def test_a_node_without_figures_of_the_cluster_is_reported(watch):
    with pytest.raises(OldServerError, match="syntax error"):
        watch(QSTAT=b"-ERR syntax error\r\n").look()
    with pytest.raises(ReplyError, match="NOAUTH"):
        watch(QSTAT=b"-NOAUTH no\r\n").look()


def test_settings_are_shown_as_queue_set_takes_them():
    shown = all_settings(settings_of(lease="90", backoff="fixed:1:1", **{"require-meta": "a,b"}))
    assert (shown["lease"], shown["retention"], shown["require-meta"]) == ("90s", "7d", "a,b")
    assert changed_settings(None) == {}


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(days=2), "2d"),
        (timedelta(minutes=90), "90m"),
        (timedelta(milliseconds=5), "5ms"),
    ],
)
def test_a_span_has_the_largest_unit_without_a_fraction(span, text):
    assert span_text(span // timedelta(milliseconds=1)) == text
