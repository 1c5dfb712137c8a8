"""scanning.py: the queues of a node, each one once."""

from __future__ import annotations

import contextlib

import pytest

from disque_py.cli.address import Target
from disque_py.cli.connection import Connection
from disque_py.cli.shell.formats import FORMATTED, RAW, name_shower
from disque_py.cli.shell.scanning import RefusedError, big_queues, scan
from disque_py.client import Address

FIRST = b"*2\r\n$1\r\n5\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\na\r\n"
LAST = b"*2\r\n$1\r\n0\r\n*2\r\n$1\r\nb\r\n$2\r\nc\n\r\n"
STATS = {b"a": 3, b"b": 0}


def qscan(words):
    return FIRST if words[1] == b"0" else LAST


def qstat(words):
    if words[1] not in STATS:
        return b"*-1\r\n"
    return b"*4\r\n$3\r\nlen\r\n:%d\r\n$7\r\njobs-in\r\n:9\r\n" % STATS[words[1]]


@pytest.fixture
def connection(scripted):
    node = scripted({"QSCAN": qscan, "QSTAT": qstat})
    with contextlib.closing(Connection.open(Target(Address("127.0.0.1", node.port)))) as opened:
        yield opened


@pytest.mark.parametrize(
    ("pattern", "is_formatted", "text"),
    [
        ("*", False, b"a\nb\nc\n\n"),
        ("*", True, b'"a"\n"b"\n"c\\n"\n'),
        ("[ab]", False, b"a\nb\n"),
        ("c?", False, b"c\n\n"),
        ("x*", False, b""),
    ],
)
def test_each_matching_name_is_written_once(connection, pattern, is_formatted, text):
    written = []
    scan(connection, pattern, 0.0, show=name_shower(FORMATTED if is_formatted else RAW), write=written.append)
    assert b"".join(written) == text


def test_big_queues_are_listed_longest_first_with_totals(connection):
    lines = big_queues(connection, "*", 0.0).lines()
    assert lines[1].split() == ["3", "9", "-", "-", '"a"', "#" * 30]
    assert lines[2].split()[:5] == ["0", "9", "-", "-", '"b"']
    assert lines[-2:] == ["2 queues, 1 of them empty", "3 jobs queued on this node, 1.50 per queue"]


def test_the_node_is_asked_for_recent_figures_because_it_visits_all_jobs_for_fresh_ones(scripted):
    node = scripted({"QSCAN": qscan, "QSTAT": qstat})
    with contextlib.closing(Connection.open(Target(Address("127.0.0.1", node.port)))) as connection:
        big_queues(connection, "*", 0.0)
    asked = [words[1:] for words in node.requests if words[0] == b"QSTAT"]
    assert asked == [[b"a", b"RECENT"], [b"b", b"RECENT"], [b"c\n", b"RECENT"]]


def test_a_server_without_recent_figures_is_asked_for_fresh_ones(scripted):
    def only_fresh(words):
        return qstat(words) if len(words) == 2 else b"-ERR wrong number of arguments for 'qstat' command\r\n"

    node = scripted({"QSCAN": qscan, "QSTAT": only_fresh})
    with contextlib.closing(Connection.open(Target(Address("127.0.0.1", node.port)))) as connection:
        assert big_queues(connection, "*", 0.0).lines()[-1] == "3 jobs queued on this node, 1.50 per queue"
    assert sum(words[0] == b"QSTAT" and len(words) == 3 for words in node.requests) == 2  # The first page only.


def test_a_refusal_is_reported(scripted):
    node = scripted({"QSCAN": b"-NOAUTH Authentication required.\r\n"})
    with (
        contextlib.closing(Connection.open(Target(Address("127.0.0.1", node.port)))) as connection,
        pytest.raises(RefusedError, match="NOAUTH"),
    ):
        big_queues(connection, "*", 0.0)
