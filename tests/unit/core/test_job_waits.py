"""core/job_waits.py: clients that wait for the ends of jobs. tests/scenarios/test_job_waits.py has conversations."""

from __future__ import annotations

from time import perf_counter

import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import DELJOB, JOBHAS, JOBOVER, NOWAIT, RESULT, WAITFOR, WAITIS
from copies import advance, hold, hold_queued, make_id, say, sent_of
from disque_py.core import job_waits, timers
from disque_py.event_format import COMPLETED, EXPIRED
from disque_py.node import dispatch
from disque_py.node.dispatch import MalformedMessageError

ID = make_id(1)


def start(count=1):
    broker = make_broker()
    nodes = [add_node(broker, number) for number in range(2, 2 + count)]
    return broker, make_client(broker), *nodes


def replies(client):
    data = b"".join(client.out)
    client.out.clear()
    return data


def number_of(broker):
    return sent_of(broker, WAITFOR)[-1][1][0]


def test_a_job_is_registered_once_per_node():
    """Spec RW7."""
    broker, client, other = start()
    hold(broker, other)
    assert ask(broker, client, "WAITJOB", ID) == b""
    assert ask(broker, make_client(broker), "WAITJOB", ID) == b""
    assert sent_of(broker, WAITFOR) == [((other,), (1, [ID]))]


def test_a_job_that_moves_while_nodes_are_asked_is_not_unknown():
    """Spec RW6: a node that said no and then got it says so, and all are asked twice."""
    broker, client, one, other = start(2)
    ask(broker, client, "WAITJOB", ID)
    first = number_of(broker)
    say(broker, one, WAITIS, (first, b"\0"))
    say(broker, one, JOBHAS, (ID, 0x22))
    say(broker, other, WAITIS, (first, b"\0"))
    assert replies(client) == b""
    say(broker, one, JOBHAS, (ID, 0))
    second = number_of(broker)
    say(broker, other, WAITIS, (second, b"\0"))
    say(broker, one, WAITIS, (second, b"\0"))
    assert b"unknown" in replies(client)


def test_an_expired_copy_does_not_end_a_wait_while_another_node_has_the_job():
    """Spec RW6: it may have been given a fresh life."""
    broker, client, one, other = start(2)
    ask(broker, client, "WAITJOB", ID)
    number = number_of(broker)
    say(broker, other, WAITIS, (number, b"\x22"))
    say(broker, one, JOBOVER, (ID, EXPIRED, None, None))
    say(broker, one, WAITIS, (number, bytes([job_waits.IS_OVER])))
    assert replies(client) == b""
    say(broker, other, JOBHAS, (ID, 0))
    assert b"expired" in replies(client)


def test_a_node_is_told_of_an_end_once_and_again_when_its_link_comes_up():
    """Spec RW7: until it takes its registration back."""
    broker, client, other = start()
    job = hold_queued(broker)
    say(broker, other, WAITFOR, (7, [job.id]))
    assert sent_of(broker, WAITIS) == [((other,), (7, bytes([3 << 4 | 2])))]
    ask(broker, client, "ACKJOB", job.id, "RESULT", "r")
    dispatch.settle(broker)
    assert sent_of(broker, JOBOVER) == [((other,), (job.id, COMPLETED, b"r", None))]
    dispatch.link_up(broker, other)
    advance(broker, 10)
    assert len(sent_of(broker, JOBOVER)) == 1
    say(broker, other, NOWAIT, [job.id])
    dispatch.link_up(broker, other)
    advance(broker, 10)
    assert sent_of(broker, JOBOVER) == []


def test_an_ack_of_a_job_that_was_never_here_proves_nothing():
    """Spec RW6."""
    broker, client, other = start()
    ask(broker, client, "ACKJOB", ID)
    assert ask(broker, client, "WAITJOB", ID) == b""
    say(broker, other, JOBOVER, (ID, COMPLETED, None, None))
    assert b"completed" in replies(client)


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (WAITFOR, (1, [b"no id"])),
        (WAITFOR, (1, [ID] * 501)),
        (JOBHAS, (ID, 255)),
        (JOBOVER, (ID, 3, None, None)),
        (JOBOVER, (ID, 4, 5, None)),
        (NOWAIT, 5),
        (NOWAIT, [ID, 5]),
    ],
)
def test_a_message_that_no_node_sends_closes_the_link(kind, item):
    broker, client, other = start()
    ask(broker, client, "WAITJOB", ID)
    with pytest.raises(MalformedMessageError):
        say(broker, other, kind, item)


def test_registrations_that_come_while_the_journal_is_read_are_answered_afterwards():
    """Spec RW7."""
    broker, _, other = start()
    job = hold_queued(broker)
    broker.is_loading = True
    say(broker, other, WAITFOR, (7, [job.id]))
    assert sent_of(broker, WAITIS) == []
    broker.is_loading = False
    advance(broker, 200)
    assert [item[0] for _, item in sent_of(broker, WAITIS)] == [7]


def test_an_end_and_a_time_out_in_one_turn_tell_the_end():
    """Spec RW5: the job is gone from memory then, and the client has not been told yet."""
    broker = make_broker()
    waiting, client = make_client(broker), make_client(broker)
    job = hold_queued(broker)
    assert ask(broker, waiting, "WAITJOB", job.id, "TIMEOUT", 500) == b""
    assert ask(broker, client, "ACKJOB", job.id, "RESULT", "r") == b":1\r\n"
    broker.now_ms += 500
    timers.tick(broker)
    assert b"completed\r\n$1\r\nr\r\n" in replies(waiting)


def test_jobs_that_end_in_one_turn_are_told_together():
    """Spec RW5: also where one of them would be enough."""
    broker = make_broker()
    waiting, client = make_client(broker), make_client(broker)
    jobs = [hold_queued(broker, number=number).id for number in (1, 2)]
    ask(broker, waiting, "WAITJOB", *jobs, "ANY")
    for job_id in jobs:
        ask(broker, client, "ACKJOB", job_id, "RESULT", "r")
    dispatch.settle(broker)
    assert replies(waiting).count(b"completed\r\n$1\r\nr\r\n") == 2


def test_the_end_of_one_of_many_jobs_is_cheap():
    """Ten clients wait for any of a thousand jobs."""
    broker, _, *nodes = start(2)
    ids = [make_id(number) for number in range(1, 1025)]
    clients = [make_client(broker) for _ in range(10)]
    for client in clients:
        ask(broker, client, "WAITJOB", *ids, "ANY")

    def answer():
        asked = [item for _, item in sent_of(broker, WAITFOR)]
        for node in nodes:
            for number, part in asked:
                say(broker, node, WAITIS, (number, b"\x22" * len(part)))
        return len(asked)

    assert answer() == 3
    began = perf_counter()
    say(broker, nodes[0], JOBOVER, (ids[0], COMPLETED, None, None))
    assert answer() == 3  # The clients share the question.
    assert [replies(client).count(b"pending") for client in clients] == [1023] * 10
    assert perf_counter() - began < 1.5  # Each answer looked at all jobs for each of them, which took ten seconds.


def test_an_end_in_doubt_ends_a_wait_when_all_nodes_were_asked_again():
    """Spec RW10: another node may have the result, and an answer of before may be older than the end."""
    broker, client, one, other = start(2)
    ask(broker, client, "WAITJOB", ID)
    first = number_of(broker)
    say(broker, other, WAITIS, (first, b"\0"))
    say(broker, one, JOBOVER, (ID, COMPLETED, None, None, 1))
    say(broker, one, WAITIS, (first, bytes([job_waits.IS_OVER])))
    assert replies(client) == b""
    second = number_of(broker)
    say(broker, one, JOBOVER, (ID, COMPLETED, None, None, 1))
    say(broker, one, WAITIS, (second, bytes([job_waits.IS_OVER])))
    say(broker, other, WAITIS, (second, b"\0"))
    assert b"completed\r\n$-1" in replies(client)


@pytest.mark.parametrize("is_known", [False, True])
def test_an_end_heard_by_a_deljob_is_told_in_doubt(is_known):
    """Spec RW10: unless the result came before."""
    broker, _, other = start()
    job = hold(broker, other)
    say(broker, other, WAITFOR, (7, [job.id]))
    if is_known:
        say(broker, other, RESULT, (job.id, b"r", 2, bytes(20)))
    say(broker, other, DELJOB, (job.id, broker.sets.pack(job.holders)))
    dispatch.settle(broker)
    told = (job.id, COMPLETED, b"r", None) if is_known else (job.id, COMPLETED, None, None, 1)
    assert sent_of(broker, JOBOVER) == [((other,), told)]
