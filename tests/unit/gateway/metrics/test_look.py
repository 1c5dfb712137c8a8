"""gateway/metrics/look.py: the commands of one scrape of one node."""

from __future__ import annotations

import pytest

from disque_py.client import Address, ReplyError
from disque_py.client.one_node import OneNode
from disque_py.client.options import ClientOptions
from disque_py.gateway.metrics.look import STATS_PER_PIPELINE, look_at
from metrics_nodes import ANSWERS
from scripted_queues import STAT, reply


@pytest.fixture
def look(scripted):
    """Look at a node with changed answers. Return the look, and the commands that the node got."""

    def go(**answers):
        node = scripted({**ANSWERS, **answers})
        with OneNode(Address("127.0.0.1", node.port), ClientOptions()) as connection:
            node.requests.clear()
            return look_at(connection, sorted), [b" ".join(words).decode() for words in node.requests]

    return go


def test_a_scrape_sends_few_commands_and_no_heavy_one(look):
    """docs/metrics.md states the cost of a scrape."""
    found, sent = look()
    assert sent == [
        "INFO",
        "HELLO",
        "CLUSTER NODES",
        "CLUSTER INFO",
        "QSCAN 0 COUNT 1000",
        "QSTAT mail RECENT",
        "QSTAT other RECENT",
    ]
    assert [stat.name for stat in found.stats] == ["mail", "other"]
    assert all(found.answered.values())


def test_a_refused_command_leaves_its_figures_out(look):
    found, _ = look(CLUSTER=b"-NOPERM no\r\n", QSTAT=b"-ERR syntax error\r\n")
    assert (found.table, found.stats) == ([], [])
    assert [command for command, is_answered in found.answered.items() if not is_answered] == ["CLUSTER NODES", "QSTAT"]
    assert found.info["total_jobs_added"] == 12


def test_an_older_node_is_not_asked_for_a_thousand_queues_in_vain(look):
    names = [f"q{number:03}" for number in range(3 * STATS_PER_PIPELINE)]
    _, sent = look(QSCAN=reply(["0", names]), QSTAT=b"-ERR syntax error\r\n")
    assert sum(words.startswith("QSTAT") for words in sent) == STATS_PER_PIPELINE


def test_a_queue_that_is_gone_by_now_has_no_figures(look):
    found, _ = look(QSTAT=lambda words: reply(None if words[1] == b"mail" else STAT | {"name": "other"}))
    assert [stat.name for stat in found.stats] == ["other"]
    assert found.answered["QSTAT"]


def test_a_node_that_refuses_info_is_down(look):
    with pytest.raises(ReplyError, match="LOADING"):
        look(INFO=b"-LOADING the journal is read\r\n")
