"""LATENCY."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, make_broker, make_client


@pytest.fixture
def broker():
    broker = make_broker(latency_monitor_threshold=10)
    for wall_s, ms in ((100, 20), (100, 30), (105, 12)):
        broker.stats.log_latency("command", ms, wall_s)
    broker.stats.log_latency("fast-command", 11, 107)
    return broker


def told(broker, *words):
    return ask_parsed(broker, make_client(broker), "LATENCY", *words)


def test_latest_has_the_last_and_the_worst_sample(broker):
    assert told(broker, "LATEST") == [[b"command", 105, 12, 30], [b"fast-command", 107, 11, 11]]


def test_history_is_the_worst_of_each_second_oldest_first(broker):
    assert told(broker, "HISTORY", "command") == [[100, 30], [105, 12]]
    assert told(broker, "HISTORY", "nothing") == []


def test_reset_counts_the_series_it_drops(broker):
    assert told(broker, "RESET", "command", "nothing") == 1
    assert told(broker, "RESET") == 1
    assert told(broker, "LATEST") == []


def test_graph_of_an_event_without_samples(broker):
    reply = ask(broker, make_client(broker), "LATENCY", "GRAPH", "fork")
    assert reply == b"-ERR No samples available for event 'fork'\r\n"
    assert told(broker, "GRAPH", "command").startswith(b"command - high 30 ms, low 12 ms (all time high 30 ms)\n")


def test_doctor_answers_with_text(broker):
    assert b"1. command: 2 spikes" in told(broker, "DOCTOR")


@pytest.mark.parametrize("words", [("NONSENSE",), ("HISTORY",), ("LATEST", "x")])
def test_other_forms_are_refused(broker, words):
    assert ask(broker, make_client(broker), "LATENCY", *words) == b"-ERR syntax error\r\n"
