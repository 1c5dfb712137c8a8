"""disque_py/cli/bench/load.py: connections that count replies, with a server in the same loop."""

from __future__ import annotations

import asyncio
import socket

import pytest

from disque_py.cli.bench import load
from disque_py.cli.bench.dialects import BEANSTALKD, DISQUE, FLOOR, Request
from disque_py.cli.bench.floor import Ping
from disque_py.cli.bench.load import Acknowledge, Loaded, LoadError, Repeat, connected


class Saying(asyncio.Protocol):
    """A server that answers everything with the same bytes, or closes the connection if there are none."""

    def __init__(self, reply):
        self._reply = reply

    def connection_made(self, transport):
        self._transport = transport

    def data_received(self, data):
        if self._reply:
            self._transport.write(self._reply)
        else:
            self._transport.close()


def run(factory, dialect, count, work):
    """Run `work` with open connections to a server of this protocol."""

    async def all_of_it():
        server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
        async with server:
            made = await connected([server.sockets[0].getsockname()[1]], dialect, count, "q")
            try:
                return await work(made)
            finally:
                load.close_all(made)
                await asyncio.sleep(0)

    return asyncio.run(all_of_it())


def test_a_limit_is_sent_to_the_last_request():
    """Three connections share 100 requests, with 7 per write. The last write has fewer."""
    found = run(Ping, FLOOR, 3, lambda made: Repeat(FLOOR.ping(), 7, limit=100).run(made, None))
    assert found.count == 100
    assert found.rate > 0


def test_a_flow_ends_with_its_time_and_counts_whole_batches():
    found = run(Ping, FLOOR, 2, lambda made: Repeat(FLOOR.ping(), 10).run(made, 0.3))
    assert found.count > 0
    assert found.count % 10 == 0
    assert 0.2 <= found.seconds < 5


@pytest.mark.parametrize(
    ("dialect", "reply", "words"),
    [
        (DISQUE, b"-NOREPL Not enough reachable nodes\r\n", "^REFUSED .*answered: -NOREPL Not enough"),
        (BEANSTALKD, b"OUT_OF_MEMORY\r\n", "^REFUSED .*answered: OUT_OF_MEMORY"),
        (DISQUE, b"+one\r\n+two\r\n", "^UNEXPECTED"),
        (DISQUE, b"", "^LOST"),
    ],
)
def test_a_server_that_does_not_answer_as_it_should_ends_the_flow(dialect, reply, words):
    """Measurements of errors would mean nothing."""
    request = Request(b"x\r\n", 1)
    with pytest.raises(LoadError, match=words):
        run(
            lambda: Saying(reply),
            DISQUE if dialect is DISQUE else Mute(),
            1,
            lambda made: Repeat(request, 1).run(made, 1),
        )


class Mute(type(BEANSTALKD)):
    """beanstalkd's dialect without its greeting, which the server of this test would not understand."""

    def hello(self, queue):
        return None


def test_a_minus_within_a_reply_is_not_an_error():
    """A reply may be cut anywhere, also before the first minus sign of an id."""
    connection = load.LoadConnection(DISQUE)
    connection.send(b"", 1)
    connection.data_received(b"+D")
    connection.data_received(b"-dcb833cf-8YL1\r\n")
    assert connection.take_replies() == b""


def test_a_silent_server_is_reported(monkeypatch):
    monkeypatch.setattr(load, "PATIENCE_S", 0.05)
    with pytest.raises(LoadError, match=r"^STUCK no reply for 0\.15 s"):
        run(lambda: Saying(b"+half"), FLOOR, 1, lambda made: Repeat(FLOOR.ping(), 1).run(made, 0.1))


def test_every_connection_acknowledges_the_jobs_that_it_got():
    """In beanstalkd, no other connection can delete a reserved job."""
    found = run(lambda: Saying(b"DELETED\r\n"), Mute(), 2, acknowledge)
    assert found.count == 3


async def acknowledge(made):
    return await Acknowledge(BEANSTALKD, "q", b"", {0: [b"1", b"2"], 1: [b"3"]}, 1).run(made, None)


def test_a_port_without_a_listener_is_reported():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(LoadError, match=r"^CONNECT 1 connections can't be opened"):
            asyncio.run(connected([bound.getsockname()[1]], FLOOR, 1, "q"))


def test_rates_and_shares_are_by_the_second():
    loaded = Loaded(count=100, seconds=2.0, generator_cpu_s=1.0)
    assert (loaded.rate, loaded.generator_share) == (50.0, 0.5)
