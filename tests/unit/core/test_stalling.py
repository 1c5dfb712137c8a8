"""core/stalling.py: long commands that wait."""

from __future__ import annotations

from brokers import make_broker, make_client, pass_time
from disque_py.core import incremental, stalling
from disque_py.core.client import RUNNING, WAITS_FOR_PARTS
from disque_py.node import dispatch


def command(wait):
    """A long command that waits, and is over then."""
    yield from wait
    return b"+DONE\r\n"


def start(make_wait):
    """Return a broker and a client whose command waits."""
    broker = make_broker()
    client = make_client(broker)
    assert incremental.begin(broker, client, command(make_wait(broker, client))) is None
    return broker, client


def test_a_command_that_waits_does_no_part():
    """It looks again when a handler lets it go on."""
    seen = []
    broker, client = start(
        lambda broker, client: stalling.until(broker, client, lambda: len(seen) > 1 or bool(seen.append(1)))
    )
    dispatch.tick(broker)
    assert (seen, client.waiting) == ([1], WAITS_FOR_PARTS)
    stalling.resume_client(broker, client)
    dispatch.tick(broker)
    assert (seen, client.waiting) == ([1, 1], WAITS_FOR_PARTS)
    stalling.resume_client(broker, client)
    dispatch.tick(broker)
    assert client.waiting == RUNNING


def test_a_wait_ends_with_its_moment():
    """The tick at that moment is due."""
    broker, client = start(lambda broker, client: stalling.pause(broker, client, 50))
    pass_time(broker, 49)
    dispatch.tick(broker)
    assert client.waiting == WAITS_FOR_PARTS
    pass_time(broker, 1)
    dispatch.tick(broker)
    dispatch.tick(broker)
    assert client.waiting == RUNNING


def test_a_client_that_waits_for_nothing_is_let_be():
    """No tick is made due for it."""
    broker = make_broker()
    due = broker.schedule.next_ms()
    stalling.resume_client_now(broker, make_client(broker))
    assert broker.schedule.next_ms() == due
