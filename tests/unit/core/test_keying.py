"""core/keying.py: asking which node knows a key. tests/scenarios/keys.txt has conversations of several nodes."""

from __future__ import annotations

from time import perf_counter

import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import DELJOB, HAVE, ISKEY, KEYIS, OUTCOME, OUTCOME_IS, REFUSED, REFUSED_KEY, REPLJOB
from copies import advance, make_id, say, sent, sent_of, snapshot
from disque_py.core import keying, lifecycle, reset
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.job_snapshot import snapshot_of
from disque_py.core.keys import KEY_AT, KEY_END, key_chars
from disque_py.core.replication import CREATION_ABORTED, NEW_KEY
from disque_py.node import dispatch
from lost_copies import SECOND, answer, make_cluster

CHARS = key_chars(b"q", b"k")


def add(broker, client, *words):
    reply = ask(broker, client, "ADDJOB", "q", "body", *(words or (0, "KEY", "k")))
    dispatch.settle(broker)
    return reply + taken(client)


def taken(client):
    data = b"".join(client.out)
    client.out.clear()
    return data


def start(number=200):
    broker = make_broker()
    return broker, make_client(broker), add_node(broker, number)


def other_id(number=7):
    return make_id(number)[:11] + CHARS + make_id(number)[29:]


def test_a_lone_node_creates_at_once_and_names_the_job_afterwards():
    broker = make_broker()
    client = make_client(broker)
    first = ask(broker, client, "ADDJOB", "q", "body", 0, "KEY", "k")
    assert ask(broker, client, "ADDJOB", "q", "other", 0, "KEY", "k", "RETRY", 5) == first
    assert ask(broker, client, "ADDJOB", "q", "body", 0, "KEY", "other") != first
    assert broker.job_count == 2


def test_nothing_is_created_before_all_have_answered():
    """Spec K2."""
    broker, client, node = start()
    assert add(broker, client, 0, "REPLICATE", 1, "KEY", "k") == b""
    assert (broker.job_count, sent_of(broker, ISKEY)) == (0, [((node,), (1, CHARS))])
    say(broker, node, KEYIS, (1, CHARS, b""))
    assert taken(client)[12:30] == CHARS
    assert broker.job_count == 1


def test_a_key_that_another_node_knows_is_answered_with_the_id_of_its_job():
    broker, client, node = start()
    add(broker, client)
    say(broker, node, KEYIS, (1, CHARS, other_id()))
    assert (taken(client), broker.job_count, broker.producers.searches) == (b"+%b\r\n" % other_id(), 0, {})


def test_an_answer_to_an_older_question_does_not_count():
    broker, client, node = start()
    add(broker, client)
    say(broker, node, KEYIS, (99, CHARS, b""))
    assert (taken(client), broker.job_count) == (b"", 0)


def test_callers_of_one_node_wait_for_one_another():
    broker, client, node = start()
    second = make_client(broker)
    add(broker, client, 0, "REPLICATE", 1, "KEY", "k")
    add(broker, second, 0, "REPLICATE", 1, "KEY", "k")
    assert len(sent_of(broker, ISKEY)) == 1
    say(broker, node, KEYIS, (1, CHARS, b""))
    dispatch.settle(broker)
    assert taken(client) == taken(second) != b""
    assert broker.waits.blocked_count == 0


def test_the_time_of_a_caller_may_be_over_before_any_node_answers():
    broker, client, _ = start()
    add(broker, client, 500, "KEY", "k")
    advance(broker, 600)
    assert taken(client).startswith(b"-NOREPL Timeout")
    assert (broker.producers.searches, broker.waits.blocked_count) == ({}, 0)


def test_a_caller_that_hangs_up_is_not_answered():
    broker, client, node = start()
    add(broker, client)
    dispatch.disconnect(broker, client)
    dispatch.settle(broker)
    assert (broker.producers.searches, broker.waits.blocked_count) == ({}, 0)
    say(broker, node, KEYIS, (1, CHARS, b""))
    assert broker.job_count == 0


def test_a_question_is_repeated():
    """A node that loads its journal hears nothing."""
    broker, client, node = start()
    add(broker, client)
    sent_of(broker, ISKEY)
    advance(broker, keying.REPEAT_MS + 100)
    assert sent_of(broker, ISKEY) == [((node,), (1, CHARS))]


def test_a_question_for_an_unknown_key_is_answered_with_no_id():
    broker, _, node = start()
    say(broker, node, ISKEY, (5, CHARS))
    assert sent_of(broker, KEYIS) == [((node,), (5, CHARS, b""))]


def test_of_two_askers_the_lower_one_delays_its_answer():
    """We are the lower one: the other hears when our job exists."""
    broker, client, node = start(200)
    add(broker, client, 0, "REPLICATE", 1, "KEY", "k")
    say(broker, node, ISKEY, (5, CHARS))
    assert sent_of(broker, KEYIS) == []
    say(broker, node, KEYIS, (1, CHARS, b""))
    dispatch.settle(broker)
    job_id = taken(client)[1:41]
    assert sent_of(broker, KEYIS) == [((node,), (5, CHARS, job_id, 0, []))]


def test_of_two_askers_the_higher_one_answers_and_asks_again():
    """Spec K4."""
    broker = make_broker(node_id=b"\xff" * 20)
    client, node = make_client(broker), add_node(broker, 2)
    add(broker, client)
    sent_of(broker, ISKEY)
    say(broker, node, ISKEY, (5, CHARS))
    runs = [(kind, item) for _, kind, items in broker.outbox.messages.take() for item in items]
    assert [each for each in runs if each[0] in (ISKEY, KEYIS)] == [(KEYIS, (5, CHARS, b"")), (ISKEY, (2, CHARS))]
    say(broker, node, KEYIS, (1, CHARS, b""))
    assert broker.job_count == 0


def test_after_a_broken_link_all_nodes_are_asked_again():
    broker, client, node = start()
    other = add_node(broker, 201)
    add(broker, client)
    say(broker, other, KEYIS, (1, CHARS, b""))
    dispatch.incoming_lost(broker, other)
    assert sent_of(broker, ISKEY)[-1] == ((node, other), (2, CHARS))
    assert set(broker.producers.searches[CHARS].unanswered) == {node, other}


def test_a_node_with_a_new_link_is_asked_too():
    broker, client, _ = start()
    add(broker, client)
    sent_of(broker, ISKEY)
    other = add_node(broker, 201)
    dispatch.link_up(broker, other)
    assert sent_of(broker, ISKEY) == [((other,), (2, CHARS))]


@pytest.mark.parametrize(("retry", "reply"), [(0, b"-UNREACHABLE"), (30, b"+D-")])
def test_a_node_that_cannot_be_asked_may_have_an_at_most_once_job(retry, reply):
    """Spec K7."""
    broker, client, node = start()
    add_node(broker, 201, is_linked=False)
    add(broker, client, 0, "RETRY", retry, "REPLICATE", 1, "KEY", "k")
    say(broker, node, KEYIS, (1, CHARS, b""))
    assert taken(client).startswith(reply)


def keyed_snapshot(broker, *holders, number=7):
    _, *rest = snapshot(broker, *holders, number=number)
    return (other_id(number), *rest[:4], 0, JobAttributes(None, (), is_keyed=True).pack())


def test_a_copy_of_a_new_job_is_refused_if_another_one_has_its_key():
    """Spec K5."""
    broker, _, node = start()
    say(broker, node, REPLJOB, (keyed_snapshot(broker, node), NEW_KEY))
    say(broker, node, REPLJOB, (keyed_snapshot(broker, node, number=8), NEW_KEY))
    assert sent_of(broker, REFUSED) == [((node,), (other_id(8), REFUSED_KEY))]
    assert broker.producers.keys.named(CHARS) == other_id(7)


def test_a_copy_that_this_node_has_given_away_may_come_back():
    """Its creator may still wait for copies. The key is that of the job itself."""
    broker, _, node = start()
    say(broker, node, REPLJOB, (keyed_snapshot(broker, node), NEW_KEY))
    lifecycle.forget(broker, broker.find(other_id(7)))
    say(broker, node, REPLJOB, (keyed_snapshot(broker, node), NEW_KEY))
    assert sent_of(broker, REFUSED) == []
    assert broker.job_count == 1


def test_a_copy_that_a_leaving_node_gives_away_is_taken_whatever_key_it_has():
    """Both jobs exist; they are never merged."""
    broker, _, node = start()
    say(broker, node, REPLJOB, (keyed_snapshot(broker, node), 0), (keyed_snapshot(broker, node, number=8), 0))
    assert broker.job_count == 2


def test_the_creator_is_asked_before_a_copy_is_named():
    """Spec K3."""
    broker = make_broker()
    creator, asker = add_node(broker, 1), add_node(broker, 2)
    job_id = b"D-" + creator.name[:8] + other_id()[10:]
    say(broker, creator, REPLJOB, ((job_id, *keyed_snapshot(broker, creator)[1:]), NEW_KEY))
    say(broker, asker, ISKEY, (5, CHARS))
    assert sent_of(broker, OUTCOME) == [((creator,), (job_id,))]
    say(broker, creator, OUTCOME_IS, (job_id,))
    dispatch.settle(broker)
    assert sent_of(broker, KEYIS) == [((asker,), (5, CHARS, job_id, 0, []))]


def test_a_queued_copy_may_still_turn_out_not_to_exist():
    """Its retry came before its creator had copies enough; no consumer has got it."""
    broker = make_broker()
    creator, asker = add_node(broker, 1), add_node(broker, 2)
    job_id = b"D-" + creator.name[:8] + other_id()[10:]
    say(broker, creator, REPLJOB, ((job_id, *keyed_snapshot(broker, creator)[1:]), NEW_KEY))
    lifecycle.enqueue(broker, broker.find(job_id))
    say(broker, asker, ISKEY, (5, CHARS))
    assert sent_of(broker, OUTCOME) == [((creator,), (job_id,))]
    say(broker, creator, DELJOB, (job_id, None, CREATION_ABORTED))
    dispatch.settle(broker)
    assert (sent_of(broker, KEYIS), broker.job_count) == ([((asker,), (5, CHARS, b""))], 0)


def test_a_job_that_was_named_exists_even_if_its_creator_says_otherwise_later():
    """Our link to it was broken, so it could not be asked. Its own link reports that there were too few copies."""
    broker = make_broker()
    client = make_client(broker)
    creator = add_node(broker, 1)
    job_id = b"D-" + creator.name[:8] + other_id()[10:]
    say(broker, creator, REPLJOB, ((job_id, *keyed_snapshot(broker, creator)[1:]), NEW_KEY))
    broker.membership.link_down(creator)
    assert add(broker, client) == b"+%b\r\n" % job_id
    say(broker, creator, DELJOB, (job_id, None, CREATION_ABORTED))
    assert broker.find(job_id) is not None
    assert broker.producers.keys.named(CHARS) == job_id


@pytest.mark.parametrize("is_told", [False, True], ids=["its DELJOB was lost", "its DELJOB comes after its name"])
def test_the_copies_of_a_job_that_was_named_without_its_creator_are_counted(is_told):
    """Spec K3, RC2. The creator may have given the job up before it had made all copies, and deleted some."""
    broker, creator, holder, _ = make_cluster()
    client = make_client(broker)
    job_id = b"D-" + creator.name[:8] + other_id()[10:]
    say(broker, creator, REPLJOB, ((job_id, *keyed_snapshot(broker, creator, holder)[1:]), NEW_KEY))
    broker.membership.link_down(creator)
    assert add(broker, client) == b"+%b\r\n" % job_id
    if is_told:
        advance(broker, SECOND)
        answer(broker, holder)
        sent(broker)
        say(broker, creator, DELJOB, (job_id, None, CREATION_ABORTED))
    advance(broker, SECOND)
    assert [(nodes, ids) for nodes, (_, _, ids) in sent_of(broker, HAVE)] == [((holder,), [job_id])]


def test_the_outcome_of_a_job_that_waits_for_copies_is_told_when_there_is_one():
    broker, client, node = start()
    add(broker, client, 100, "REPLICATE", 2, "KEY", "k")
    say(broker, node, KEYIS, (1, CHARS, b""))
    (job,) = broker.copies.waiting_repl
    say(broker, node, OUTCOME, (job.id,), (other_id(),))
    assert sent_of(broker, OUTCOME_IS) == [((node,), (other_id(),))]
    advance(broker, 200)
    assert sent_of(broker, OUTCOME_IS) == [((node,), (job.id,))]
    assert broker.producers.keys.named(CHARS) == b""


def test_a_refused_copy_begins_the_search_again():
    broker, client, node = start()
    add(broker, client, 0, "REPLICATE", 2, "KEY", "k")
    say(broker, node, KEYIS, (1, CHARS, b""))
    (job,) = broker.copies.waiting_repl
    say(broker, node, REFUSED, (job.id, REFUSED_KEY))
    dispatch.settle(broker)
    assert (broker.job_count, sent_of(broker, ISKEY)[-1]) == (0, ((node,), (2, CHARS)))
    say(broker, node, KEYIS, (2, CHARS, other_id()))
    assert taken(client) == b"+%b\r\n" % other_id()
    assert (broker.waits.blocked_count, client.waiting_jobs) == (0, {})


def test_the_job_created_after_a_refused_copy_has_its_body():
    """Where bodies may go to disk, the job that was given up has lost its own at once."""
    broker, client, node = start()
    broker.memory.is_spilling = True
    add(broker, client, 0, "REPLICATE", 2, "KEY", "k")
    say(broker, node, KEYIS, (1, CHARS, b""))
    (job,) = broker.copies.waiting_repl
    body = job.body
    say(broker, node, REFUSED, (job.id, REFUSED_KEY))
    dispatch.settle(broker)
    say(broker, node, KEYIS, (2, CHARS, b""))
    (again,) = broker.copies.waiting_repl
    assert body
    assert (again.body, again is job) == (body, False)


def test_a_flush_answers_all_waiting_clients_and_nodes():
    broker, client, node = start()
    add(broker, client)
    say(broker, node, ISKEY, (5, CHARS))
    ask(broker, make_client(broker), "DEBUG", "FLUSHALL")
    assert taken(client).startswith(b"-NOREPL job removed")
    assert sent_of(broker, KEYIS) == [((node,), (5, CHARS, b""))]
    assert broker.producers.searches == {}


def test_a_snapshot_tells_the_key_to_every_holder():
    broker, client, _ = start()
    lone = make_broker()
    ask(lone, make_client(lone), "ADDJOB", "q", "body", 0, "KEY", "k", "PRIORITY", 5)
    (job,) = [job for shard in lone.shards for job in shard.values()]
    node = add_node(broker, 201)
    say(broker, node, REPLJOB, (snapshot_of(lone, job), 0))
    assert broker.producers.keys.named(CHARS) == job.id
    assert add(broker, client) == b"+%b\r\n" % job.id
    assert job.id[KEY_AT:KEY_END] == CHARS


@pytest.mark.parametrize("item", [("1", CHARS), (1, b"short"), (1, "x" * 18)])
def test_a_malformed_question_of_a_key_closes_the_link(item):
    broker, _, node = start()
    with pytest.raises(dispatch.MalformedMessageError):
        say(broker, node, ISKEY, item)


def test_an_answer_without_a_valid_id_closes_the_link():
    broker, client, node = start()
    add(broker, client)
    with pytest.raises(dispatch.MalformedMessageError):
        say(broker, node, KEYIS, (1, CHARS, b"no id"))


def test_thousands_may_wait_for_one_key_at_no_cost_per_pair_of_them():
    broker, _, _ = start()
    clients = [make_client(broker) for _ in range(10)]
    for client in clients:
        dispatch.execute(broker, client, [[b"ADDJOB", b"q", b"body", b"0", b"KEY", b"k"]] * 1000)
    began = perf_counter()
    dispatch.settle(broker)
    assert perf_counter() - began < 2  # Each of them looked at for each other one took ten seconds.
    assert len(broker.producers.searches[CHARS].callers) == 10_000


def test_a_job_is_not_kept_for_the_time_its_producer_would_have_waited():
    broker, client, node = start()
    add(broker, client, 3_600_000, "REPLICATE", 1, "KEY", "k")
    say(broker, node, KEYIS, (1, CHARS, b""))
    job_id = taken(client)[1:41]
    assert ask(broker, client, "ACKJOB", job_id) == b":1\r\n"
    advance(broker, 11_000)
    assert broker.schedule.next_ms() > broker.now_ms + 3_600_000  # The end of the key is the next that is due.


def test_a_far_deadline_is_kept():
    broker, client, _ = start()
    add(broker, client, 25_000, "KEY", "k")
    for _ in range(249):
        advance(broker, 100)
        dispatch.settle(broker)
    assert taken(client) == b""
    advance(broker, 116)
    assert taken(client).startswith(b"-NOREPL Timeout")


@pytest.mark.parametrize("ending", ["answer", "flush"])
def test_one_timer_repeats_the_questions_of_all_keys(ending):
    """Or each key that is asked for alone would start another one, and a steady producer's questions multiply."""
    broker, client, node = start()
    for number in range(1, 30):
        key = key_chars(b"q", b"%d" % number)
        add(broker, client, 0, "REPLICATE", 1, "KEY", number)
        say(broker, node, KEYIS, (number, key, b""))
        if ending == "flush":
            reset.flush(broker)
        advance(broker, 50)
    add(broker, client)
    sent_of(broker, ISKEY)
    advance(broker, 2 * keying.REPEAT_MS)
    assert len(sent_of(broker, ISKEY)) == 2
