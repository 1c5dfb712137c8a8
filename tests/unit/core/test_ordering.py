"""core/ordering.py: better jobs of other nodes come before worse ones here."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import HINT, INTEREST, NEEDJOBS, YOURJOBS
from copies import advance, say, sent_of, snapshot
from disque_py.core import ordering
from disque_py.core.ordering import ANSWER_MS, DOUBT_MS, TELL_MS, WORSE_MAX
from disque_py.core.pulls import NOTABLE_MS, RETRIED_ONLY
from disque_py.node import dispatch

BEST = (1, 5)


def make_cluster(jobs=0, priority=5):
    """Return a broker with jobs of this priority, another node, and a client."""
    broker = make_broker()
    other, client = add_node(broker, 2), make_client(broker)
    add(broker, client, jobs, priority)
    sent_of(broker, HINT)
    return broker, other, client


def add(broker, client, count=1, priority=None):
    words = () if priority is None else ("PRIORITY", priority)
    for _ in range(count):
        ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1, *words)
    dispatch.settle(broker)


def get(broker, client, count=1):
    reply = ask(broker, client, "GETJOB", "NOHANG", "COUNT", count, "FROM", "q")
    dispatch.settle(broker)
    return reply


def places(broker):
    return [item[2:] for _, item in sent_of(broker, HINT)]


def test_consumers_that_go_on_for_a_while_are_told_once_and_taken_back():
    """Spec F6."""
    broker, _, client = make_cluster(100)
    get(broker, client)
    assert sent_of(broker, INTEREST) == []
    for _ in range(10):
        advance(broker, 300)
        get(broker, client)
    assert [item for _, item in sent_of(broker, INTEREST)] == [(b"q", -1, -1, 1)]
    advance(broker, 5_000)
    dispatch.settle(broker)
    assert [item for _, item in sent_of(broker, INTEREST)] == [(b"q", -1)]


def test_a_busy_node_hears_of_the_best_job_when_it_gets_better():
    broker, other, client = make_cluster()
    say(broker, other, INTEREST, (b"q", -1, -1, 1))
    add(broker, client, priority=7)
    assert [place[0] for place in places(broker)] == [7]
    add(broker, client, priority=9)
    add(broker, client, priority=3)
    assert places(broker) == []  # At most every 100 ms.
    advance(broker, TELL_MS)
    dispatch.settle(broker)
    assert [place[0] for place in places(broker)] == [3]


def test_a_job_without_priority_is_announced_when_it_has_waited():
    broker, other, client = make_cluster()
    say(broker, other, INTEREST, (b"q", -1, -1, 1))
    add(broker, client)
    advance(broker, NOTABLE_MS - 10)
    dispatch.settle(broker)
    assert places(broker) == []
    advance(broker, 20)
    dispatch.settle(broker)
    assert len(places(broker)) == 1


def test_better_jobs_are_asked_for_by_a_place():
    """Spec F7."""
    broker, other, client = make_cluster(10)
    say(broker, other, HINT, (b"q", 1, *BEST))
    get(broker, client)
    [(_, item)] = sent_of(broker, NEEDJOBS)
    assert item[0] == b"q"
    assert item[3] == 5


def test_a_node_gives_only_jobs_before_the_place_and_tells_what_is_left():
    broker, other, client = make_cluster(3, priority=1)
    add(broker, client, 5, priority=8)
    say(broker, other, NEEDJOBS, (b"q", 50, 0, 5, 0))
    assert broker.queues[b"q"].length == 5
    [place] = places(broker)
    assert (place[0], place[2]) == (8, 3)


def test_a_job_behind_one_that_came_in_a_moment_ago_is_announced():
    """Spec F7: the first job may not leave yet, and hides no other."""
    broker, other, _client = make_cluster(3, priority=10**14)
    say(broker, other, INTEREST, (b"q", -1, -1, 1))
    advance(broker, 2_000)
    say(broker, add_node(broker, 3), YOURJOBS, (1, 0, [snapshot(broker, other)]))
    sent_of(broker, HINT)
    say(broker, other, NEEDJOBS, (b"q", 50, 0, 10**14, 0))
    [place] = places(broker)
    assert (place[0], place[2]) == (10**14, 0)
    advance(broker, 1_000)
    dispatch.settle(broker)
    [place] = places(broker)
    assert place[0] < 10**14


def test_better_jobs_behind_many_that_came_in_a_moment_ago_are_given():
    """Spec F8: an asker that gets none of them counts its worse jobs from the beginning."""
    broker, other, _client = make_cluster(10, priority=10**14)
    advance(broker, 2_000)
    say(broker, add_node(broker, 3), YOURJOBS, (1, 0, [snapshot(broker, other, number=number) for number in range(21)]))
    assert broker.queues[b"q"].length == 31
    say(broker, other, NEEDJOBS, (b"q", 4, 0, 10**14 + 1, 0))
    [place] = places(broker)
    assert place[2] == 4
    assert broker.queues[b"q"].length == 27


def test_at_most_once_jobs_stay_and_are_not_announced_while_the_disk_fails():
    """Spec F7: they can't be handed over, so the answer ends with the other jobs."""
    broker, other, client = make_cluster()
    say(broker, other, INTEREST, (b"q", -1, -1, 1))
    ask(broker, client, "ADDJOB", "q", "x", 0, "RETRY", 0, "PRIORITY", 1)
    add(broker, client, 2, priority=3)
    add(broker, client, 2, priority=8)
    sent_of(broker, HINT)
    broker.journal.disk_level = 1
    say(broker, other, NEEDJOBS, (b"q", 50, 0, 5, 0))
    assert [(place[0], place[2]) for place in places(broker)] == [(8, 2)]
    assert [job.priority for job in broker.queues[b"q"].oldest()] == [1, 8, 8]
    broker.owe_hint(broker.queues[b"q"])
    advance(broker, 2 * TELL_MS)
    dispatch.settle(broker)
    assert places(broker) == []


def test_a_node_whose_consumers_skip_at_most_once_jobs_gets_the_others_only():
    """Spec F7, O7."""
    broker, other, client = make_cluster()
    ask(broker, client, "ADDJOB", "q", "x", 0, "RETRY", 0, "PRIORITY", 1)
    add(broker, client, 2, priority=3)
    add(broker, client, 2, priority=8)
    sent_of(broker, HINT)
    say(broker, other, NEEDJOBS, (b"q", 50, RETRIED_ONLY, 5, 0))
    assert [(place[0], place[2]) for place in places(broker)] == [(8, 2)]
    assert [job.priority for job in broker.queues[b"q"].oldest()] == [1, 8, 8]


def test_a_node_without_the_queue_answers_a_place():
    broker, other, _ = make_cluster()
    say(broker, other, NEEDJOBS, (b"none", 50, 0, 5, 0))
    assert places(broker) == [(None, None, 0)]


def test_after_a_number_of_worse_jobs_clients_wait_for_the_better_one():
    """Spec F8."""
    broker, other, client = make_cluster(200)
    say(broker, other, HINT, (b"q", 1, *BEST))
    assert get(broker, client, 150).count(b"D-") == WORSE_MAX
    assert get(broker, client) == b""
    say(broker, other, HINT, (b"q", 0, None, None, 0))
    dispatch.settle(broker)
    assert b"D-" in b"".join(client.out)


def test_without_an_answer_clients_wait_a_second():
    broker, other, client = make_cluster(200)
    say(broker, other, HINT, (b"q", 1, *BEST))
    get(broker, client, 150)
    waiting = make_client(broker)
    ask(broker, waiting, "GETJOB", "FROM", "q")
    advance(broker, ANSWER_MS + 1)
    dispatch.settle(broker)
    assert b"D-" in b"".join(waiting.out)


class Liar:
    """A node that announces better and better jobs of the queue. It promises `given` jobs, and sends none."""

    def __init__(self, given):
        self.broker, self.node, self.client = make_cluster(3_000)
        self.given = given
        self.pulls = 0
        self.tell()

    def tell(self, *given):
        say(self.broker, self.node, HINT, (b"q", 1, -self.broker.now_ms, 0, *given))

    def fetched(self, span_ms):
        """Return how many of its own jobs the broker gives to a client that keeps asking for that time."""
        count = 0
        for _ in range(span_ms // 10):
            if not self.client.waiting:
                count += ask(self.broker, self.client, "GETJOB", "COUNT", 10, "FROM", "q").count(b"D-")
            dispatch.settle(self.broker)
            count += b"".join(self.client.out).count(b"D-")
            self.client.out.clear()
            for _ in sent_of(self.broker, NEEDJOBS):
                self.pulls += 1
                self.tell(self.given)
            self.tell()
            advance(self.broker, 10)
        return count


@pytest.mark.parametrize("given", [0, 1, 1_000_000])
def test_a_node_that_never_gives_its_better_jobs_cannot_stop_a_queue(given):
    """Spec F10."""
    liar = Liar(given)
    assert liar.fetched(3_000) > 1_500
    assert liar.pulls <= 3


def test_jobs_wait_a_second_at_most_whatever_is_given():
    """Spec F10: a node gives jobs, but worse ones than it was asked for."""
    broker, other, client = make_cluster(2_000)
    say(broker, other, HINT, (b"q", 1, *BEST))
    get(broker, client, 150)
    waiting = make_client(broker)
    ask(broker, waiting, "GETJOB", "FROM", "q")
    for number in range(110):
        if sent_of(broker, NEEDJOBS):
            say(broker, other, HINT, (b"q", 1, *BEST, 1))
            say(broker, other, YOURJOBS, (1 + number, 0, [snapshot(broker, other, number=number)]))
        advance(broker, 10)
    assert b"D-" in b"".join(waiting.out)


def test_a_doubted_node_is_believed_again():
    """Spec F10."""
    broker, other, client = make_cluster(200)
    say(broker, other, HINT, (b"q", 1, *BEST))
    get(broker, client, 40)
    say(broker, other, HINT, (b"q", 1, *BEST, 0))
    assert broker.queues[b"q"].rivals.best is None
    say(broker, other, HINT, (b"q", 1, 2, 2))
    assert broker.queues[b"q"].rivals.best is None
    advance(broker, DOUBT_MS + 1)
    assert broker.queues[b"q"].rivals.best == (2, 2)


def test_jobs_under_way_count_as_elsewhere():
    broker, other, client = make_cluster(200)
    say(broker, other, HINT, (b"q", 1, *BEST))
    get(broker, client, 150)
    say(broker, other, HINT, (b"q", 0, None, None, 1))
    assert ordering.is_held_back(broker.queues[b"q"])


def test_a_lost_link_voids_the_reports_of_its_node():
    broker, other, client = make_cluster(200)
    say(broker, other, HINT, (b"q", 1, *BEST))
    get(broker, client, 150)
    dispatch.incoming_lost(broker, other)
    assert not ordering.is_held_back(broker.queues[b"q"])
    assert broker.queues[b"q"].rivals.best is None


@pytest.mark.parametrize("words", [(1, "x"), ("x", 1), (1, 2, "x")])
def test_a_place_without_numbers_is_an_error(words):
    broker, other, _ = make_cluster(1)
    with pytest.raises(dispatch.MalformedMessageError):
        say(broker, other, HINT, (b"q", 1, *words))
