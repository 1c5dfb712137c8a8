"""core/claimed_fetch.py: GETJOB at queues whose jobs need a claim."""

from __future__ import annotations

import pytest

from claimed_worlds import add, begin_get, deliveries, exclusive, get, ids_within


@pytest.mark.parametrize("source", [("FROM", "q"), ("FROMMATCH", "q*")])
def test_nohang_tells_of_the_missing_majority_though_the_only_job_is_aside_for_another_consumer(source):
    """Spec EX8: it waits for the decision about that job."""
    world = exclusive()
    add(world, "a", "ann")
    for name in "bc":
        world.cut("a", name)
    world.run(100)
    begin_get(world, "a")
    for _ in range(6):
        world.run(330)
        reply = world.ask("a", "GETJOB", "NOHANG", *source)
        assert str(reply) == "NOQUORUM no majority of the voters answered"


def test_nohang_is_nil_if_another_consumer_gets_the_only_job():
    world = exclusive()
    add(world, "a", "ann")
    waiting = begin_get(world, "a")
    assert world.ask("a", "GETJOB", "NOHANG", "FROM", "q") is None
    world.run(500)
    assert len(waiting.replies) == 1


def test_each_job_of_an_answer_has_a_claim_of_its_own():
    """Spec EX8."""
    world = exclusive()
    for user in ("ann", "bob", "cid"):
        add(world, "a", user)
    found = get(world, "a", count=10)
    assert len({each.id for each in found}) == 3
    assert world.machines["a"].broker.exclusive.running.keys() == {each.id for each in found}


def test_no_more_jobs_are_claimed_than_were_asked_for():
    world = exclusive()
    for user in ("ann", "bob", "cid"):
        add(world, "a", user)
    assert len(get(world, "a", count=2)) == 2
    assert len(world.machines["a"].broker.exclusive.running) == 2


def test_jobs_of_other_queues_fill_the_answer():
    """Spec EX8."""
    world = exclusive()
    add(world, "a", "ann")
    add(world, "a", "ann")
    world.ask("a", "ADDJOB", "plain", "body", 0, "REPLICATE", 1)
    reply = world.ask("a", "GETJOB", "NOHANG", "COUNT", 5, "WITHLEASE", "FROM", "q", "plain")
    assert [(entry[0], entry[-1] > 0) for entry in reply] == [(b"q", True), (b"plain", False)]


def test_a_value_that_another_node_has_is_skipped():
    """Spec EX3."""
    world = exclusive()
    add(world, "a", "ann", copies=1)
    add(world, "b", "ann", copies=1)
    bob = add(world, "b", "bob", copies=1)
    assert len(get(world, "a")) == 1
    assert [each.id for each in get(world, "b")] == [bob]


def test_a_lease_above_the_longest_claim_is_refused():
    """Spec EX1."""
    world = exclusive()
    add(world, "a", "ann")
    reply = world.ask("a", "GETJOB", "NOHANG", "LEASE", 4_000, "FROM", "q")
    assert str(reply) == "ERR the lease is above claim-lease-max"


@pytest.mark.parametrize(("pattern", "is_refused"), [("q*", True), ("p*", False)])
def test_a_long_lease_is_refused_for_a_pattern_that_matches_an_exclusive_queue(pattern, is_refused):
    """Spec EX1."""
    world = exclusive()
    add(world, "a", "ann")
    world.ask("a", "ADDJOB", "plain", "body", 0)
    reply = world.ask("a", "GETJOB", "NOHANG", "LEASE", 4_000, "FROMMATCH", pattern)
    assert (str(reply) == "ERR the lease is above claim-lease-max") is is_refused


def test_a_lease_of_the_consumer_is_the_lease_of_the_claim():
    world = exclusive()
    add(world, "a", "ann")
    add(world, "b", "ann")
    assert get(world, "a", "LEASE", 2)[0].lease_ms == 2_000
    world.run(2_300)
    assert len(get(world, "b") or get(world, "c") or get(world, "a")) == 1


def test_a_client_that_hangs_up_while_its_claims_are_under_way_leaves_no_trace():
    """Spec EX3."""
    world = exclusive()
    job_id = add(world, "a", "ann")
    talker = world.client("a")
    talker.say("GETJOB", "NOHANG", "FROM", "q")
    talker.hang_up()
    world.run(100)
    assert not world.machines["a"].broker.exclusive.picks
    assert [each.id for each in get(world, "a")] == [job_id]


@pytest.mark.parametrize("source", [("FROM", "q"), ("FROMMATCH", "q*")])
def test_the_timeout_of_a_getjob_does_not_wait_for_the_voters(source):
    """Spec EX8. The grant that arrives later is given back."""
    world = exclusive()
    job_id = add(world, "a", "ann")
    world.traffic.delay_ms = (200, 200)
    talker = world.client("a")
    talker.say("GETJOB", "TIMEOUT", 50, *source)
    world.run(55)
    assert talker.replies == [None]
    world.run(1_000)
    assert not world.machines["a"].broker.exclusive.picks
    assert [(each.id, each.attempt) for each in get(world, "a")] == [(job_id, 1)]


def test_a_grant_that_is_late_serves_a_client_that_waits():
    """Spec EX8: so a client with a short TIMEOUT gets a job although the voters are far away."""
    world = exclusive()
    job_id = add(world, "a", "ann")
    world.traffic.delay_ms = (200, 200)
    first, second = begin_get(world, "a", timeout_ms=50), begin_get(world, "a", timeout_ms=1_000)
    assert ids_within(world, second, 420) == [job_id]
    assert first.replies == [None]


def test_the_timeout_is_kept_although_the_value_and_the_job_are_claimed():
    """Spec EX8: the second claim begins when the first one is granted."""
    world = exclusive()
    assert world.ask("a", "QUEUE", "SET", "q", "assign", "quorum") == b"OK"
    world.run(100)
    add(world, "a", "ann")
    world.traffic.delay_ms = (300, 300)
    waiting = begin_get(world, "a", timeout_ms=1_100)
    world.run(1_105)
    assert waiting.replies == [None]


def test_the_time_of_the_claims_is_part_of_the_timeout():
    world = exclusive()
    add(world, "b", "ann", copies=1)
    add(world, "a", "ann")
    assert len(get(world, "b")) == 1
    world.traffic.delay_ms = (200, 200)
    talker = world.client("a")
    talker.say("GETJOB", "TIMEOUT", 1_500, "FROM", "q")
    world.run(1_505)
    assert talker.replies == [None]


def test_a_claim_for_the_line_of_a_client_does_not_keep_its_next_command_waiting():
    """The client waited for two queues, and got a plain job while the claim was under way."""
    world = exclusive(delay_ms=20)
    talker = world.client("a")
    talker.say("GETJOB", "FROM", "q", "plain")
    world.run(100)
    add(world, "a", "ann", "ASYNC")
    world.run(1)
    world.ask("a", "ADDJOB", "plain", "body", 0, "REPLICATE", 1)
    talker.say("GETJOB", "NOHANG", "WITHLEASE", "FROM", "q", "plain")
    world.run(3_000)
    assert len(talker.replies) == 2


def test_without_voters_the_reply_gives_the_reason():
    """Spec EX8."""
    world = exclusive()
    add(world, "a", "ann")
    world.machines["a"].broker.claims.memory.list = None
    reply = world.ask("a", "GETJOB", "NOHANG", "FROM", "q")
    assert str(reply) == "NOQUORUM no voters configured"


def test_many_values_are_claimed_a_part_at_a_time():
    world = exclusive()
    for number in range(300):
        world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 20, "REPLICATE", 1, "META", "user", f"u{number}")
    assert len(deliveries(world.ask("a", "GETJOB", "NOHANG", "COUNT", 1_000, "WITHLEASE", "FROM", "q"))) == 256
