"""WAITJOB, results and progress: the messages between nodes (spec RW1 to RW8)."""

from __future__ import annotations

from typing import Any

from cluster_bus.messages import SETACK
from disque_py.core.job_waits_state import JobWaits
from world import Talker, World, joined


def add(world: World, node: str, *words: str | int, queue: str = "q") -> bytes:
    reply = world.ask(node, "ADDJOB", queue, "body", 0, *words)
    assert isinstance(reply, bytes), reply
    return reply


def take(world: World, node: str, queue: str = "q") -> bytes:
    return bytes(world.ask(node, "GETJOB", "FROM", queue)[0][1])


def wait(world: World, node: str, *words: str | bytes | int) -> Talker:
    talker = world.client(node)
    talker.say("WAITJOB", *words)
    world.run(20)
    return talker


def shown(world: World, node: str, job: bytes) -> dict[bytes, Any]:
    reply = world.ask(node, "SHOW", job)
    return dict(zip(reply[::2], reply[1::2], strict=True))


def waits_of(world: World, node: str) -> JobWaits:
    return world.machines[node].broker.job_waits


def test_a_client_hears_of_an_ack_on_another_node_with_its_result() -> None:
    """Spec RW1, RW5: at once, not by polling."""
    world = joined()
    job = add(world, "a", "REPLICATE", 2)
    waiting = wait(world, "c", job)
    assert waiting.replies == []
    assert take(world, "a") == job
    assert world.ask("a", "ACKJOB", job, "RESULT", "42") == 1
    world.run(5)
    assert waiting.replies == [[[job, b"completed", b"42", None]]]


def test_every_holder_keeps_the_result() -> None:
    """Spec RW1: also where the ack came to a node that never held the job."""
    world = joined("abcd")
    job = add(world, "a", "REPLICATE", 2)
    holders = [name for name in "abcd" if world.ask(name, "SHOW", job)]
    stranger = next(name for name in "abcd" if name not in holders)
    assert world.ask(stranger, "ACKJOB", job, "RESULT", "42") == 0
    world.run(2_000)
    for name in holders:
        assert world.machines[name].broker.results.get(job) == b"42"
        assert wait(world, name, job).replies == [[[job, b"completed", b"42", None]]]
    assert not world.machines[stranger].broker.results.by_id
    # The node remembers the end, in doubt (spec RW10).
    assert wait(world, stranger, job).replies == [[[job, b"completed", b"42", None]]]
    world.run(600)
    assert wait(world, stranger, job, "TIMEOUT", 1).replies == [[[job, b"completed", b"42", None]]]


def test_a_result_is_forgotten_after_its_retention() -> None:
    """Spec RW1, RW5: after that the job's id is known for a while, and unknown later."""
    world = joined("ab")
    assert world.ask("a", "QUEUE", "SET", "q", "result-retention", "20") == b"OK"
    job = add(world, "a", "REPLICATE", 2)
    assert world.ask("b", "ACKJOB", job, "RESULT", "42") == 1
    world.run(19_000)
    assert wait(world, "a", job).replies == [[[job, b"completed", b"42", None]]]
    world.run(60_000)
    assert wait(world, "a", job).replies == [[[job, b"unknown", None, None]]]
    assert not world.machines["a"].broker.results.bytes


def test_without_retention_only_those_that_wait_are_told() -> None:
    """Spec RW1."""
    world = joined("ab")
    assert world.ask("a", "QUEUE", "SET", "q", "result-retention", "0") == b"OK"
    job = add(world, "a", "REPLICATE", 1)
    waiting = [wait(world, name, job) for name in "ab"]
    assert world.ask("a", "ACKJOB", job, "RESULT", "42") == 1
    world.run(10)
    assert [each.replies for each in waiting] == [[[[job, b"completed", b"42", None]]]] * 2
    assert wait(world, "b", job).replies == [[[job, b"completed", None, None]]]


def test_a_node_that_dropped_a_result_asks_the_others() -> None:
    """Spec RW10: if no node has the result, it tells the end without it."""
    world = joined()
    job = add(world, "a", "REPLICATE", 2)
    assert world.ask("a", "ACKJOB", job, "RESULT", "42") == 1
    world.run(100)
    holders = [name for name in "abc" if world.machines[name].broker.results.by_id]
    for name in holders:
        assert wait(world, "c", job).replies == wait(world, name, job).replies == [[[job, b"completed", b"42", None]]]
        world.machines[name].broker.results.drop_oldest(0, 1)
    for name in "abc":
        assert wait(world, name, job).replies == [[[job, b"completed", None, None]]]


def test_an_id_that_was_only_acknowledged_is_unknown() -> None:
    """Spec RW6, RW10: even while the ack and its result wait for an answer of all nodes."""
    world = joined()
    job = add(world, "a", "REPLICATE", 1)
    fake = job[:12] + (b"A" if job[12:13] != b"A" else b"B") + job[13:]
    talker = world.client("b")
    talker.say("ACKJOB", fake, "RESULT", "42")
    waiting = [wait(world, name, fake) for name in "abc"]
    world.run(2_000)
    assert [each.replies for each in waiting] == [[[[fake, b"unknown", None, None]]]] * 3


def test_the_first_ack_keeps_its_result() -> None:
    """Spec RW2."""
    world = joined("ab")
    job = add(world, "a", "REPLICATE", 2)
    assert world.ask("a", "ACKJOB", job, "RESULT", "first") == 1
    world.run(10)
    assert world.ask("b", "ACKJOB", job, "RESULT", "second") == 0
    world.run(1_000)
    assert [world.machines[name].broker.results.get(job) for name in "ab"] == [b"first"] * 2


def test_of_two_results_of_a_partition_all_holders_keep_the_same() -> None:
    """Spec RW2."""
    world = joined("ab")
    job = add(world, "a", "REPLICATE", 2)
    world.drop = lambda sender, receiver, kind, item: kind == SETACK
    talkers = [world.client(name) for name in "ab"]
    for name, talker in zip("ab", talkers, strict=True):
        talker.say("ACKJOB", job, "RESULT", name)
    world.run(5)
    world.drop = None
    world.run(5_000)
    assert len({world.machines[name].broker.results.get(job) for name in "ab"}) == 1


def test_each_end_has_its_status() -> None:
    """Spec RW5."""
    world = joined("ab")
    canceled, expired = add(world, "a", "REPLICATE", 2), add(world, "a", "REPLICATE", 2, "TTL", 3)
    errored = add(world, "a", "REPLICATE", 2, "ATTEMPTS", 1, "RETRY", 30, queue="e")
    waiting = wait(world, "b", canceled, expired, errored)
    assert world.ask("a", "CANCELJOB", canceled) == 1
    assert take(world, "a", "e") == errored
    assert world.ask("a", "NACK", errored, "REASON", "no") == 1
    world.run(5_000)
    assert waiting.replies == [
        [[canceled, b"canceled", None, None], [expired, b"expired", None, None], [errored, b"errored", None, b"no"]]
    ]


def test_any_ends_with_the_first_and_tells_the_status_of_the_others() -> None:
    """Spec RW5."""
    world = joined()
    first, second = add(world, "a", "REPLICATE", 1), add(world, "b", "REPLICATE", 1)
    waiting = wait(world, "c", second, first, "ANY")
    assert world.ask("a", "ACKJOB", first) == 1
    world.run(5)
    assert waiting.replies == [[[second, b"pending", None, None], [first, b"completed", None, None]]]
    assert wait(world, "c", first, second, "ANY").replies[0][1][1] == b"pending"


def test_any_tells_the_present_status_of_the_others() -> None:
    """Spec RW8: they were pending when the wait began."""
    world = joined()
    first, second = add(world, "a", "REPLICATE", 1), add(world, "a", "REPLICATE", 1)
    waiting = wait(world, "c", first, second, "ANY")
    assert [take(world, "a"), take(world, "a")] == [first, second]
    assert world.ask("a", "ACKJOB", first) == 1
    world.run(10)
    assert [entry[1] for entry in waiting.replies[0]] == [b"completed", b"running"]


def test_a_time_out_tells_the_present_statuses() -> None:
    """Spec RW8."""
    world = joined("ab")
    job = add(world, "a", "REPLICATE", 1)
    waiting = wait(world, "b", job, "TIMEOUT", 1_000)
    assert take(world, "a") == job
    world.run(1_100)
    assert waiting.replies == [[[job, b"running", None, None]]]


def test_an_id_that_no_node_knows_is_unknown_once_all_are_linked() -> None:
    """Spec RW6."""
    world = joined()
    job = add(world, "a", "REPLICATE", 1)
    fake = job[:12] + (b"A" if job[12:13] != b"A" else b"B") + job[13:]
    assert wait(world, "c", fake).replies == [[[fake, b"unknown", None, None]]]
    world.crash("b")
    world.run(1_000)
    waiting = wait(world, "c", fake)
    world.run(30_000)
    assert waiting.replies == []
    world.restart("b")
    world.run(20_000)
    assert waiting.replies == [[[fake, b"unknown", None, None]]]


def test_a_registration_is_renewed_when_a_link_comes_back() -> None:
    """Spec RW7: an ack during the partition is heard afterwards."""
    world = joined("ab")
    job = add(world, "a", "REPLICATE", 1)
    waiting = wait(world, "b", job)
    world.cut("a", "b")
    world.run(20_000)
    assert world.ask("a", "ACKJOB", job, "RESULT", "42") == 1
    world.run(1_000)
    assert waiting.replies == []
    world.heal()
    world.run(20_000)
    assert waiting.replies == [[[job, b"completed", b"42", None]]]


def test_a_client_that_goes_takes_its_registration_away() -> None:
    """Spec RW7."""
    world = joined("ab")
    job = add(world, "a", "REPLICATE", 1)
    waiting = wait(world, "b", job)
    assert list(waits_of(world, "a").elsewhere) == [job]
    waiting.hang_up()
    world.run(10)
    for name in "ab":
        state = waits_of(world, name)
        assert (state.elsewhere, state.waited) == ({}, {})
        assert not world.machines[name].broker.ends.watched


def test_nothing_is_kept_after_all_waits_have_ended() -> None:
    """Spec RW7."""
    world = joined()
    jobs = [add(world, "a", "REPLICATE", 2) for _ in range(3)]
    waiting = [wait(world, name, *jobs) for name in "abc"]
    for job in jobs:
        world.ask("b", "ACKJOB", job)
    world.run(100)
    assert all(len(each.replies) == 1 for each in waiting)
    for name in "abc":
        state = waits_of(world, name)
        kept = (state.elsewhere, state.waited, state.asked, state.counts, state.by_client)
        assert kept == ({}, {}, {}, {}, {})


def test_a_flushed_node_says_that_it_has_the_job_no_more() -> None:
    """Spec RW6."""
    world = joined("ab")
    job = add(world, "a", "REPLICATE", 1)
    waiting = wait(world, "b", job)
    assert world.ask("a", "DEBUG", "FLUSHALL") == b"OK"
    world.run(100)
    assert waiting.replies == [[[job, b"unknown", None, None]]]


def test_progress_reaches_the_holders_once_a_second() -> None:
    """Spec RW4: the newest counts, and a new delivery begins without."""
    world = joined("ab")
    job = add(world, "a", "REPLICATE", 2, "RETRY", 60)
    assert take(world, "a") == job
    for percent in range(0, 100, 10):
        assert world.ask("a", "PROGRESS", job, percent, f"{percent} of 100") == b"OK"
        world.run(100)
    assert shown(world, "a", job)[b"progress"] == 90
    heard = shown(world, "b", job)[b"progress"]
    assert 0 <= heard < 90
    world.run(1_100)
    assert shown(world, "b", job)[b"progress-text"] == b"90 of 100"
    assert world.ask("a", "NACK", job) == 1
    assert take(world, "a") == job
    world.run(200)  # Another holder hears of a delivery a moment later.
    assert shown(world, "a", job)[b"progress"] is None
    assert shown(world, "b", job)[b"progress"] is None
