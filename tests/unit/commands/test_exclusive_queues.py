"""The options of exclusive queues and of `assign quorum`, and their errors."""

from __future__ import annotations

import pytest

from claimed_worlds import add, exclusive, get, quorum
from voting_worlds import voters
from world import World


def settings(world, name="a"):
    reply = world.ask(name, "QUEUE", "GET", "q")
    return dict(zip(reply[::2], reply[1::2], strict=True))


def test_the_three_settings_are_shown():
    """Spec EX1."""
    world = exclusive()
    found = settings(world, "b")
    assert (found[b"type"], found[b"exclusive-by"], found[b"assign"]) == (b"exclusive", b"user", b"local")


def test_claims_need_voters():
    """Spec EX1."""
    world = World("a")
    world.join()
    reply = world.ask("a", "QUEUE", "SET", "q", "type", "exclusive", "exclusive-by", "user")
    assert str(reply) == "ERR type needs voters"
    assert str(world.ask("a", "QUEUE", "SET", "q", "assign", "quorum")) == "ERR assign needs voters"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("type", "exclusive"), "ERR exclusive needs exclusive-by"),
        (("type", "other"), "ERR invalid value for 'type': simple or exclusive is expected"),
        (("assign", "other"), "ERR invalid value for 'assign': local or quorum is expected"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(words, text):
    world = voters("a")
    assert str(world.ask("a", "QUEUE", "SET", "q", *words)) == text


def test_type_exclusive_by_and_assign_are_one_field():
    """Spec EX1: if two operators set them at the same time, all three values are those of one operator."""
    world = voters("abc")
    for name in "bc":
        world.cut("a", name)
    world.run(100)
    world.ask("a", "QUEUE", "SET", "q", "type", "exclusive", "exclusive-by", "user")
    world.ask("b", "QUEUE", "SET", "q", "assign", "quorum")
    world.heal()
    world.run(10_000)
    found = [(settings(world, name)[b"type"], settings(world, name)[b"assign"]) for name in "abc"]
    assert found in ([(b"exclusive", b"local")] * 3, [(b"simple", b"quorum")] * 3)


def test_the_name_may_be_given_before_the_type():
    """Spec EX1."""
    world = voters("a")
    assert world.ask("a", "QUEUE", "SET", "q", "exclusive-by", "user") == b"OK"
    assert world.ask("a", "QUEUE", "SET", "q", "type", "exclusive") == b"OK"
    assert settings(world)[b"exclusive-by"] == b"user"


def test_a_value_may_be_one_that_a_node_gives():
    """Dead letters of one queue run one at a time, and those of another beside them. Spec EX1."""
    world = voters("a")
    world.ask("a", "QUEUE", "SET", "dead", "type", "exclusive", "exclusive-by", "x-disque-from")
    for queue in ("a", "a", "b"):
        world.ask("a", "QUEUE", "SET", queue, "dead-letter", "dead")
        job_id = world.ask("a", "ADDJOB", queue, "body", 0)
        world.ask("a", "GETJOB", "FROM", queue)
        world.ask("a", "NACK", job_id, "FINAL")
    first = world.ask("a", "GETJOB", "NOHANG", "COUNT", 9, "WITHMETA", "FROM", "dead")
    assert [entry[4][1] for entry in first] == [b"a", b"b"]
    world.ask("a", "ACKJOB", *[entry[1] for entry in first])
    second = world.ask("a", "GETJOB", "NOHANG", "COUNT", 9, "WITHMETA", "FROM", "dead")
    assert [entry[4][1] for entry in second] == [b"a"]


def test_a_job_without_the_name_is_refused():
    """Spec EX1."""
    assert str(add(exclusive(), "a")) == "NOKEY The queue requires META 'user'"


@pytest.mark.parametrize("make", [exclusive, quorum])
def test_retry_0_and_long_leases_are_refused(make):
    """Spec EX1."""
    world = make()
    assert str(add(world, "a", "ann", retry=0, copies=1)) == "ERR an exclusive queue needs RETRY above 0"
    assert str(add(world, "a", "ann", retry=3_601)) == "ERR the lease is above claim-lease-max"
    job_id = add(world, "a", "ann", retry=3_600)
    get(world, "a")
    assert str(world.ask("a", "WORKING", job_id, 3_601)) == "ERR the lease is above claim-lease-max"


def test_a_job_with_a_key_is_stamped_too():
    world = exclusive()
    assert add(world, "a", "ann", "KEY", "k") == add(world, "b", "ann", "KEY", "k")
    add(world, "a", "ann")
    assert len(get(world, "a", count=5)) == 1


def test_a_plain_delivery_has_no_fence():
    """Spec EX6."""
    world = voters("a")
    world.ask("a", "ADDJOB", "q", "body", 0)
    assert get(world, "a")[0].fence == 0


@pytest.mark.parametrize("command", ["ACKJOB", "NACK", "WORKING", "CANCELJOB"])
def test_a_fence_is_a_number_above_zero_of_one_job(command):
    world = exclusive()
    job_id = add(world, "a", "ann")
    assert str(world.ask("a", command, job_id, "FENCE", 0)) == "ERR FENCE must be a number > 0"
    if command != "WORKING":
        reply = world.ask("a", command, job_id, job_id, "FENCE", 5)
        assert str(reply) == "ERR ATTEMPT and FENCE need exactly one job id"


def test_an_attempt_may_be_named_with_its_fence():
    world = exclusive()
    job_id = add(world, "a", "ann")
    found = get(world, "a")[0]
    assert world.ask("a", "ACKJOB", job_id, "ATTEMPT", found.attempt, "FENCE", found.fence) == 1


def test_fastack_frees_the_value():
    """Spec EX5."""
    world = exclusive()
    first = add(world, "a", "ann", copies=1)
    add(world, "a", "ann", copies=1)
    get(world, "a")
    assert world.ask("a", "FASTACK", first) == 1
    world.run(50)
    assert len(get(world, "a")) == 1
