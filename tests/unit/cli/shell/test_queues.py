"""queues.py: --queues."""

from __future__ import annotations

import json

import pytest

from disque_py.cli.address import Target
from disque_py.cli.connection import ConnectError
from disque_py.cli.shell.main import main
from disque_py.cli.shell.options import QUEUES, UsageError, parse_options
from disque_py.cli.shell.queues import watch
from disque_py.client import Address
from scripted_queues import answers


def test_once_shows_one_table(scripted, capsys):
    assert main(["-p", str(scripted(answers()).port), "--queues", "--once"]) == 0
    out = capsys.readouterr().out
    assert out.split()[:2] == ["queue", "pending"]
    assert "attempts=5 dead-letter=failed" in out
    assert out.endswith("1 queue, 5 jobs pending\n")


def test_json_has_an_object_per_queue_and_interval(scripted, capsys):
    assert main(["-p", str(scripted(answers()).port), "--queues", "--json", "-r", "2", "-i", "0.01"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["queue"], row["pending"], row["settings"]["attempts"]) for row in rows] == [("mail", 5, "5")] * 2
    assert rows[0]["time"] <= rows[1]["time"]


def test_an_older_server_gets_advice_instead_of_a_syntax_error(scripted, capsys):
    """The message says which mode to use instead."""
    port = scripted(answers(QSTAT=b"-ERR syntax error\r\n")).port
    assert main(["-p", str(port), "--queues", "--once"]) == 1
    assert "--bigqueues shows those of one node" in capsys.readouterr().err


def test_without_a_node_the_table_is_an_error_at_once():
    with pytest.raises(ConnectError):
        watch(Target(Address("127.0.0.1", 1)), "*", None, 1, as_json=False)


def test_the_option_once_needs_the_mode_queues():
    assert parse_options(["--queues", "--once"], {}).mode is QUEUES
    with pytest.raises(UsageError, match="--once works only with --queues"):
        parse_options(["--stat", "--once"], {})
