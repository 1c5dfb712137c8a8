"""disque_py/cli/bench/paced.py with a real node."""

from __future__ import annotations

import threading

import pytest

from disque_py.cli.bench.dialects import DISQUE
from disque_py.cli.bench.load import LoadError
from disque_py.cli.bench.paced import fixed_rate, open_line, timers, wakeups


@pytest.fixture
def lines(server):
    """Two connections to one node."""
    with open_line(server.port, DISQUE, "q") as one, open_line(server.port, DISQUE, "q") as other:
        yield one, other


def test_every_request_of_a_fixed_rate_has_a_latency(server, lines):
    found = fixed_rate(list(lines), DISQUE.add("q", b"x"), rate=200, seconds=0.5)
    assert len(found.latencies_ms) == 100 == server.command("QLEN", "q")
    assert min(found.latencies_ms) > 0
    assert found.achieved_rate < 250


def test_a_stall_is_in_the_latencies_of_all_requests_that_it_held_up(server, lines):
    """The node stops for half a second. A generator that waits for replies would have sent one request meanwhile."""
    server.command("ADDJOB", "q", "x", 0)
    request = DISQUE.add("q", b"x")
    lines[0].request(request)
    server.pause()
    timer = threading.Timer(0.5, server.resume)
    timer.start()
    try:
        found = fixed_rate(list(lines), request, rate=200, seconds=0.4)
    finally:
        timer.join()
    assert sum(late > 100 for late in found.latencies_ms) >= 60


def test_a_job_wakes_a_waiting_consumer(server, lines):
    found = wakeups(*lines, DISQUE, "q", b"x", 5)
    assert len(found) == 5
    assert server.command("QLEN", "q") == 0


def test_delayed_jobs_are_not_early(lines):
    found = timers(*lines, DISQUE, "q", b"x", [1, 2, 1, 2], 0.2)
    assert len(found) == 4
    assert min(found) > -5


def test_a_refused_delay_ends_the_measurement_at_once(server):
    """It would wait a minute for jobs that no node has."""
    server.command("CONFIG", "SET", "requirepass", "secret")
    with open_line(server.port, DISQUE, "q") as one, open_line(server.port, DISQUE, "q") as other:
        with pytest.raises(LoadError, match=r"^REFUSED .*NOAUTH"):
            timers(one, other, DISQUE, "q", b"x", [1], 0.2)
        with pytest.raises(LoadError, match=r"^REFUSED .*NOAUTH"):
            wakeups(one, other, DISQUE, "q", b"x", 1)


def test_a_node_that_hangs_up_ends_the_measurement(server, lines):
    server.kill()
    with pytest.raises((LoadError, ConnectionError)):
        timers(*lines, DISQUE, "q", b"x", [1], 0.2)


def test_a_refusal_ends_the_measurement(lines):
    with pytest.raises(LoadError, match=r"^REFUSED .*ERR"):
        fixed_rate([lines[0]], type(DISQUE.ping())(b"NOSUCHCOMMAND\r\n", 1), rate=100, seconds=0.1)
