"""queue_commands.py: disque-admin queue."""

from __future__ import annotations

import json

import pytest

from scripted_queues import NIL, SETTINGS, reply

DONE = reply({"task": "t1", "state": "done", "jobs": 5, "failed": 0, "nodes": 3, "nodes-missing": []})
TASK = {
    "QLEN": b":5\r\n",
    "QPURGE": b"+t1\r\n",
    "QMOVE": b"+t1\r\n",
    "QREDRIVE": b"+t1\r\n",
    "QREBALANCE": b"+t1\r\n",
    "QTASK_SHOW": DONE,
}


def sent(result, name):
    """Return the words of the only command with this name."""
    (words,) = [words for words in result.node.requests if words[0] == name.encode()]
    return b" ".join(words).decode()


def test_a_misspelled_setting_gets_a_suggestion(admin):
    refusal = b"-ERR unknown queue setting 'atempts'\r\n"
    result = admin("queue set mail dead-letter=x atempts=5", QUEUE_SET=refusal)
    assert (result.exit_code, result.output.splitlines()[-1]) == (1, "Did you mean 'attempts'?")


def test_list_shows_a_row_per_queue(admin):
    assert "attempts=5 dead-letter=failed" in admin("queue list").output
    assert json.loads(admin("queue list --json").output)["errored"] == 4


def test_show_has_figures_and_every_setting(admin):
    lines = [line.split() for line in admin("queue show mail").output.splitlines()]
    assert ["errored", "4"] in lines
    assert ["attempts", "5"] in lines
    assert ["retention", "7d", "default"] in lines
    shown = json.loads(admin("queue show mail --json").output)
    assert (shown["figures"]["len"], shown["settings"]["dead-letter"]) == (5, "failed")


def test_show_of_an_unknown_queue_fails(admin):
    result = admin("queue show nope", QSTAT=NIL, QUEUE_GET=b"*-1\r\n")
    assert (result.exit_code, "`disque-admin queue list` shows all queues" in result.output) == (1, True)


def test_set_sends_all_fields_at_once(admin):
    result = admin("queue set mail attempts=5 dead-letter failed")
    assert [b"QUEUE", b"SET", b"mail", b"attempts", b"5", b"dead-letter", b"failed"] in result.node.requests
    assert result.output == "mail: attempts=5 dead-letter=failed\n"


def test_set_reports_a_node_that_is_behind(admin):
    result = admin("queue set mail attempts=5", QUEUE_GET=reply({**SETTINGS, "behind": 1}))
    assert "Nodes that have not confirmed it yet: 1" in result.output


def test_reset_prints_the_previous_settings(admin):
    assert admin("queue reset mail").output == "mail: all defaults, was: attempts=5 dead-letter=failed\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("queue pause mail", "PAUSE mail all bcast"),
        ("queue pause mail --only in", "PAUSE mail in bcast"),
        ("queue resume mail", "PAUSE mail none bcast"),
    ],
)
def test_a_pause_is_for_all_nodes(admin, line, words):
    result = admin(line, PAUSE=b"+all\r\n")
    assert (result.exit_code, sent(result, "PAUSE")) == (0, words)


def test_purge_asks_first(admin):
    result = admin("queue purge mail --where tenant=a --status errored", stdin="n\n", **TASK)
    assert "Cancel 5 errored jobs with this metadata of 'mail'?" in result.output
    assert [words for words in result.node.requests if words[0] == b"QPURGE"] == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("queue purge mail --yes", "QPURGE mail ASYNC"),
        ("queue purge mail --where tenant=a --yes", "QPURGE mail WHERE tenant a ASYNC"),
        ("queue move a b --status errored --limit 3 --rate 10", "QMOVE a b STATUS errored LIMIT 3 RATE 10 ASYNC"),
        ("queue redrive failed --to mail", "QREDRIVE failed TO mail ASYNC"),
        ("queue rebalance mail --zone a --zone eu/b", "QREBALANCE mail ZONES a eu/b ASYNC"),
    ],
)
def test_a_long_change_is_a_task(admin, line, words):
    result = admin(line, **TASK)
    assert (result.exit_code, sent(result, words.split()[0])) == (0, words)
    assert result.output.startswith("5 jobs ")


def test_a_detached_task_is_its_id(admin):
    result = admin("queue move a b --detach", **TASK)
    assert result.output == "t1\n"
    assert [words for words in result.node.requests if words[0] == b"QTASK"] == []
