"""core/asking.py: commands that work on every node."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import ASKJOBS, DIDJOBS, DOJOBS, JOBSARE, SETACK
from copies import advance, deliver, hold, hold_queued, make_id, say, sent, sent_of
from disque_py.core import acks
from disque_py.core.asking import (
    CANCEL,
    COPY,
    HAS_INVISIBLE,
    HAS_LEASED,
    HAS_QUEUED,
    NOTHING,
    OVER,
    Answers,
    refuse_unreachable,
)
from disque_py.core.errors import CommandError
from disque_py.core.job import Cancellation
from disque_py.node import dispatch

# The answer of a newer node.
NEWER = 9


def start(count=2):
    broker = make_broker()
    return broker, make_client(broker), [add_node(broker, number) for number in range(2, 2 + count)]


def replies(client):
    data = b"".join(client.out)
    client.out.clear()
    return data


def asked(broker, client, *ids):
    """Send a CANCELJOB of these ids, and return the number of its question to other nodes."""
    assert ask(broker, client, "CANCELJOB", *ids) == b""
    [(_, item)] = sent_of(broker, ASKJOBS)
    return item[0]


def test_a_node_tells_what_it_has():
    """Spec Y10."""
    broker, _, [node, _] = start()
    leased = hold_queued(broker, node, number=1)
    deliver(broker)
    queued, copy, done = hold_queued(broker, number=2), hold(broker, node, number=3), hold(broker, node, number=4)
    acks.acknowledge(broker, done)
    sent(broker)
    say(broker, node, ASKJOBS, [7, [leased.id, queued.id, copy.id, done.id, make_id(9)]])
    assert sent_of(broker, JOBSARE) == [((node,), (7, bytes([HAS_LEASED, HAS_QUEUED, COPY, OVER, NOTHING])))]


@pytest.mark.parametrize(
    ("answers", "actor"),
    [
        ((COPY, COPY), 0),
        ((COPY, HAS_QUEUED), 1),
        ((HAS_QUEUED, HAS_LEASED), 1),
        ((COPY, HAS_INVISIBLE), 1),
        ((HAS_INVISIBLE, HAS_QUEUED), 1),
        ((HAS_INVISIBLE, HAS_LEASED), 1),
        ((NEWER, COPY), 1),
        ((NOTHING, COPY), 1),
        ((OVER, COPY), 1),
    ],
)
def test_the_best_holder_acts(answers, actor):
    """The order is: the node that delivered it, has it queued, counts it, or has the lowest id. Spec Y10."""
    broker, client, nodes = start()
    job_id = make_id(1)
    number = asked(broker, client, job_id)
    for node, answer in zip(reversed(nodes), reversed(answers), strict=True):
        say(broker, node, JOBSARE, [number, bytes([answer])])
    advance(broker, 20)
    [(to, item)] = sent_of(broker, DOJOBS)
    assert (to, item[1:]) == ((nodes[actor],), (CANCEL, [job_id], []))
    say(broker, nodes[actor], DIDJOBS, [item[0], b"\x01"])
    advance(broker, 20)
    assert replies(client) == b":1\r\n"


def test_a_job_that_no_node_knows_counts_0_and_is_remembered():
    """Spec Y8."""
    broker, client, nodes = start()
    number = asked(broker, client, make_id(1))
    for node in nodes:
        say(broker, node, JOBSARE, [number, bytes([NOTHING])])
    advance(broker, 20)
    assert replies(client) == b":0\r\n"
    [(_, item)] = sent_of(broker, SETACK)
    assert item == (make_id(1), b"", 0, 1)


def test_a_job_that_is_over_counts_0_and_is_left_alone():
    """Spec Y10."""
    broker, client, nodes = start()
    number = asked(broker, client, make_id(1))
    for node in nodes:
        say(broker, node, JOBSARE, [number, bytes([OVER])])
    advance(broker, 20)
    assert replies(client) == b":0\r\n"
    assert broker.job_count == 0


def test_a_silent_node_is_waited_for_half_a_second():
    """A node whose link breaks is no longer waited for. Spec Y10."""
    broker, client, nodes = start()
    asked(broker, client, make_id(1))
    advance(broker, 490)
    assert replies(client) == b""
    advance(broker, 100)
    assert replies(client) == b":0\r\n"
    asked(broker, client, make_id(2))
    for node in nodes:
        dispatch.link_lost(broker, node)
    advance(broker, 20)
    assert replies(client) == b":0\r\n"
    assert broker.questions == {}


def test_a_node_that_is_stopped_takes_no_time_from_the_holder():
    """The holder answers after the silent node's time is over. Spec Y10."""
    broker, client, nodes = start()
    number = asked(broker, client, make_id(1))
    say(broker, nodes[1], JOBSARE, [number, bytes([COPY])])
    advance(broker, 600)
    [(to, item)] = sent_of(broker, DOJOBS)
    assert to == (nodes[1],)
    advance(broker, 200)
    say(broker, nodes[1], DIDJOBS, [item[0], b"\x01"])
    advance(broker, 20)
    assert replies(client) == b":1\r\n"


def test_all_holders_act_at_once():
    """One that stands still takes no time from the others. Spec Y10."""
    broker, client, nodes = start()
    number = asked(broker, client, make_id(1), make_id(2))
    for at, node in enumerate(nodes):
        say(broker, node, JOBSARE, [number, bytes([COPY if at == 0 else NOTHING, COPY if at else NOTHING])])
    advance(broker, 20)
    [_, (to, item)] = sent_of(broker, DOJOBS)
    say(broker, to[0], DIDJOBS, [item[0], b"\x01"])
    advance(broker, 1_100)
    assert replies(client) == b":1\r\n"


def test_a_cancellation_outlives_its_holder():
    """The asked node remembers it like an ack, and tells the others. Spec Y8."""
    broker, client, [node, other] = start()
    number = asked(broker, client, make_id(1))
    for each, has in ((node, COPY), (other, COPY)):
        say(broker, each, JOBSARE, [number, bytes([has])])
    advance(broker, 20)
    [(to, _)] = sent_of(broker, DOJOBS)
    dispatch.link_lost(broker, to[0])
    advance(broker, 20)
    assert replies(client) == b":0\r\n"
    assert isinstance(broker.find(make_id(1)).work, Cancellation)
    assert (make_id(1), b"", 0, 1) in [item for _, item in sent_of(broker, SETACK)]


def test_an_unknown_job_may_be_on_a_node_that_is_not_linked():
    """Spec Y10."""
    broker, _, [node, _] = start()
    answers = Answers()
    refuse_unreachable(broker, [make_id(1)], answers)
    broker.membership.links.back_off(node)
    broker.cluster.refresh()
    with pytest.raises(CommandError, match="UNREACHABLE No node that holds the job can be asked now"):
        refuse_unreachable(broker, [make_id(1)], answers)
    answers.over[make_id(1)] = True
    refuse_unreachable(broker, [make_id(1)], answers)


def test_an_unknown_job_may_be_on_a_node_that_is_silent():
    """Spec Y10."""
    broker, client, [node, _] = start()
    assert ask(broker, client, "PROMOTE", make_id(1)) == b""
    [(_, item)] = sent_of(broker, ASKJOBS)
    say(broker, node, JOBSARE, [item[0], bytes([NOTHING])])
    advance(broker, 600)
    assert replies(client) == b"-UNREACHABLE No node that holds the job can be asked now\r\n"


def test_a_holder_that_does_not_answer_may_have_done_nothing():
    """Spec Y10."""
    broker, client, [node, other] = start()
    assert ask(broker, client, "RESCHEDULE", make_id(1), "DELAY", "5") == b""
    [(_, item)] = sent_of(broker, ASKJOBS)
    say(broker, node, JOBSARE, [item[0], bytes([COPY])])
    say(broker, other, JOBSARE, [item[0], bytes([NOTHING])])
    advance(broker, 1_100)
    assert replies(client) == b"-UNREACHABLE No node that holds the job can be asked now\r\n"


def test_a_deed_is_done_to_jobs_that_are_held_only():
    """Spec Y10."""
    broker, _, [node, _] = start()
    job = hold_queued(broker, number=1)
    say(broker, node, DOJOBS, [3, CANCEL, [job.id, make_id(2)], []])
    assert sent_of(broker, DIDJOBS) == [((node,), (3, b"\x01\x00"))]
    assert broker.find(make_id(2)) is None


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (ASKJOBS, [1, ["x"]]),
        (ASKJOBS, ["1", []]),
        (DOJOBS, [1, CANCEL, [b"x" * 40], []]),
        (DOJOBS, [1, CANCEL, [], [3]]),
    ],
)
def test_a_malformed_question_closes_the_link(kind, item):
    broker, _, [node, _] = start()
    with pytest.raises(dispatch.MalformedMessageError):
        say(broker, node, kind, item)


def test_an_answer_to_no_question_is_ignored():
    broker, _, [node, _] = start()
    say(broker, node, JOBSARE, [99, b"\x01"])
    assert broker.stats.messages_ignored == 1
