"""core/exclusive.py: jobs that could not be claimed, or whose claims are over, are offered again."""

from __future__ import annotations

import pytest

from claimed_worlds import add, begin_get, exclusive, get, ids_within, quorum
from disque_py.core import delivery

FROM_TWO = (
    ("FROM", "q", "p"),
    ("WHERE", "kind", "x", "FROM", "q", "p"),
    ("FROMMATCH", "?"),
)


def dead_letter(world):
    """Let a job of queue q become a dead letter in d."""
    job_id = add(world, "a", copies=1)
    assert [each.id for each in get(world, "a")] == [job_id]
    assert world.ask("a", "NACK", job_id, "FINAL") == 1
    return job_id


def waiting_for(world, name, queue):
    talker = world.client(name)
    talker.say("GETJOB", "WITHLEASE", "FROM", queue)
    return talker


def test_a_dead_letter_is_offered_in_a_queue_that_is_claimed_by_id_too():
    """Its claim ended while it was moving."""
    world = quorum()
    world.ask("a", "QUEUE", "SET", "q", "dead-letter", "d")
    world.ask("a", "QUEUE", "SET", "d", "assign", "quorum")
    world.run(100)
    job_id = dead_letter(world)
    assert ids_within(world, waiting_for(world, "a", "d"), 1_000) == [job_id]


def test_a_dead_letter_without_the_name_of_its_exclusive_queue_is_offered():
    world = exclusive()
    world.ask("a", "QUEUE", "SET", "q", "type", "simple")
    world.ask("a", "QUEUE", "SET", "q", "dead-letter", "d")
    world.run(100)
    job_id = add(world, "a", copies=1)
    for name in "qd":
        world.ask("a", "QUEUE", "SET", name, "type", "exclusive", "exclusive-by", "user")
    world.run(100)
    assert [each.id for each in get(world, "a")] == [job_id]
    world.ask("a", "NACK", job_id, "FINAL")
    assert ids_within(world, waiting_for(world, "a", "d"), 1_000) == [job_id]


def test_a_job_whose_claim_was_refused_is_offered_in_the_queue_to_which_it_moved():
    """The job runs elsewhere. Its claim is over twenty seconds later."""
    world = quorum()
    world.ask("a", "QUEUE", "SET", "z", "assign", "quorum")
    world.run(100)
    job_id = add(world, "a", retry=5)
    world.cut("a", "c")
    world.cut("b", "c")
    world.run(50)
    assert get(world, "a", "LEASE", 20)
    world.run(5_200)
    world.crash("a")
    world.heal()
    world.run(100)
    waiting = begin_get(world, "c")
    world.run(300)
    assert not waiting.replies
    waiting.close(after_replies=False)
    world.run(20)
    world.ask("c", "QMOVE", "q", "z")
    assert ids_within(world, waiting_for(world, "c", "z"), 30_000) == [job_id]


@pytest.mark.parametrize("words", FROM_TWO)
def test_a_consumer_of_two_queues_gets_a_job_of_the_second_after_its_claim_in_the_first_was_refused(words):
    """The job came while the claim was under way."""
    world = exclusive()
    world.ask("a", "QUEUE", "SET", "p", "type", "exclusive", "exclusive-by", "user")
    world.run(100)
    add(world, "b", "ann", copies=1)
    assert get(world, "b")
    waiting = world.client("c")
    waiting.say("GETJOB", "WITHLEASE", *words)
    world.run(50)
    for name, user in (("q", "ann"), ("p", "bob")):
        options = ("RETRY", 10, "REPLICATE", 1, "META", "user", user, "META", "kind", "x")
        world.client("c").say("ADDJOB", name, user, 0, *options)
    ids_within(world, waiting, 1_000)
    assert waiting.replies[0][0][2] == b"bob"


def test_a_job_that_was_claimed_for_one_lease_is_not_delivered_for_another():
    """Its consumer hung up during the claim. Spec EX3."""
    world = exclusive()
    first, second = begin_get(world, "a", "LEASE", 1), begin_get(world, "a", "LEASE", 30)
    world.run(50)
    world.client("a").say("ADDJOB", "q", "x", 0, "RETRY", 10, "REPLICATE", 1, "META", "user", "ann")
    world.until(lambda: bool(world["a"].exclusive.lines))
    first.close(after_replies=False)
    ids_within(world, second, 3_000)
    fields = second.replies[0][0]
    assert fields[fields.index(b"lease-ms") + 1] > 25_000


def test_a_key_that_voters_block_is_not_asked_for_all_the_time():
    """Spec CL5: after a change of the voters, grants of two holders block a key."""
    world = exclusive("abcd", "bcd")
    add(world, "a", "ann", copies=1, retry=3)
    (delivery,) = get(world, "a")
    key = next(iter(world["a"].exclusive.busy))
    for name in "bcd":
        entry = (key, b"other", delivery.fence + 1, 60_000, delivery.fence + 1, 0, 0, 0, 0, True, False)
        world[name].claims.memory.grants.merge(entry, world[name].now_ms)
    world.run(5_000)
    waiting = begin_get(world, "a")
    world.run(1_000)
    before = world["a"].exclusive.number
    world.run(1_000)
    assert not waiting.replies
    assert world["a"].exclusive.number - before < 20


@pytest.mark.plain
def test_a_consumer_of_many_queues_does_not_look_at_all_of_them_after_each_claim(monkeypatch):
    """Their values are busy elsewhere. It made as many attempts as the square of the number of queues."""
    world = exclusive()
    names = [f"p{number}" for number in range(100)]
    for name in names:
        world.ask("a", "QUEUE", "SET", name, "type", "exclusive", "exclusive-by", "user")
    world.run(500)
    options = ("RETRY", 100, "REPLICATE", 1, "META", "user", "ann")
    for name in names:
        world.ask("b", "ADDJOB", name, "x", 0, *options)
        assert world.ask("b", "GETJOB", "NOHANG", "FROM", name)
    world.client("c").say("GETJOB", "FROM", *names)
    world.run(300)
    calls = []
    claim_for_line = delivery._claim_for_line

    def count(*arguments):
        calls.append(1)
        return claim_for_line(*arguments)

    monkeypatch.setattr(delivery, "_claim_for_line", count)
    for name in names:
        world.client("c").say("ADDJOB", name, "x", 0, *options)
    world.run(600)
    assert 100 <= len(calls) < 2_000


@pytest.mark.parametrize("count", [3, 30])
def test_all_queues_whose_jobs_came_during_a_claim_are_served(count):
    world = exclusive()
    names = [f"p{number}" for number in range(count)]
    for name in names:
        world.ask("a", "QUEUE", "SET", name, "type", "exclusive", "exclusive-by", "user")
    world.run(200)
    consumers = [world.client("c") for _ in range(3)]
    for consumer in consumers:
        consumer.say("GETJOB", "FROM", *names)
    world.run(300)
    for name in names:
        world.client("c").say("ADDJOB", name, name, 0, "RETRY", 100, "REPLICATE", 1, "META", "user", "ann")
    world.run(3_000)
    assert all(consumer.replies for consumer in consumers)
