"""core/incremental.py: a long command is done a part per turn, and other clients' turns go on in between."""

from __future__ import annotations

import pytest

from brokers import ask, make_broker, make_client, port_of
from copies import hold, hold_queued, make_id
from disque_py.core import incremental
from disque_py.core.client import RUNNING, WAITS_FOR_PARTS
from disque_py.core.errors import CommandError
from disque_py.core.incremental import PART
from disque_py.core.job import ACTIVE
from disque_py.node import dispatch


def parts_of(count, reply=b"+DONE\r\n", done=None):
    """A command of so many parts."""
    for number in range(count):
        if done is not None:
            done.append(number)
        yield
    if isinstance(reply, Exception):
        raise reply
    return reply


def start():
    broker = make_broker()
    return broker, make_client(broker)


def finish(broker, client):
    """Return the client's replies when its command is over, and how many ticks that took."""
    ticks = 0
    while client.waiting == WAITS_FOR_PARTS:
        dispatch.tick(broker)
        ticks += 1
    data, client.out = b"".join(client.out), []
    return data, ticks


def test_a_short_command_is_answered_at_once():
    broker, client = start()
    assert incremental.begin(broker, client, parts_of(0)) == b"+DONE\r\n"
    assert (client.waiting, broker.waits.incremental) == (RUNNING, {})


def test_a_long_command_makes_the_client_wait_and_is_done_a_part_per_tick():
    """Spec B4."""
    broker, client = start()
    done = []
    assert incremental.begin(broker, client, parts_of(4, done=done)) is None
    assert (client.waiting, done) == (WAITS_FOR_PARTS, [0])
    assert dispatch.tick(broker) is True
    assert done == [0, 1]
    assert finish(broker, client) == (b"+DONE\r\n", 3)
    assert client in broker.outbox.clients
    assert (client.waiting, broker.waits.incremental) == (RUNNING, {})


def test_several_clients_take_turns():
    broker, one = start()
    other = make_client(broker)
    done = []
    for client in (one, other):
        incremental.begin(broker, client, parts_of(3, done=done))
    dispatch.tick(broker)
    assert done == [0, 0, 1, 1]


def test_a_part_of_a_long_command_may_raise_an_error():
    broker, client = start()
    incremental.begin(broker, client, parts_of(1, CommandError("ERR too late")))
    assert finish(broker, client)[0] == b"-ERR too late\r\n"


def test_a_client_that_hung_up_ends_its_command():
    broker, client = start()
    done = []
    incremental.begin(broker, client, parts_of(100, done=done))
    dispatch.disconnect(broker, client)
    dispatch.tick(broker)
    assert (done, broker.waits.incremental) == ([0], {})


def test_a_client_with_replies_off_is_not_answered_but_goes_on():
    broker, client = start()
    client.is_silenced = True
    incremental.begin(broker, client, parts_of(1))
    assert finish(broker, client)[0] == b""
    assert port_of(client).wakes == 0
    assert client in broker.outbox.clients


def test_the_pipeline_behind_a_long_command_waits():
    broker, client = start()
    ids = [hold(broker, number=number).id for number in range(2 * PART)]
    assert dispatch.execute(broker, client, [[b"ENQUEUE", *ids], [b"QLEN", b"q"]]) == 1
    assert finish(broker, client)[0] == b":%d\r\n" % (2 * PART)


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE"])
def test_long_lists_of_ids_are_done_in_parts(command):
    broker, client = start()
    make = hold_queued if command == "DEQUEUE" else hold
    ids = [make(broker, number=number).id for number in range(3 * PART)]
    assert ask(broker, client, command, *ids) == b""
    data, ticks = finish(broker, client)
    assert data == b":%d\r\n" % (3 * PART)
    assert ticks >= 3


def test_a_long_list_with_one_bad_id_changes_nothing():
    broker, client = start()
    jobs = [hold(broker, number=number) for number in range(2 * PART)]
    assert ask(broker, client, "ENQUEUE", *[job.id for job in jobs], "nonsense").startswith(b"-BADID")
    assert {job.state for job in jobs} == {ACTIVE}


def test_ids_that_go_while_the_command_works_are_not_counted():
    broker, client = start()
    ids = [hold(broker, number=number).id for number in range(2 * PART)]
    ask(broker, client, "ENQUEUE", *ids)
    other = make_client(broker)
    assert ask(broker, other, "DELJOB", *ids[PART : PART + 10]) == b":10\r\n"
    assert finish(broker, client)[0] == b":%d\r\n" % (2 * PART - 10)


def test_a_getjob_of_very_many_is_done_in_parts():
    broker, client = start()
    for number in range(3 * PART):
        hold_queued(broker, number=number, body=b"")
    assert ask(broker, client, "GETJOB", "COUNT", 100_000, "FROM", "q") == b""
    data, ticks = finish(broker, client)
    assert data.startswith(b"*%d\r\n" % (3 * PART))
    assert 2 <= ticks <= 5
    assert broker.queues[b"q"].length == 0


def test_jobs_taken_for_a_client_that_hung_up_come_back_after_their_retry():
    """It is as if the client had died with the jobs."""
    broker, client = start()
    for number in range(2 * PART):
        hold_queued(broker, number=number, retry_s=5)
    ask(broker, client, "GETJOB", "COUNT", 100_000, "FROM", "q")
    dispatch.disconnect(broker, client)
    assert broker.queues[b"q"].length == PART
    assert broker.find(make_id(0, retry_s=5)).is_leased_here
