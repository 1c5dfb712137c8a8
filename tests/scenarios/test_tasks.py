"""PROMOTE, RESCHEDULE, MOVEJOB, QPURGE, QMOVE, QREDRIVE and QTASK on a cluster (spec MV1 to MV8, MV10)."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_bus.messages import SYNCED, TASK, TASK_STATE
from disque_py.core import tasks
from world import World, joined


def add(world: World, node: str, *words: str | int, queue: str = "q", body: str = "x") -> bytes:
    reply = world.ask(node, "ADDJOB", queue, body, 0, *words)
    assert isinstance(reply, bytes), reply
    return reply


def pairs(reply: Any) -> dict[str, Any]:
    assert isinstance(reply, list), reply
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def done(world: World, node: str, *words: str | bytes | int) -> tuple[int, int]:
    """Run a task in which all nodes take part. Return its changed and failed jobs."""
    found = pairs(world.ask(node, *words))
    assert found["nodes-missing"] == []
    assert found["nodes"] == len(world.members)
    return found["jobs"], found["failed"]


def length(world: World, queue: str, status: str = "pending", node: str = "a") -> int:
    return world.ask(node, "QLEN", queue, "STATUS", status, "CLUSTER")


def take(world: World, node: str, queue: str = "q", count: int = 1) -> list[bytes]:
    return [entry[1] for entry in world.ask(node, "GETJOB", "NOHANG", "COUNT", count, "FROM", queue) or []]


def show(world: World, node: str, job: bytes) -> dict[str, Any]:
    return pairs(world.ask(node, "SHOW", job))


@pytest.mark.parametrize("asked", "abcd")
def test_promote_ends_a_delay_on_any_node(asked: str) -> None:
    """Spec MV1."""
    world = joined("abcd")
    job = add(world, "b", "REPLICATE", 2, "DELAY", 1000)
    assert world.ask(asked, "PROMOTE", job, job) == 1
    assert length(world, "q") == 1
    assert length(world, "q", "invisible") == 0
    assert world.ask(asked, "PROMOTE", job) == 0
    world.run(3_000)
    assert sum(take(world, node) == [job] for node in "abcd") == 1


def test_promote_ends_a_back_off() -> None:
    """Spec MV1."""
    world = joined()
    job = add(world, "a", "REPLICATE", 3)
    assert take(world, "a") == [job]
    assert world.ask("a", "NACK", job, "DELAY", 100) == 1
    assert world.ask("c", "PROMOTE", job) == 1
    assert length(world, "q") == 1


def test_promote_of_a_job_in_another_status_counts_0() -> None:
    """Spec MV1."""
    world = joined()
    job = add(world, "a", "REPLICATE", 3)
    assert world.ask("b", "PROMOTE", job) == 0
    assert take(world, "a") == [job]
    assert world.ask("b", "PROMOTE", job) == 0
    world.ask("a", "ACKJOB", job)
    assert world.ask("b", "PROMOTE", job) == 0


def test_a_promoted_job_waits_for_the_end_of_a_pause() -> None:
    """Spec MV1."""
    world = joined()
    job = add(world, "a", "REPLICATE", 3, "DELAY", 100)
    world.ask("a", "PAUSE", "q", "in", "bcast")
    assert world.ask("a", "PROMOTE", job) == 1
    assert length(world, "q") == 0
    world.ask("a", "PAUSE", "q", "none", "bcast")
    assert length(world, "q") == 1


@pytest.mark.parametrize("asked", "abcd")
def test_reschedule_makes_a_pending_job_invisible_for_a_while(asked: str) -> None:
    """Spec MV2."""
    world = joined("abcd")
    job = add(world, "b", "REPLICATE", 2)
    assert world.ask(asked, "RESCHEDULE", job, "DELAYMS", 5_000) == 1
    assert length(world, "q") == 0
    assert length(world, "q", "invisible") == 1
    world.run(4_000)
    assert length(world, "q") == 0
    world.run(3_500)
    assert length(world, "q") == 1


@pytest.mark.parametrize("asked", "abc")
def test_reschedule_changes_the_place_of_a_pending_job(asked: str) -> None:
    """Spec MV2: a node with a copy asks the node that has the job queued."""
    world = joined()
    first, second = add(world, "b", "REPLICATE", 3), add(world, "b", "REPLICATE", 3)
    assert world.ask(asked, "RESCHEDULE", second, "PRIORITY", 1) == 1
    assert world.ask("b", "GETJOB", "NOHANG", "FROM", "q")[0][1] == second
    assert take(world, "b") == [first]


@pytest.mark.parametrize("asked", "abc")
def test_a_delayed_job_counts_once_after_a_change_of_its_priority(asked: str) -> None:
    """Spec MV2, Y10, Z2: the node on which it counts acts."""
    world = joined()
    job = add(world, "c", "REPLICATE", 3, "DELAY", 100)
    assert world.ask(asked, "RESCHEDULE", job, "PRIORITY", 1) == 1
    assert length(world, "q", "invisible") == 1


@pytest.mark.parametrize("asked", "abc")
def test_a_dequeued_job_is_moved_where_it_counts(asked: str) -> None:
    """Spec MV10, Y10, Z2."""
    world = joined()
    job = add(world, "c", "REPLICATE", 3)
    assert world.ask("c", "DEQUEUE", job) == 1
    assert world.ask(asked, "MOVEJOB", job, "TO", "r") == 1
    assert (length(world, "q", "invisible"), length(world, "r", "invisible")) == (0, 1)


def test_reschedule_with_delay_0_makes_a_job_pending() -> None:
    """Spec MV2."""
    world = joined()
    job = add(world, "b", "REPLICATE", 3, "DELAY", 1000)
    assert world.ask("a", "RESCHEDULE", job, "DELAY", 0, "PRIORITY", 5) == 1
    assert length(world, "q") == 1
    assert show(world, "c", job)["priority"] == 5


def test_reschedule_leaves_running_and_finished_jobs_alone() -> None:
    """Spec MV2."""
    world = joined()
    job = add(world, "a", "REPLICATE", 3)
    assert take(world, "a") == [job]
    assert world.ask("b", "RESCHEDULE", job, "DELAY", 5) == 0
    world.ask("a", "ACKJOB", job)
    assert world.ask("b", "RESCHEDULE", job, "DELAY", 5) == 0


@pytest.mark.parametrize("asked", "abcd")
def test_movejob_moves_a_job_once_on_any_node(asked: str) -> None:
    """Spec MV10: the node that has the job queued acts, and it is pending in the other queue on that node only."""
    world = joined("abcd")
    first, second = add(world, "b", "REPLICATE", 3), add(world, "b", "REPLICATE", 3)
    assert world.ask(asked, "MOVEJOB", first, "TO", "r") == 1
    assert world.ask(asked, "MOVEJOB", first, "TO", "r") == 0
    assert (length(world, "q"), length(world, "r")) == (1, 1)
    assert sum(take(world, node, "r") == [first] for node in "abcd") == 1
    assert world.ask(asked, "MOVEJOB", first, "TO", "q") == 0
    assert take(world, "b") == [second]


@pytest.mark.parametrize("asked", "abc")
def test_movejob_leaves_errored_and_delayed_jobs_what_they_are(asked: str) -> None:
    """Spec MV10, MV3."""
    world = joined()
    errored, delayed = add(world, "b", "REPLICATE", 3), add(world, "c", "REPLICATE", 3, "DELAY", 100)
    assert take(world, "b") == [errored]
    world.ask("b", "NACK", errored, "FINAL")
    world.run(1_000)
    assert world.ask(asked, "MOVEJOB", errored, delayed, "TO", "r") == 2
    assert [length(world, "r", status) for status in ("pending", "invisible", "errored")] == [0, 1, 1]
    assert [length(world, "q", status) for status in ("pending", "invisible", "errored")] == [0, 0, 0]


def test_a_job_moved_to_a_paused_queue_is_invisible_there() -> None:
    """Spec MV10, MV3."""
    world = joined()
    job = add(world, "b", "REPLICATE", 3)
    world.ask("a", "PAUSE", "r", "in", "bcast")
    assert world.ask("a", "MOVEJOB", job, "TO", "r") == 1
    assert (length(world, "r"), length(world, "r", "invisible")) == (0, 1)
    world.ask("a", "PAUSE", "r", "none", "bcast")
    assert length(world, "r") == 1


def test_movejob_acts_on_a_leaving_node() -> None:
    """Spec MV10: as a task does. The node hands the job over afterwards."""
    world = joined()
    job = add(world, "b", "REPLICATE", 2)
    world.ask("b", "CLUSTER", "LEAVING", "yes")
    assert world.ask("a", "MOVEJOB", job, "TO", "r") == 1
    world.run(5_000)
    assert length(world, "r") == 1
    assert sum(take(world, node, "r") == [job] for node in "ac") == 1


def test_unknown_jobs_are_unreachable_while_a_node_is_away() -> None:
    """Spec MV1, MV2, MV10, Y10."""
    world = joined()
    job = add(world, "c", "REPLICATE", 1)
    world.crash("c")
    world.run(1_000)
    for command in (("PROMOTE", job), ("RESCHEDULE", job, "DELAY", 3), ("MOVEJOB", job, "TO", "r")):
        assert str(world.ask("a", *command)).startswith("UNREACHABLE")


def test_qpurge_cancels_the_jobs_of_a_queue_on_all_nodes() -> None:
    """Spec MV5."""
    world = joined()
    for node in "abc":
        for _ in range(7):
            add(world, node, "REPLICATE", 2)
        add(world, node, queue="other")
    assert take(world, "b")
    assert done(world, "a", "QPURGE", "q") == (20, 0)
    assert length(world, "q") == 0
    assert length(world, "q", "running") == 1
    assert length(world, "other") == 3


def test_qpurge_takes_pairs_and_a_status() -> None:
    """Spec MV5."""
    world = joined()
    for node in "abc":
        add(world, node, "META", "user", "anna")
        add(world, node, "META", "user", "bob")
        add(world, node, "DELAY", 100, "REPLICATE", 3)
    assert done(world, "b", "QPURGE", "q", "WHERE", "user", "anna") == (3, 0)
    assert done(world, "b", "QPURGE", "q", "STATUS", "invisible") == (3, 0)
    assert length(world, "q") == 3
    assert length(world, "q", "invisible") == 0


def test_qmove_keeps_attempts_and_priority() -> None:
    """Spec MV3."""
    world = joined()
    jobs = [add(world, node, "REPLICATE", 2, "ATTEMPTS", 3, "PRIORITY", 7) for node in "abc"]
    assert take(world, "a") == [jobs[0]]
    assert world.ask("a", "NACK", jobs[0]) == 1
    assert done(world, "c", "QMOVE", "q", "new") == (3, 0)
    assert length(world, "q") == 0
    assert length(world, "new") == 3
    shown = show(world, "a", jobs[0])
    assert (shown["queue"], shown["attempts-left"], shown["priority"]) == (b"new", 2, 7)
    world.run(3_000)
    got = [job for node in "abc" for job in take(world, node, "new", 5)]
    assert sorted(got) == sorted(jobs)


def test_qmove_into_a_paused_queue_makes_jobs_invisible() -> None:
    """Spec MV3."""
    world = joined()
    for node in "abc":
        add(world, node, "REPLICATE", 2)
    world.ask("a", "PAUSE", "new", "in", "bcast")
    assert done(world, "a", "QMOVE", "q", "new") == (3, 0)
    assert length(world, "new") == 0
    assert length(world, "new", "invisible") == 3
    world.ask("a", "PAUSE", "new", "none", "bcast")
    assert length(world, "new") == 3


def test_qmove_with_limit_takes_the_first_jobs_of_all_nodes() -> None:
    """Spec MV6."""
    world = joined()
    jobs = [add(world, "abc"[number % 3], "PRIORITY", number) for number in range(30)]
    assert done(world, "a", "QMOVE", "q", "new", "LIMIT", 10) == (10, 0)
    assert {job for job in jobs if show(world, "abc"[jobs.index(job) % 3], job)["queue"] == b"new"} == set(jobs[:10])


def test_qmove_with_rate_takes_its_time() -> None:
    """Spec MV6."""
    world = joined()
    for number in range(30):
        add(world, "abc"[number % 3])
    before_ms = world.now_ms
    assert done(world, "a", "QMOVE", "q", "new", "RATE", 10) == (30, 0)
    assert 2_500 <= world.now_ms - before_ms <= 4_000


def test_moved_jobs_stay_invisible_or_errored() -> None:
    """Spec MV3."""
    world = joined()
    add(world, "a", "DELAY", 10, "REPLICATE", 3, "RETRY", 60)
    failed = add(world, "b", "REPLICATE", 3)
    take(world, "b")
    world.ask("b", "NACK", failed, "FINAL")
    world.run(1_000)
    for status in ("invisible", "errored"):
        assert done(world, "c", "QMOVE", "q", "new", "STATUS", status) == (1, 0)
        assert length(world, "new", status) == 1
    world.run(12_000)
    assert length(world, "new") == 1


def test_qredrive_gives_errored_jobs_fresh_attempts() -> None:
    """Spec MV4."""
    world = joined()
    jobs = [add(world, node, "REPLICATE", 2, "ATTEMPTS", 1) for node in "abc"]
    for node, job in zip("abc", jobs, strict=True):
        assert take(world, node) == [job]
        world.ask(node, "NACK", job)
    world.run(100)
    assert length(world, "q", "errored") == 3
    assert done(world, "b", "QREDRIVE", "q") == (3, 0)
    assert length(world, "q") == 3
    assert show(world, "a", jobs[0])["attempts-left"] == 1


def test_qredrive_brings_dead_letters_back_with_their_limit() -> None:
    """Spec MV4."""
    world = joined()
    world.ask("a", "QUEUE", "SET", "q", "dead-letter", "dead")
    job = add(world, "a", "REPLICATE", 3, "ATTEMPTS", 2)
    for _ in range(2):
        assert take(world, "a") == [job]
        world.ask("a", "NACK", job)
    assert length(world, "dead") == 1
    assert done(world, "b", "QREDRIVE", "dead", "WHERE", "x-disque-from", "q") == (1, 0)
    shown = show(world, "a", job)
    assert (shown["queue"], shown["attempts"], shown["attempts-left"]) == (b"q", 2, 2)
    for _ in range(2):
        assert take(world, "a") == [job]
        world.ask("a", "NACK", job)
    assert dict(zip(*[iter(show(world, "a", job)["meta"])] * 2, strict=True))[b"x-disque-count"] == b"2"


@pytest.mark.parametrize("words", [("QREDRIVE", "q"), ("QMOVE", "q", "new", "STATUS", "errored")])
def test_a_node_that_was_away_redrives_no_job_that_was_redriven_meanwhile(words: tuple[str, ...]) -> None:
    """Its copy looks errored, so the task asks the other holders first. A repeat is safe. Spec MV5."""
    world = joined()
    jobs = [add(world, "a", "REPLICATE", 3, "RETRY", 3_000, "TTL", 60_000) for _ in range(40)]
    assert len(take(world, "a", count=40)) == 40
    world.ask("a", "NACK", *jobs, "FINAL")
    world.run(1_000)
    world.cut("a", "b")
    world.cut("a", "c")
    world.run(30_000)
    assert pairs(world.ask("b", "QREDRIVE", "q", "TO", "again"))["jobs"] == 40
    world.heal()
    world.run(10_000)
    assert done(world, "c", *words) == (0, 0)
    assert (length(world, "q"), length(world, "q", "errored"), length(world, "again")) == (0, 0, 40)


def test_qredrive_to_another_queue() -> None:
    """Spec MV4."""
    world = joined()
    job = add(world, "a", "REPLICATE", 3)
    take(world, "a")
    world.ask("a", "NACK", job, "FINAL")
    assert done(world, "b", "QREDRIVE", "q", "TO", "again") == (1, 0)
    assert length(world, "again") == 1
    assert length(world, "q", "errored") == 0


def test_a_task_with_async_is_shown_and_canceled_by_qtask() -> None:
    """Spec MV8."""
    world = joined()
    for number in range(40):
        add(world, "abc"[number % 3])
    task = world.ask("b", "QMOVE", "q", "new", "RATE", 2, "ASYNC")
    assert isinstance(task, bytes)
    shown = pairs(world.ask("b", "QTASK", "SHOW", task))
    assert (shown["command"], shown["queue"], shown["state"]) == (b"qmove", b"q", b"running")
    assert pairs(world.ask("a", "QSTAT", "q", "CLUSTER"))["tasks"] == 1
    world.run(5_000)
    assert world.ask("b", "QTASK", "CANCEL", task) == 1
    assert world.ask("b", "QTASK", "CANCEL", task) == 0
    moved = length(world, "new")
    world.run(5_000)
    shown = pairs(world.ask("b", "QTASK", "SHOW", task))
    assert (shown["state"], shown["jobs"]) == (b"canceled", moved)
    assert 5 <= moved <= 15
    assert [pairs(entry)["task"] for entry in world.ask("b", "QTASK", "LIST")] == [task]
    assert world.ask("a", "QTASK", "SHOW", task) is None
    world.run(tasks.KEPT_MS)
    assert world.ask("b", "QTASK", "SHOW", task) is None


@pytest.mark.parametrize("after_ms", range(30, 40, 3))
def test_a_canceled_task_knows_the_jobs_that_it_changed(after_ms: int) -> None:
    """Changes that a node had not reported before the end count, too. Spec MV8."""
    world = joined()
    for _ in range(120):
        add(world, "b")
    task = world.ask("a", "QMOVE", "q", "new", "ASYNC")
    world.run(after_ms)
    world.ask("a", "QTASK", "CANCEL", task)
    world.run(1_000)
    assert pairs(world.ask("a", "QTASK", "SHOW", task))["jobs"] == length(world, "new")


def test_a_node_that_is_not_linked_is_missing() -> None:
    """Spec MV7."""
    world = joined()
    for node in "abc":
        add(world, node)
    world.crash("c")
    world.run(1_000)
    found = pairs(world.ask("a", "QPURGE", "q"))
    assert (found["jobs"], found["nodes"], found["nodes-missing"]) == (2, 2, [b"63" * 20])


def test_a_node_that_dies_is_missing_and_its_changes_stay() -> None:
    """Spec MV7."""
    world = joined()
    for number in range(60):
        add(world, "abc"[number % 3], "REPLICATE", 3)
    task = world.ask("a", "QMOVE", "q", "new", "RATE", 5, "ASYNC")
    world.run(2_000)
    world.crash("c")
    world.run(14_000)
    shown = pairs(world.ask("a", "QTASK", "SHOW", task))
    assert (shown["state"], shown["nodes"], shown["nodes-missing"]) == (b"done", 2, [b"63" * 20])
    assert shown["jobs"] >= 40


def test_a_task_ends_with_the_node_that_began_it() -> None:
    """Spec MV7."""
    world = joined()
    for number in range(60):
        add(world, "bc"[number % 2])
    world.ask("a", "QPURGE", "other")
    world.ask("a", "QMOVE", "q", "new", "RATE", 5, "ASYNC")
    world.run(2_000)
    world.crash("a")
    world.run(500)
    moved = length(world, "new", node="b")
    world.run(10_000)
    assert 5 <= moved == length(world, "new", node="b") <= 20
    assert not world.machines["b"].broker.tasks.shares


@pytest.mark.parametrize("kind", [TASK, TASK_STATE, SYNCED])
def test_lost_messages_are_repeated(kind: int) -> None:
    """Spec MV7: every third message of a kind is lost."""
    world = joined()
    for number in range(1_300):
        add(world, "abc"[number % 3])
    seen = [0]

    def loses(sender: str, receiver: str, message: int, item: Any) -> bool:
        seen[0] += message == kind
        return message == kind and seen[0] % 3 == 1

    world.drop = loses
    assert done(world, "a", "QPURGE", "q") == (1_300, 0)
    world.drop = None
    world.run(3_000)
    assert not any(machine.broker.tasks.shares for machine in world.members.values())


def test_jobs_that_come_later_are_left_alone() -> None:
    """Spec MV5."""
    world = joined()
    for number in range(20):
        add(world, "abc"[number % 3])
    task = world.ask("a", "QMOVE", "q", "new", "RATE", 10, "ASYNC")
    later = [add(world, node) for node in "abc"]
    world.run(5_000)
    assert pairs(world.ask("a", "QTASK", "SHOW", task))["jobs"] == 20
    assert {show(world, node, job)["queue"] for node, job in zip("abc", later, strict=True)} == {b"q"}


def test_a_job_that_a_worker_took_meanwhile_has_failed() -> None:
    """Spec MV5."""
    world = joined()
    for number in range(20):
        add(world, "abc"[number % 3])
    task = world.ask("a", "QMOVE", "q", "new", "RATE", 4, "ASYNC")
    world.run(50)
    assert len(take(world, "b", count=3)) == 3
    world.run(8_000)
    shown = pairs(world.ask("a", "QTASK", "SHOW", task))
    assert (shown["jobs"], shown["failed"], shown["state"]) == (17, 3, b"done")


def test_a_task_acts_on_the_jobs_that_are_there_although_the_wall_clock_was_set_back() -> None:
    """Spec T1."""
    world = joined("a")
    world.ask("a", "ADDJOB", "q", "x", 0)
    world.run(1_000)
    world.machines["a"].wall_offset_ms -= 600_000
    world.run(1_000)
    world.ask("a", "QPURGE", "q")
    assert world.ask("a", "QLEN", "q") == 0
