"""core/exclusive.py: which commands and messages end the claim of a delivery, and which don't."""

from __future__ import annotations

import pytest

from claimed_worlds import add, begin_get, exclusive, get, ids_within, quorum
from cluster_bus.messages import CLAIM_IS

WORKERS_COMMANDS = (("ACKJOB",), ("ACKJOB", "ATTEMPT", 1), ("ACKJOB", "RESULT", "x"), ("NACK",), ("NACK", "ATTEMPT", 1))


@pytest.mark.parametrize("words", WORKERS_COMMANDS)
def test_the_claim_of_a_canceled_delivery_ends_with_the_workers_next_command(words):
    """Spec EX5."""
    world = exclusive()
    first, second = add(world, "a", "ann", retry=60), add(world, "a", "ann", retry=60)
    assert [each.id for each in get(world, "a")] == [first]
    world.ask("a", "CANCELJOB", first)
    waiting = begin_get(world, "a")
    world.run(1_500)
    assert not waiting.replies
    assert world.ask("a", words[0], first, *words[1:]) == 0
    assert ids_within(world, waiting, 2_000) == [second]


@pytest.mark.parametrize("words", [("NACK",), ("WORKING",), ("PROGRESS", 50), ("ACKJOB",)])
def test_an_older_worker_does_not_end_the_claim_of_a_canceled_delivery(words):
    """Spec EX3, EX5, Y9: the worker of the second delivery goes on until it hears of the end."""
    world = exclusive()
    first = add(world, "a", "ann", retry=2)
    add(world, "a", "ann", retry=2)
    get(world, "a")
    world.run(3_000)
    ((job_id, attempt),) = [(each.id, each.attempt) for each in get(world, "a", "LEASE", 60)]
    assert (job_id, attempt) == (first, 2)
    world.ask("a", "CANCELJOB", first)
    waiting = begin_get(world, "a")
    world.ask("a", words[0], first, *words[1:], "ATTEMPT", 1)
    world.run(3_000)
    assert not waiting.replies


def test_a_claim_that_was_renewed_elsewhere_ends_although_the_node_of_the_delivery_has_forgotten_it():
    """Spec EX4: three nodes had a part in it, and one of them was started again."""
    world = exclusive("abcd", "bcd")
    job_id = add(world, "a", "ann", copies=3)
    (delivery,) = get(world, "a")
    world.run(300)
    renewer, other = [name for name in "bcd" if world[name].find(job_id) is not None][:2]
    assert world.ask(renewer, "WORKING", job_id, 60, "FENCE", delivery.fence) == 60
    world.crash("a")
    world.run(500)
    world.restart("a")
    world.run(3_000)
    second = add(world, renewer, "ann", copies=1)
    waiting = begin_get(world, renewer)
    world.run(200)
    assert not waiting.replies
    assert world.ask(other, "ACKJOB", job_id, "FENCE", delivery.fence) == 1
    assert ids_within(world, waiting, 1_000) == [second]


def test_an_ack_at_the_node_of_the_delivery_ends_the_claim_after_a_restart():
    """Spec EX5."""
    world = exclusive()
    world.add("d", journal="always")
    world.meet("a", "d")
    world.run(3_000)
    first, second = add(world, "d", "ann", copies=1, retry=60), add(world, "b", "ann", copies=1, retry=60)
    assert [each.id for each in get(world, "d")] == [first]
    world.run(1_500)
    world.crash("d")
    world.restart("d")
    world.run(3_000)
    waiting = begin_get(world, "b")
    world.run(100)
    assert not waiting.replies
    assert world.ask("d", "ACKJOB", first) == 1
    assert ids_within(world, waiting, 2_000) == [second]


def test_extendtoken_passes_over_a_job_that_has_moved_to_a_queue_without_claims():
    world = exclusive()
    job_id = add(world, "a", "ann", retry=5)
    world.cut("a", "c")
    world.cut("b", "c")
    world.run(50)
    assert world.ask("a", "GETJOB", "NOHANG", "TOKEN", "t", "LEASE", 60, "FROM", "q")
    world.run(7_000)
    world.ask("c", "QMOVE", "q", "z")
    world.heal()
    world.run(5_000)
    assert world["a"].find(job_id).terms.queue == b"z"
    assert world.ask("a", "EXTENDTOKEN", "t", 20) == 1


@pytest.mark.parametrize("removal", ["TTL", "DELJOB"])
@pytest.mark.parametrize("words", [("NACK",), ("WORKING",), ("PROGRESS", 50), ("ACKJOB",), ("ACKJOB", "RESULT", "x")])
def test_an_older_worker_does_not_end_the_claim_of_a_delivery_whose_job_is_gone(words, removal):
    """Spec EX3, EX5."""
    world = exclusive()
    first = add(world, "a", "ann", "TTL", 20, retry=2, copies=1)
    add(world, "a", "ann", retry=2, copies=1)
    get(world, "a")
    world.run(3_000)
    assert [(each.id, each.attempt) for each in get(world, "a", "LEASE", 60)] == [(first, 2)]
    if removal == "TTL":
        world.run(20_000)
    else:
        world.ask("a", "DELJOB", first)
    waiting = begin_get(world, "a")
    world.run(1_500)
    assert world["a"].find(first) is None
    assert not waiting.replies
    world.client("a").say(words[0], first, *words[1:], "ATTEMPT", 1)
    world.run(3_000)
    assert not waiting.replies


@pytest.mark.parametrize("command", ["ACKJOB", "NACK"])
def test_a_node_that_starts_again_does_not_keep_a_value_busy_that_was_freed_meanwhile(command):
    """Spec EX4."""
    world = exclusive()
    world.add("d", journal="always")
    world.meet("a", "d")
    world.run(3_000)
    first = add(world, "d", "ann", copies=2, retry=120)
    (delivery,) = get(world, "d")
    world.run(1_500)
    world.crash("d")
    world.run(500)
    holder = next(name for name in "abc" if world[name].find(first) is not None)
    assert world.ask(holder, command, first, "FENCE", delivery.fence) == 1
    if command == "NACK":
        world.ask(holder, "DEQUEUE", first)
    world.run(500)
    world.restart("d")
    world.run(3_000)
    second = add(world, "d", "ann", copies=1, retry=60)
    assert ids_within(world, begin_get(world, "d"), 2_000) == [second]


@pytest.mark.parametrize(("name", "words"), [("a", ()), ("a", ("FENCE",)), ("b", ("FENCE",))])
def test_a_nack_during_a_working_frees_the_value(name, words):
    """Spec EX4, EX5: the heartbeat of a worker crosses its NACK. Both come to the node `name`."""
    world = exclusive()
    first, second = add(world, "a", "ann", retry=60), add(world, "a", "ann", retry=60)
    (held,) = get(world, "a")
    world.run(50)
    fence = ("FENCE", held.fence) if words else ()
    worker = world.client(name)
    worker.say("WORKING", first, *fence)
    assert world.ask(name, "NACK", first, *fence) == 1
    world.run(1_500)
    assert [str(reply).split(" ", maxsplit=1)[0] for reply in worker.replies] == ["FENCED"]
    assert not any(world[each].exclusive.running or world[each].exclusive.renewals for each in "abc")
    assert [each.id for each in get(world, "a")] in ([first], [second])


def test_a_nack_elsewhere_during_a_working_frees_the_value():
    """Spec EX4, EX5: the node that delivered passes on the end, and the node with the WORKING has no claim yet."""
    world = exclusive()
    job_id = add(world, "a", "ann", retry=60)
    (held,) = get(world, "a")
    world.run(50)
    worker = world.client("b")
    world.drop = lambda sender, receiver, kind, item: kind == CLAIM_IS  # So the voters' answers are missing for long.
    worker.say("WORKING", job_id, "FENCE", held.fence)
    world.run(20)
    assert world.ask("c", "NACK", job_id, "FENCE", held.fence) == 1
    world.run(1_500)
    world.drop = None
    assert str(worker.replies[0]).startswith("FENCED")
    assert [each.id for name in "cab" for each in get(world, name)] == [job_id]


def test_a_fence_of_no_claim_during_a_working_ends_nothing():
    """Spec EX5, EX6: no voter granted this fence, so the claim has no known holder that could be renewed."""
    world = exclusive()
    job_id = add(world, "a", "ann", retry=5)
    (held,) = get(world, "a")
    worker = world.client("a")
    worker.say("WORKING", job_id)
    assert world.ask("a", "NACK", job_id, "FENCE", held.fence + 1_000) == 1
    world.run(200)
    assert str(worker.replies[0]).startswith("FENCED")
    world.ask("a", "ACKJOB", job_id)
    world.run(1_000)
    assert not world["a"].exclusive.running


def last_attempt_renewed_beside_c(dead_letter):
    """A worker has the only attempt of a job, and renewed its claim while c was cut off."""
    world = quorum()
    if dead_letter:
        assert world.ask("a", "QUEUE", "SET", "q", "dead-letter", "graves") == b"OK"
    world.run(200)
    job_id = add(world, "a", "", "ATTEMPTS", 1, retry=5)
    (held,) = get(world, "a")
    world.run(200)
    world.cut("a", "c")
    world.cut("b", "c")
    world.run(500)
    assert world.ask("a", "WORKING", job_id, 300) == 300
    return world, job_id, held


@pytest.mark.parametrize("dead_letter", [False, True])
def test_a_minority_does_not_give_up_a_job_whose_last_attempt_goes_on(dead_letter):
    """Spec EX7: as a dead letter it would be given to a second worker."""
    world, job_id, _ = last_attempt_renewed_beside_c(dead_letter)
    world.run(60_000)
    assert not world.ask("c", "GETJOB", "NOHANG", "FROM", "graves")
    job = world.machines["c"].broker.find(job_id)
    assert (job.terms.queue, job.part.is_errored) == (b"q", False)
    world.heal()
    world.until(world.is_meshed, 30_000)
    world.run(3_000)
    assert world.ask("a", "WORKING", job_id, 300) == 300
    assert world.ask("a", "ACKJOB", job_id) == 1


@pytest.mark.parametrize("is_healed", [False, True])
@pytest.mark.parametrize("dead_letter", [False, True])
def test_a_job_is_given_up_when_its_last_attempt_is_over(dead_letter, is_healed):
    """Spec EX7: by the nodes that reach a majority."""
    world, job_id, _ = last_attempt_renewed_beside_c(dead_letter)
    if is_healed:
        world.heal()
    world.run(310_000)
    for name in "abc" if is_healed else "ab":
        job = world.machines[name].broker.find(job_id)
        assert (job.terms.queue, job.part.is_errored) == ((b"graves", False) if dead_letter else (b"q", True))
    found = [entry for name in "abc" for entry in world.ask(name, "GETJOB", "NOHANG", "FROM", "graves") or ()]
    assert len(found) == dead_letter
    grants = world["a"].claims.memory.grants
    assert grants.records[b"J" + job_id].attempts_at(world["a"].now_ms) == 1


def test_news_that_comes_while_the_end_of_a_job_is_claimed_wins():
    """Spec EX7: the worker's ack arrives, so the job is not given up."""
    world = quorum()
    job_id = add(world, "a", "", "ATTEMPTS", 1, copies=1, retry=2)
    get(world, "a")
    broker = world.machines["a"].broker
    world.drop = lambda sender, receiver, kind, item: kind == CLAIM_IS
    world.run(2_500)
    assert not broker.find(job_id).part.is_errored
    assert world.ask("a", "ACKJOB", job_id) == 1
    world.drop = None
    world.run(10_000)
    assert broker.find(job_id) is None
    assert broker.stats.jobs_errored == 0


@pytest.mark.parametrize("make", [quorum, exclusive])
def test_a_nack_at_the_delivering_node_ends_a_working_that_another_holder_renews(make):
    """The WORKING took the job away again. Spec EX5."""
    world = make()
    job_id = add(world, "a", "ann", retry=60)
    [held] = get(world, "a")
    world.run(500)
    busy, done = world.client("b"), world.client("a")
    busy.say("WORKING", job_id, 60, "FENCE", held.fence)
    done.say("NACK", job_id, "FENCE", held.fence)
    world.run(1_000)
    assert str(busy.replies[0]).startswith("FENCED")
    assert [each.id for each in get(world, "a")] == [job_id]
