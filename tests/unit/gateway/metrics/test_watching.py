"""gateway/metrics/watching.py: asks all nodes at the same time. A slow node does not delay the others."""

from __future__ import annotations

import threading
import time

import pytest

from disque_py.client import Address, AuthError
from disque_py.client.options import make_options
from disque_py.gateway.metrics.selection import Selection
from disque_py.gateway.metrics.watching import LATE_CHANCE_S, Watchers
from metrics_nodes import INFO
from scripted_queues import NODE_ID, reply


def hello(node_id, *others):
    return reply([1, node_id, *([other, "127.0.0.1", str(port), "1"] for other, port in others)])


def stalled(event):
    """An INFO that is answered when the event is set."""

    def answer(words):
        event.wait(10)
        return reply(INFO)

    return answer


def test_every_node_is_in_the_answer(made):
    seen = made({}, {"INFO": b"-NOAUTH log in\r\n"}).scrape(2)
    assert sorted((each.look is None, each.error) for each in seen) == [(False, ""), (True, "NOAUTH log in")]


@pytest.mark.parametrize("answer", [b"*1\r\n$1\r\nx\r\n", b":7\r\n", b"$-1\r\n"])
@pytest.mark.parametrize("command", ["HELLO", "INFO", "CLUSTER", "QSCAN", "QSTAT"])
def test_a_server_of_another_kind_does_not_disturb_the_scrape(made, command, answer):
    """The list of nodes may have a wrong port."""
    seen = made({}, {command: answer}).scrape(2)
    assert len(seen) == 2
    assert any(each.look is not None for each in seen)


def test_a_node_that_is_gone_is_down_at_once():
    watchers = Watchers([Address("127.0.0.1", 1)], make_options((), {}), Selection())
    assert "refused" in watchers.scrape(2)[0].error


def test_a_stalled_node_delays_one_scrape_and_no_other(made):
    event = threading.Event()
    watchers = made({}, {"INFO": stalled(event)}, timeout=9)
    first = watchers.scrape(0.3)
    started = time.monotonic()
    second = watchers.scrape(5)
    assert time.monotonic() - started < 2
    for seen in (first, second):
        assert sorted(each.error for each in seen) == ["", "no answer in time"]
    event.set()


def test_a_node_that_answers_again_is_up_again(made):
    event = threading.Event()
    watchers = made({"INFO": stalled(event)}, timeout=9)
    assert watchers.scrape(0.05)[0].look is None
    event.set()
    time.sleep(2 * LATE_CHANCE_S)
    watchers.scrape(2)
    assert watchers.scrape(2)[0].look is not None


def test_simultaneous_scrapes_share_one_round_of_questions(made, scripted):
    event = threading.Event()
    asked = []
    watchers = made({"INFO": lambda words: asked.append(words) or stalled(event)(words)}, timeout=9)
    threads = [threading.Thread(target=watchers.scrape, args=(5,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    event.set()
    for thread in threads:
        thread.join()
    assert len(asked) == 1


def test_a_connection_is_kept_and_a_lost_one_is_made_anew(made):
    """A node that restarts or closes idle connections does not count as down."""
    hung_up = iter([False, True, False])
    watchers = made({"INFO": lambda words: None if next(hung_up) else reply(INFO)})
    assert [watchers.scrape(2)[0].error for _ in range(2)] == ["", ""]


def test_discovery_follows_hello(made, scripted):
    other = scripted({"HELLO": hello("b" * 40), "INFO": reply(INFO)})
    members = [(NODE_ID, 7711), ("b" * 40, other.port)]
    watchers = made({"HELLO": lambda words: hello(NODE_ID, *members)}, discovers=True)
    # The first scrape has the discovered nodes already, so that it does not show a part of the cluster.
    assert [[each.address.port for each in watchers.scrape(2)].count(other.port) for _ in range(2)] == [1, 1]
    del members[1]
    watchers.scrape(2)
    assert len(watchers.scrape(2)) == 1


def test_discovery_is_a_choice(made):
    watchers = made({"HELLO": hello(NODE_ID, (NODE_ID, 7711), ("b" * 40, 1))})
    watchers.scrape(2)
    assert len(watchers.scrape(2)) == 1


def test_known_nodes_are_kept_when_no_node_answers(made):
    """Alerts need the samples of nodes that are down."""
    answers = iter([reply(INFO), b"-LOADING wait\r\n", b"-LOADING wait\r\n"])
    members = ((NODE_ID, 7711), ("b" * 40, 1))
    watchers = made({"HELLO": hello(NODE_ID, *members), "INFO": lambda words: next(answers)}, discovers=True)
    assert [len(watchers.scrape(2)) for _ in range(3)] == [2, 2, 2]


def test_a_password_that_a_node_does_not_want_is_left_out(made):
    sent = iter([b"-ERR Client sent AUTH, but no password is set\r\n"])
    watchers = made({"AUTH": lambda words: next(sent)}, password="secret")
    assert watchers.scrape(2)[0].error == ""
    assert next(sent, None) is None


@pytest.mark.parametrize("refusal", ["ERR invalid password", "WRONGPASS invalid username-password pair"])
def test_a_wrong_password_is_the_reason(made, refusal):
    """Not the NOAUTH that a second try without a password would get."""
    [seen] = made({"AUTH": b"-%b\r\n" % refusal.encode()}, password="secret").scrape(2)
    assert (seen.error, isinstance(seen.cause, AuthError)) == (refusal, True)
