"""The load generators send each command once, and report refusals of a node."""

from __future__ import annotations

import pytest

from load import Each, LoadError, Repeated, packed, run_load
from nodes import Node
from redis_load import RedisBenchmarkError, read_csv


@pytest.fixture
def node(tmp_path):
    """One node, running."""
    with Node(tmp_path / "node") as node:
        yield node


def test_every_command_is_sent_once_and_answered(node):
    """Seven connections share 500 commands in batches of 16: the last batches are smaller."""
    replies = []
    source = Repeated(packed("ADDJOB", "q", "body", 0), 500, 16, replies.extend)
    result = run_load([node.port], source, 7)
    assert result.count == len(result.round_trips_ms) * 16 - 12 == len(set(replies)) == 500
    assert node.command("QLEN", "q") == 500


def test_different_commands_are_sent_once_each(node):
    """ACKJOB needs this, because every command has its own job."""
    run_load([node.port], Each([packed("ADDJOB", f"q{number}", "", 0) for number in range(50)], 4), 3)
    assert [node.command("QLEN", f"q{number}") for number in range(50)] == [1] * 50


def test_an_error_reply_ends_the_load(node):
    """Figures of refused commands would look far too good."""
    node.command("PAUSE", "q", "in")
    with pytest.raises(LoadError, match="PAUSED"):
        run_load([node.port], Repeated(packed("ADDJOB", "q", "body", 0), 100, 10), 2)


def test_a_node_that_hangs_up_ends_the_load(node):
    """The generator does not wait for ever."""
    with pytest.raises(LoadError, match="hung up"):
        run_load([node.port], Repeated(packed("QUIT"), 100, 10), 1)


def test_the_cpu_clock_of_a_node_advances_with_its_work(node):
    """The clock is read by the pid, without a request to the node."""
    before_s = node.cpu_s()
    run_load([node.port], Repeated(packed("PING"), 2000, 100), 4)
    assert 0 < node.cpu_s() - before_s < 5


def test_both_kinds_of_csv_of_redis_benchmark_are_read():
    """Since version 6.2 the output has a headline and percentiles."""
    new = '"test","rps","avg_latency_ms","p99_latency_ms"\n"PING","1000.50","0.5","1.25"\n'
    assert read_csv(new).per_s == read_csv('"PING","1000.50"\n').per_s == 1000.5
    assert read_csv(new).p99_ms == 1.25
    assert read_csv('"PING","1000.50"\n').p99_ms is None
    with pytest.raises(RedisBenchmarkError, match="Could not connect"):
        read_csv("Could not connect\n")
