"""CLUSTER and JOBID: one node answers for all (spec Z1, Z2, Z4, Z5)."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_bus.messages import ANSWER, QUESTION
from disque_py.core import gathering
from world import World, joined

STATUSES = ("invisible", "pending", "running", "completed", "canceled", "errored")


def add(world: World, node: str, *words: str | int, queue: str = "q", body: str = "x") -> bytes:
    reply = world.ask(node, "ADDJOB", queue, body, 0, *words)
    assert isinstance(reply, bytes), reply
    return reply


def take(world: World, node: str, count: int = 1) -> list[bytes]:
    return [entry[1] for entry in world.ask(node, "GETJOB", "NOHANG", "COUNT", count, "FROM", "q") or []]


def lengths(world: World, node: str = "a") -> dict[str, int]:
    return {status: world.ask(node, "QLEN", "q", "STATUS", status, "CLUSTER") for status in STATUSES}


def pairs(reply: list[Any]) -> dict[bytes, Any]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def test_every_copy_of_a_delayed_job_is_shown_as_invisible() -> None:
    """Spec Z2, Z4: SHOW, SHOW CLUSTER and JSCAN STATUS agree with QSTAT, until the delay is over."""
    world = joined()
    job = add(world, "b", "REPLICATE", 3, "DELAY", 100)
    world.run(10_000)
    for node in "abc":
        assert pairs(world.ask(node, "SHOW", job))[b"status"] == b"invisible"
        assert pairs(world.ask(node, "SHOW", job, "CLUSTER"))[b"status"] == b"invisible"
        assert world.ask(node, "JSCAN", 0, "STATUS", "invisible")[1] == [job]
        assert world.ask(node, "JSCAN", 0, "STATUS", "pending")[1] == []
    world.run(100_000)
    for node in "abc":
        assert pairs(world.ask(node, "SHOW", job))[b"status"] == b"pending"


def test_each_job_counts_once_whatever_its_copies() -> None:
    """Spec Z2."""
    world = joined()
    for node in "abc":
        for _ in range(5):
            add(world, node, "REPLICATE", 3)
    for node in "ab":
        assert len(take(world, node, 2)) == 2
    for node in "cba":
        add(world, node, "REPLICATE", 3, "DELAY", 1000)
    for node in "abc":
        found = lengths(world, node)
        assert found == {"invisible": 3, "pending": 11, "running": 4, "completed": 0, "canceled": 0, "errored": 0}


def test_a_job_in_each_status_counts_there_alone() -> None:
    """Spec Z2."""
    world = joined()
    job = add(world, "a", "REPLICATE", 3, "RETRY", 20, "DELAY", 5)
    assert lengths(world)["invisible"] == 1
    world.run(6_000)
    assert [lengths(world)[status] for status in STATUSES] == [0, 1, 0, 0, 0, 0]
    world.ask("a", "DEQUEUE", job)
    assert [lengths(world)[status] for status in STATUSES] == [1, 0, 0, 0, 0, 0]
    world.ask("a", "ENQUEUE", job)
    assert take(world, "a") == [job]
    assert [lengths(world)[status] for status in STATUSES] == [0, 0, 1, 0, 0, 0]
    world.ask("a", "PAUSE", "q", "in")
    world.ask("a", "NACK", job)
    assert [lengths(world)[status] for status in STATUSES] == [1, 0, 0, 0, 0, 0]
    world.ask("b", "ACKJOB", job)
    world.run(5_000)
    assert [lengths(world)[status] for status in STATUSES] == [0, 0, 0, 0, 0, 0]


def test_a_released_job_is_pending_although_its_copies_know_a_delay() -> None:
    """Spec Z2."""
    world = joined()
    job = add(world, "c", "REPLICATE", 3, "DELAY", 1000)
    world.ask("a", "ENQUEUE", job)
    assert [lengths(world)[status] for status in STATUSES] == [0, 1, 0, 0, 0, 0]


def test_a_delayed_job_counts_while_its_creator_is_away() -> None:
    """Spec Z2."""
    world = joined()
    add(world, "a", "REPLICATE", 3, "DELAY", 1000)
    world.crash("a")
    world.run(3_000)
    assert lengths(world, "b")["invisible"] == 1
    assert lengths(world, "c")["invisible"] == 1


def test_where_and_status_and_cluster_work_together() -> None:
    """Spec Z1."""
    world = joined()
    for node in "abc":
        add(world, node, "META", "t", "one", "REPLICATE", 1)
        add(world, node, "META", "t", "two", "META", "u", node, "REPLICATE", 1)
        add(world, node, "META", "t", "two", "REPLICATE", 1, "DELAY", 100)
        add(world, node, "REPLICATE", 1)
    assert world.ask("b", "QLEN", "q", "CLUSTER", "WHERE", "t", "two") == 3
    assert world.ask("b", "QLEN", "q", "WHERE", "u", "a", "CLUSTER", "WHERE", "t", "two") == 1
    assert world.ask("b", "QLEN", "q", "STATUS", "invisible", "WHERE", "t", "two", "CLUSTER") == 3
    assert world.ask("b", "QLEN", "q", "STATUS", "invisible", "WHERE", "t", "one", "CLUSTER") == 0
    assert world.ask("c", "QDEPTH", "q", "BY", "t", "CLUSTER") == [b"one", 3, b"two", 3, None, 3]
    assert world.ask("c", "QDEPTH", "q", "BY", "t", "CLUSTER", "COUNT", 1) == [b"one", 3]
    assert world.ask("c", "QDEPTH", "q", "BY", "t", "STATUS", "invisible", "CLUSTER") == [b"two", 3]


def test_jobs_of_all_nodes_are_shown_in_queue_order() -> None:
    """Spec Z1."""
    world = joined()
    for node, priority in (("a", 5), ("b", 2), ("c", 9), ("a", 1), ("b", 7)):
        add(world, node, "PRIORITY", priority, "REPLICATE", 1, "META", "p", priority, body=f"{priority}")
    bodies = [entry[2] for entry in world.ask("c", "QPEEK", "q", 4, "CLUSTER")]
    assert bodies == [b"1", b"2", b"5", b"7"]
    bodies = [entry[2] for entry in world.ask("c", "QPEEK", "q", -2, "CLUSTER")]
    assert bodies == [b"9", b"7"]
    found = world.ask("c", "QPEEK", "q", 9, "WHERE", "p", "7", "CLUSTER", "WITHMETA")
    assert [entry[2:] for entry in found] == [[b"7", b"meta", [b"p", b"7"]]]
    taken = take(world, "a", 2)
    found = world.ask("c", "QPEEK", "q", 9, "STATUS", "running", "CLUSTER")
    assert sorted(entry[1] for entry in found) == sorted(taken)


def test_figures_of_a_queue_are_summed_over_all_nodes() -> None:
    """Spec Z1, Z3."""
    world = joined()
    for node in "ab":
        for _ in range(3):
            add(world, node, "REPLICATE", 2)
    take(world, "b", 1)
    world.run(1_000)
    found = pairs(world.ask("c", "QSTAT", "q", "CLUSTER"))
    assert (found[b"len"], found[b"running"], found[b"invisible"]) == (5, 1, 0)
    assert (found[b"nodes"], found[b"nodes-missing"]) == (3, [])
    assert 1_000 <= found[b"oldest-ms"] <= 1_200
    assert world.ask("c", "QSTAT", "missing", "CLUSTER") is None
    assert world.ask("c", "QSTAT", "q") is None or pairs(world.ask("c", "QSTAT", "q"))[b"len"] == 0


def test_show_asks_the_node_that_knows_most() -> None:
    """Spec Z4."""
    world = joined()
    job = add(world, "a", "REPLICATE", 1)
    assert world.ask("c", "SHOW", job) is None
    there, here = (pairs(world.ask(*words)) for words in (("c", "SHOW", job, "CLUSTER"), ("a", "SHOW", job)))
    assert list(there) == list(here)
    assert sorted(name for name in here if there[name] != here[name]) in (
        [b"next-awake-within", b"ttl-ms"],
        [b"ttl-ms"],
        [],
    )
    spread = add(world, "b", "REPLICATE", 3, queue="r")
    assert pairs(world.ask("c", "SHOW", spread, "CLUSTER"))[b"state"] == b"queued"
    world.ask("b", "GETJOB", "FROM", "r")
    assert pairs(world.ask("c", "SHOW", spread, "CLUSTER"))[b"leased"] == 1
    other = job[:20] + b"zzzz" + job[24:]
    assert world.ask("c", "SHOW", other, "CLUSTER") is None


@pytest.mark.parametrize("node", "abc")
def test_a_job_is_shown_by_the_node_that_made_it_invisible(node: str) -> None:
    """Spec Z2, Z4: the holders of a dequeued job are not told. QLEN counts the job on the same node."""
    world = joined()
    job = add(world, node, "REPLICATE", 3)
    assert world.ask(node, "DEQUEUE", job) == 1
    for asked in "abc":
        assert lengths(world, asked)["invisible"] == 1
        assert pairs(world.ask(asked, "SHOW", job, "CLUSTER"))[b"status"] == b"invisible"


@pytest.mark.parametrize("node", "abc")
def test_a_job_whose_delay_ends_in_a_pause_counts_once(node: str) -> None:
    """Spec Z2, MV1: it counts on the node that acted, and no longer on its creator, which never queued it."""
    world = joined()
    job = add(world, node, "REPLICATE", 3, "DELAY", 1_000)
    assert world.ask("b", "RESCHEDULE", job, "DELAY", 2_000) == 1
    world.ask("c", "PAUSE", "q", "in", "bcast")
    world.run(100)
    assert world.ask("c", "PROMOTE", job) == 1
    world.run(100)
    assert lengths(world)["invisible"] == 1
    world.ask("a", "PAUSE", "q", "none", "bcast")
    world.run(100)
    assert (lengths(world)["invisible"], lengths(world)["pending"]) == (0, 1)


def test_a_pause_of_input_holds_no_job_back_that_was_pending_before_a_restart() -> None:
    """Spec U2: consumers can empty the queue, although its node was started again meanwhile."""
    world = World("")
    for name in "ab":
        world.add(name, journal="always")
    world.join()
    job = add(world, "a", "REPLICATE", 2, "RETRY", 60)
    world.ask("a", "PAUSE", "q", "in", "bcast")
    world.run(1_000)
    world.crash("a")
    world.run(500)
    world.restart("a")
    world.run(10_000)
    assert lengths(world, "b")["pending"] == 1
    assert world.ask("a", "GETJOB", "TIMEOUT", 1_000, "FROM", "q")[0][1] == job


@pytest.mark.parametrize("node", "abc")
def test_a_job_that_was_given_back_in_a_pause_counts_once(node: str) -> None:
    """Spec Z2, Y6: its lease has ended, whichever holder got the NACK."""
    world = joined()
    job = add(world, "a", "REPLICATE", 3)
    assert world.ask("a", "PAUSE", "q", "in", "BCAST") == b"in"
    assert world.ask("a", "GETJOB", "FROM", "q")
    world.run(300)
    assert world.ask(node, "NACK", job) == 1
    world.run(10)
    assert (lengths(world)["running"], lengths(world)["invisible"]) == (0, 1)
    world.ask("a", "PAUSE", "q", "none", "BCAST")
    world.run(10)
    assert lengths(world)["pending"] == 1


def test_a_node_that_does_not_answer_is_missing_after_a_second() -> None:
    """Spec Z1."""
    world = joined()
    for node in "abc":
        add(world, node, "REPLICATE", 1)
    world.drop = lambda sender, receiver, kind, item: kind == QUESTION and receiver == "b"
    talker = world.client("a")
    talker.say("QSTAT", "q", "CLUSTER")
    world.run(gathering.ASK_MS - 50)
    assert not talker.replies
    world.run(150)
    found = pairs(talker.replies[0])
    assert (found[b"len"], found[b"nodes"], found[b"nodes-missing"]) == (2, 2, [b"b".hex().encode() * 20])
    assert not world["a"].gatherings.asked


def test_a_link_that_breaks_is_not_waited_for() -> None:
    """Spec Z1."""
    world = joined()
    add(world, "a", "REPLICATE", 1)
    world.drop = lambda sender, receiver, kind, item: kind == ANSWER and sender == "b"
    talker = world.client("a")
    talker.say("QLEN", "q", "CLUSTER")
    world.run(100)
    assert not talker.replies
    world.crash("b")
    world.run(50)
    assert talker.replies == [1]


def test_a_node_that_is_away_is_missing_at_once() -> None:
    """Spec Z1."""
    world = joined()
    add(world, "a", "REPLICATE", 1)
    world.crash("b")
    world.run(500)
    found = pairs(world.ask("a", "QSTAT", "q", "CLUSTER", within_ms=100))
    assert (found[b"nodes"], found[b"nodes-missing"]) == (2, [b"b".hex().encode() * 20])


def test_a_client_that_leaves_is_forgotten() -> None:
    """Spec Z1."""
    world = joined()
    world.drop = lambda sender, receiver, kind, item: kind == QUESTION
    talker = world.client("a")
    talker.say("QLEN", "q", "CLUSTER")
    world.run(10)
    assert world["a"].gatherings.asked
    talker.hang_up()
    world.run(10)
    broker = world["a"]
    assert not broker.gatherings.asked
    assert not broker.waits.stalled
    assert not broker.waits.incremental


def test_a_pipeline_is_answered_in_its_order() -> None:
    """Spec Z1."""
    world = joined()
    talker = world.client("a")
    talker.say("QLEN", "q", "CLUSTER")
    talker.say("ADDJOB", "q", "x", 0, "REPLICATE", 1)
    talker.say("QLEN", "q", "CLUSTER")
    talker.say("PING")
    world.run(100)
    assert [talker.replies[0], talker.replies[2], talker.replies[3]] == [0, 1, b"PONG"]


def test_jobid_finds_what_a_key_names_on_any_node() -> None:
    """Spec Z5."""
    world = joined()
    job = add(world, "a", "REPLICATE", 1, "KEY", "k")
    for node in "abc":
        assert world.ask(node, "JOBID", "q", "k", "other", "k") == [job, None, job]
        assert world.ask(node, "JOBID", "r", "k") == [None]
    for node in "abc":
        assert not world[node].producers.lookups
        assert not world[node].producers.searches
        assert len(world[node].producers.keys) == (node == "a")
    world.ask("b", "ACKJOB", job)
    world.run(3_000)
    assert world.ask("c", "JOBID", "q", "k") == [job]


def test_jobid_says_if_a_node_could_not_be_asked() -> None:
    """Spec Z5."""
    world = joined()
    job = add(world, "a", "REPLICATE", 1, "KEY", "k")
    world.crash("c")
    world.run(300)
    assert world.ask("b", "JOBID", "q", "k") == [job]
    assert str(world.ask("b", "JOBID", "q", "k", "other")).startswith("UNREACHABLE ")
    world.drop = lambda sender, receiver, kind, item: receiver == "a"
    assert str(world.ask("b", "JOBID", "q", "k")).startswith("UNREACHABLE ")
    assert not world["b"].producers.lookups


def test_jobid_waits_for_a_creation_that_is_under_way() -> None:
    """Spec Z5."""
    world = joined("ab")
    world.ask("b", "PAUSE", "q", "in")
    adding = world.client("a")
    adding.say("ADDJOB", "q", "x", 600, "REPLICATE", 2, "KEY", "k")
    looking = world.client("b")
    world.run(50)
    looking.say("JOBID", "q", "k")
    world.run(100)
    assert not looking.replies
    world.until(lambda: bool(looking.replies), 1_000)
    assert str(adding.replies[0]).startswith("NOREPL")
    assert looking.replies == [[None]]


def test_a_worker_that_goes_on_with_a_delayed_job_ends_its_delay_on_every_node() -> None:
    """WORKING without ATTEMPT begins a lease. The job is not invisible on another holder. Spec Y6, Z2."""
    world = joined()
    job = add(world, "c", "REPLICATE", 3)
    assert take(world, "c") == [job]
    assert world.ask("c", "NACK", job, "DELAY", 1_000) == 1
    assert world.ask("c", "WORKING", job) == 300
    world.run(1_000)
    found = lengths(world)
    assert (found["running"], found["invisible"]) == (1, 0)
    for node in "abc":
        assert pairs(world.ask(node, "SHOW", job))[b"status"] == b"running"
    assert [world.ask("c", "NACK", job, "ATTEMPT", 1) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("words", [("STATUS", "invisible"), ()])
def test_a_task_leaves_a_job_alone_whose_worker_went_on_after_a_nack(words: tuple[str, ...]) -> None:
    """A job that a worker has is not moved. Spec MV5."""
    world = joined()
    job = add(world, "c", "REPLICATE", 3)
    take(world, "c")
    world.ask("c", "NACK", job, "DELAY", 1_000)
    world.ask("c", "WORKING", job)
    world.run(1_000)
    assert pairs(world.ask("b", "QMOVE", "q", "other", *words))[b"jobs"] == 0
    assert lengths(world)["running"] == 1
