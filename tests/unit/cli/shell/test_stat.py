"""stat.py: INFO as one line."""

from __future__ import annotations

import json

from disque_py.cli.address import Target
from disque_py.cli.shell.stat import HEADER, stat_line, stat_row, watch
from disque_py.client import Address, results

INFO = (
    b"# Clients\r\nconnected_clients:2\r\nblocked_clients:1\r\n\r\n# Memory\r\nused_memory:2097152\r\n"
    b"# Jobs\r\nregistered_jobs:7\r\n# Queues\r\nregistered_queues:3\r\n"
    b"# Stats\r\ntotal_connections_received:9\r\ntotal_commands_processed:100\r\n"
)


def test_a_line_has_the_columns_of_the_header():
    line = stat_line(stat_row(results.info(INFO), 90))
    assert line.split() == ["7", "3", "2.00M", "2", "1", "100", "(+10)", "9"]
    assert HEADER.split() == ["jobs", "queues", "mem", "clients", "blocked", "requests", "connections"]


def test_columns_stand_below_their_titles():
    line = stat_line(stat_row(results.info(INFO), 90))
    for title, cell in (("queues", "3"), ("mem", "2.00M"), ("requests", "100 (+10)"), ("connections", "9")):
        assert line[HEADER.index(title) :].startswith(cell)


def test_after_a_restart_the_increment_is_not_negative():
    assert stat_row({"total_commands_processed": 5}, 100)["new_requests"] == 0


def test_as_many_lines_are_printed_as_asked_for(scripted, capsys):
    node = scripted({"INFO": b"$%d\r\n%b\r\n" % (len(INFO), INFO)})
    assert watch(Target(Address("127.0.0.1", node.port)), 0.01, 3)
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_node_that_goes_away_is_waited_for(scripted, capsys):
    answers = iter([b"$%d\r\n%b\r\n" % (len(INFO), INFO), None, b"$%d\r\n%b\r\n" % (len(INFO), INFO)])
    node = scripted({"INFO": lambda words: next(answers)})
    assert watch(Target(Address("127.0.0.1", node.port)), 0.01, 3)
    assert capsys.readouterr().out.splitlines()[2] == "Server closed the connection"


def test_a_refusal_ends_it(scripted):
    node = scripted({"INFO": b"-NOAUTH Authentication required.\r\n"})
    assert not watch(Target(Address("127.0.0.1", node.port)), 0.01, 3)


def test_json_lines_are_objects_also_while_the_node_is_away(scripted, capsys):
    answers = iter([b"$%d\r\n%b\r\n" % (len(INFO), INFO), None])
    node = scripted({"INFO": lambda words: next(answers)})
    assert watch(Target(Address("127.0.0.1", node.port)), 0.01, 2, as_json=True)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["jobs"], first["memory"], first["requests"]) == (7, 2 << 20, 100)
    assert second == {"error": "Server closed the connection"}
