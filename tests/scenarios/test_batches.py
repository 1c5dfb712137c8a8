"""Batches: counts are exact in spite of lost nodes and links (spec BT1 to BT6)."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_bus.messages import BATCHADD, GOTJOB, SETACK
from disque_py.core.batch_state import CALLBACK_ID
from disque_py.core.id_sets import KEY_BYTES
from disque_py.event_format import COMPLETED
from world import Talker, World, joined


def add(world: World, node: str, batch: str = "b", *words: str | int, queue: str = "q") -> bytes:
    reply = world.ask(node, "ADDJOB", queue, "body", 0, "BATCH", batch, *words)
    assert isinstance(reply, bytes), reply
    return reply


def shown(world: World, node: str, batch: str = "b") -> dict[str, Any]:
    reply = world.ask(node, "BATCH", "SHOW", batch)
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)} if reply else {}


def counts(world: World, node: str, batch: str = "b") -> tuple[int, ...]:
    found = shown(world, node, batch)
    names = ("total", "invisible-or-pending", "running", "completed", "canceled", "errored", "expired", "done")
    return tuple(found[name] for name in names)


def jobs_of(world: World, node: str) -> list[bytes]:
    return [job_id for shard in world.members[node].broker.shards for job_id in shard]


def take(world: World, node: str, queue: str = "q") -> bytes:
    return bytes(world.ask(node, "GETJOB", "FROM", queue)[0][1])


def wait(world: World, node: str, *words: str | int) -> Talker:
    talker = world.client(node)
    talker.say("BATCH", "WAIT", *words)
    world.run(50)
    return talker


def test_each_job_counts_once_in_its_status() -> None:
    """Spec BT1, BT2: on every node, however many copies it has."""
    world = joined("abcd")
    jobs = [add(world, name, "b", "REPLICATE", 2) for name in "abcdab"]
    assert take(world, "a")
    assert world.ask("d", "ACKJOB", jobs[1]) in (0, 1)
    assert world.ask("c", "CANCELJOB", jobs[2]) == 1
    world.run(1_000)
    for name in "abcd":
        assert counts(world, name) == (6, 3, 1, 1, 1, 0, 0, 0)


def test_a_batch_is_done_when_it_is_closed_and_all_its_jobs_are_over() -> None:
    """Spec BT4: WAIT ends, and the callback is one job."""
    world = joined()
    jobs = [add(world, name) for name in "abc"]
    waiting = wait(world, "c", "b")
    assert world.ask("b", "BATCH", "CLOSE", "b", "CALLBACK", "after", "report") == b"OK"
    assert world.ask("a", "ADDJOB", "q", "x", 0, "BATCH", "b").args[0] == "CLOSED The batch is closed"
    for job in jobs:
        assert waiting.replies == []
        world.ask("a", "ACKJOB", job)
        world.run(300)
    world.run(1_000)
    assert len(waiting.replies) == 1
    assert counts(world, "b") == (3, 0, 0, 3, 0, 0, 0, 1)
    world.run(2_000)
    assert sum(world.ask(name, "QLEN", "after") for name in "abc") == 1
    entry = world.ask("a", "GETJOB", "WITHMETA", "FROM", "after")[0]
    assert entry[1] == shown(world, "c")["callback"]
    assert (entry[2], entry[4]) == (b"report", [b"x-disque-batch", b"b"])
    assert world.ask("a", "BATCH", "CLOSE", "b", "CALLBACK", "other", "x") == b"OK"
    world.run(2_000)
    assert not world.ask("a", "QLEN", "other")


def test_a_callback_that_is_made_again_is_the_same_job() -> None:
    """Spec BT4: its node died before any other node knew the callback's id."""
    world = joined(cluster_node_timeout=1_000)
    job = add(world, "b")
    world.ask("c", "BATCH", "CLOSE", "b", "CALLBACK", "after", "report")
    maker = world.members[world.members["b"].broker.batches.by_name[b"b"].keepers[0].id[:1].decode()]
    world.drop = lambda sender, receiver, kind, item: sender == maker.name and CALLBACK_ID in str(item).encode()
    world.ask("b", "ACKJOB", job)
    world.run(1_500)
    others = [name for name in "abc" if name != maker.name]
    (made,) = {job_id for name in "abc" for job_id in jobs_of(world, name) if job_id != job}
    maker.die()
    world.run(5_000)
    assert [shown(world, name)["callback"] for name in others] == [made] * 2


def test_a_redriven_job_makes_the_batch_undone_again() -> None:
    """Spec BT4."""
    world = joined()
    job = add(world, "a", "b", "ATTEMPTS", 1)
    world.ask("a", "BATCH", "CLOSE", "b")
    assert take(world, "a") == job
    assert world.ask("a", "NACK", job) == 1
    world.run(2_000)
    assert counts(world, "c") == (1, 0, 0, 0, 0, 1, 0, 1)
    assert world.ask("a", "ENQUEUE", job) == 1
    world.run(2_000)
    assert counts(world, "c") == (1, 1, 0, 0, 0, 0, 0, 0)
    world.ask("a", "ACKJOB", job)
    world.run(2_000)
    assert counts(world, "b") == (1, 0, 0, 1, 0, 0, 0, 1)


def test_a_dead_letter_counts_as_errored_until_it_is_over() -> None:
    """Spec BT2."""
    world = joined("ab")
    world.ask("a", "QUEUE", "SET", "q", "dead-letter", "dead", "attempts", "1")
    job = add(world, "a", "b", "RETRY", 30)
    assert take(world, "a") == job
    world.ask("a", "NACK", job)
    assert take(world, "a", "dead") == job
    world.run(1_000)
    assert counts(world, "b") == (1, 0, 0, 0, 0, 1, 0, 0)
    world.ask("a", "ACKJOB", job)
    world.run(1_000)
    assert counts(world, "b") == (1, 0, 0, 1, 0, 0, 0, 0)


@pytest.mark.parametrize("command", ["MOVEJOB", "ENQUEUE"])
def test_a_dead_letter_that_is_moved_or_queued_by_hand_counts_as_errored(command: str) -> None:
    """Spec BT2, MV3: it stays a dead letter, so the batch is still done."""
    world = joined("ab")
    world.ask("a", "QUEUE", "SET", "q", "dead-letter", "dead", "attempts", "1")
    job = add(world, "a", "b", "RETRY", 30)
    world.ask("a", "BATCH", "CLOSE", "b")
    assert take(world, "a") == job
    world.ask("a", "NACK", job)
    world.run(1_000)
    if command == "ENQUEUE":
        world.ask("a", "DEQUEUE", job)
        assert world.ask("a", "ENQUEUE", job) == 1
    else:
        assert world.ask("a", "MOVEJOB", job, "TO", "other") == 1
    world.run(2_000)
    assert counts(world, "b") == (1, 0, 0, 0, 0, 1, 0, 1)


def test_an_addjob_that_fails_adds_nothing() -> None:
    """Spec BT1."""
    world = joined("ab")
    add(world, "a")
    assert world.ask("a", "ADDJOB", "q", "x", 100, "REPLICATE", 5, "BATCH", "b").args[0].startswith("NOREPL")
    world.ask("a", "PAUSE", "p", "in")
    assert world.ask("a", "ADDJOB", "p", "x", 0, "BATCH", "b").args[0].startswith("PAUSED")
    assert counts(world, "b")[0] == 1


def test_the_counts_survive_keepers_that_are_lost() -> None:
    """Spec BT3: they are replaced, and the new ones get the ids."""
    world = joined("abcde", cluster_node_timeout=1_000)
    for name in "abcdeabcde":
        add(world, name, "b", "REPLICATE", 3)
    world.ask("a", "ACKJOB", take(world, "a"))
    world.run(1_000)
    batch = world.machines["a"].broker.batches.by_name[b"b"]
    keepers = [node.id[:1].decode() for node in batch.keepers]
    survivor = next(name for name in "abcde" if name not in keepers)
    for name in keepers[:2]:
        world.crash(name)
        world.run(20_000)
    assert counts(world, survivor)[0] == 10
    assert counts(world, survivor)[3] == 1
    now = [node.id[:1].decode() for node in world.machines[survivor].broker.batches.by_name[b"b"].keepers]
    assert len(now) == 3
    assert not set(now) & set(keepers[:2])


def test_the_sets_of_both_sides_merge_after_a_partition() -> None:
    """Spec BT3: meanwhile each side counts its own jobs."""
    world = joined("ab", cluster_node_timeout=1_000)
    add(world, "a", "b", "REPLICATE", 1)
    world.run(1_000)
    world.cut("a", "b")
    world.run(5_000)
    for name in "ab":
        for _ in range(3):
            add(world, name, "b", "REPLICATE", 1)
    assert counts(world, "a")[0] == 4
    world.heal()
    world.run(20_000)
    for name in "ab":
        assert counts(world, name)[:2] == (7, 7)


def test_a_node_without_a_keeper_in_reach_becomes_one() -> None:
    """Spec BT3."""
    world = joined("abcd", cluster_node_timeout=1_000)
    add(world, "a", "b", "REPLICATE", 1)
    world.run(1_000)
    keepers = [node.id[:1].decode() for node in world.machines["a"].broker.batches.by_name[b"b"].keepers]
    other = next(name for name in "abcd" if name not in keepers)
    for name in keepers:
        world.cut(name, other)
    world.run(5_000)
    add(world, other, "b", "REPLICATE", 1)
    assert counts(world, other)[0] >= 1
    world.heal()
    world.run(20_000)
    for name in "abcd":
        assert counts(world, name)[0] == 2


def test_a_holder_reports_an_ack_of_a_node_that_got_the_job_after_it() -> None:
    """Spec BT3: the node that took the ACKJOB knew nothing of the batch."""
    world = joined("ab")
    job = add(world, "a", "b", "REPLICATE", 1)
    world.drop = lambda sender, receiver, kind, item: kind == SETACK and not item[1]
    assert world.ask("b", "ACKJOB", job) == 0
    world.client("b").say("GETJOB", "FROM", "q")  # The node that has the job offers it, and is refused.
    world.run(3_000)
    assert counts(world, "a") == (1, 0, 0, 1, 0, 0, 0, 0)
    assert not jobs_of(world, "a")
    assert not jobs_of(world, "b")


def test_a_job_whose_addjob_fails_stops_counting_after_it_was_reported_to_new_keepers() -> None:
    """Spec BT8: its copy looked like that of a job whose creator is lost."""
    world = joined("abcde", cluster_node_timeout=1_000)
    add(world, "a", "b", "REPLICATE", 1)
    keepers = [node.id[:1].decode() for node in world.machines["a"].broker.batches.by_name[b"b"].keepers]
    creator, holder = (name for name in "abcde" if name not in keepers)
    for keeper in keepers:
        world.cut(keeper, creator)
        world.cut(keeper, holder)
    world.run(5_000)
    world.drop = lambda sender, receiver, kind, item: kind == GOTJOB
    producer = world.client(creator)
    producer.say("ADDJOB", "q", "body", 5_000, "REPLICATE", 2, "BATCH", "b")
    world.run(100)
    add(world, creator, "b", "REPLICATE", 1)  # This makes both nodes keepers.
    world.run(1_000)
    assert counts(world, creator)[:2] == (2, 2)
    world.run(5_000)
    assert producer.replies[0].args[0].startswith("NOREPL")
    assert counts(world, creator)[:2] == counts(world, holder)[:2] == (1, 1)
    world.drop = None
    world.heal()
    world.run(20_000)
    for name in "abcde":
        assert counts(world, name)[:2] == (2, 2)
    assert world.ask(holder, "BATCH", "CLOSE", "b") == b"OK"
    for name in ("a", creator):
        world.ask(name, "ACKJOB", take(world, name))
    world.run(5_000)
    assert counts(world, holder) == (2, 0, 0, 2, 0, 0, 0, 1)


def test_a_job_that_was_moved_before_its_addjob_failed_does_not_count() -> None:
    """Spec BT8: the move told the keepers of the job."""
    world = joined("abc", cluster_node_timeout=1_000)
    add(world, "a", "b", "REPLICATE", 1)
    world.drop = lambda sender, receiver, kind, item: kind == GOTJOB
    producer = world.client("a")
    producer.say("ADDJOB", "q", "body", 5_000, "REPLICATE", 2, "RETRY", 1, "BATCH", "b")
    world.run(3_000)
    holder, found = next((name, found) for name in "bc" if (found := world.ask(name, "QPEEK", "q", 1)))
    assert world.ask(holder, "MOVEJOB", found[0][1], "TO", "other") == 1
    world.run(1_000)
    assert counts(world, "a")[:2] == (2, 2)
    world.run(5_000)
    assert producer.replies[0].args[0].startswith("NOREPL")
    world.drop = None
    world.run(5_000)
    for name in "abc":
        assert counts(world, name)[:2] == (1, 1)


def test_the_record_of_an_ended_job_waits_for_the_report_of_its_end() -> None:
    """Spec BT3: the answer to the report that the job exists is not enough. A crash would lose the other one."""
    world = joined("abcd")
    add(world, "a")
    keepers = [node.id[:1].decode() for node in world.machines["a"].broker.batches.by_name[b"b"].keepers]
    creator = next(name for name in "abcd" if name not in keepers)
    producer = world.client(creator)
    producer.say("ADDJOB", "of its own", "body", 0, "REPLICATE", 1, "BATCH", "b")
    job = world.ask(creator, "GETJOB", "NOHANG", "FROM", "of its own")[0][1]
    world.drop = lambda sender, receiver, kind, item: kind == BATCHADD and item[2][KEY_BYTES] == COMPLETED
    assert world.ask(creator, "ACKJOB", job) == 1
    world.run(500)
    assert world.machines[creator].broker.find(job) is not None
    world.drop = None
    world.run(5_000)
    assert producer.replies == [job]
    assert world.machines[creator].broker.find(job) is None
    for name in "abcd":
        assert counts(world, name)[:4] == (2, 1, 0, 1)


def test_a_deleted_batch_is_gone_and_its_jobs_stay() -> None:
    """Spec BT6."""
    world = joined()
    job = add(world, "a")
    waiting = wait(world, "c", "b")
    assert world.ask("b", "BATCH", "LIST") == [b"b"]
    assert world.ask("b", "BATCH", "DEL", "b") == 1
    world.run(100)
    assert waiting.replies == [None]
    assert world.ask("a", "BATCH", "DEL", "b") == 0
    assert world.ask("c", "BATCH", "LIST") == []
    assert take(world, "a") == job
    assert world.ask("a", "ACKJOB", job) == 1
    world.run(3_000)
    for name in "abc":
        assert not world.machines[name].broker.job_count
        assert not world.machines[name].broker.batches.by_name


def test_a_deleted_batch_does_not_come_back_in_another_one_of_its_name() -> None:
    """Spec BT3, BT6: a node that reads its journal leaves the earlier batch's ids out."""
    world = World("")
    world.add("a", journal="always")
    world.join()
    for _ in range(3):
        add(world, "a")
    assert world.ask("a", "BATCH", "DEL", "b") == 1
    add(world, "a")
    world.crash("a")
    world.restart("a")
    world.run(2_000)
    assert shown(world, "a")["total"] == 1


@pytest.mark.parametrize("disk_ms", [10, 700])
@pytest.mark.parametrize("copies", [1, 3])
def test_the_end_of_a_job_counts_at_a_node_that_knows_only_the_deletion_of_an_earlier_batch(copies, disk_ms) -> None:
    """Spec BT2, BT3: the node that makes the batch again has a slow disk, so other nodes hear of it late."""
    world = World("abcd", cluster_node_timeout=1_000)
    world.join()
    add(world, "a", "b", "REPLICATE", 1)
    assert world.ask("a", "BATCH", "DEL", "b") == 1
    world.run(2_000)
    take(world, "a")
    host = world["a"].host
    write = host.write_queue_settings
    host.write_queue_settings = lambda *words: world.later(disk_ms, write, *words)
    worker, producer = world.client("d"), world.client("a")
    worker.say("GETJOB", "FROM", "q")
    world.run(300)
    producer.say("ADDJOB", "q", "y", 0, "REPLICATE", copies, "BATCH", "b")
    world.until(lambda: bool(worker.replies))
    assert world.ask("d", "ACKJOB", worker.replies[0][0][1]) == 1
    world.run(8_000)
    assert len(producer.replies) == 1
    assert world.ask("a", "BATCH", "CLOSE", "b") == b"OK"
    world.run(30_000)
    assert counts(world, "a") == (1, 0, 0, 1, 0, 0, 0, 1)


def test_both_sides_of_a_partition_publish_to_one_batch() -> None:
    """Spec TP8, BT3, BT7: each side sees its own publications whole. Afterwards all nodes count all jobs."""
    world = joined("abcd", cluster_node_timeout=1_000)
    for queue in "xy":
        world.ask("a", "TOPIC", "BIND", "t", queue)
    publication = ("TOPIC", "PUBLISH", "t", "body", 0, "BATCH", "b", "REPLICATE", 2)
    world.ask("a", *publication)
    world.run(1_000)
    for one, other in ("ac", "ad", "bc", "bd"):
        world.cut(one, other)
    world.run(4_000)
    assert [len(world.ask(name, *publication)) for name in "ac"] == [2, 2]
    assert [counts(world, name)[0] for name in "abcd"] == [4, 4, 4, 4]
    world.heal()
    world.run(15_000)
    assert [counts(world, name)[:2] for name in "abcd"] == [(6, 6)] * 4


def test_a_new_batch_is_open_although_an_earlier_one_was_closed_while_it_was_deleted() -> None:
    """Both changes have the same version. The node with the higher id wins, and DEL leaves its field there."""
    world = joined("ab")
    add(world, "a")
    world.run(3_000)
    deleter, closer = world.client("a"), world.client("b")
    deleter.say("BATCH", "DEL", "b")
    closer.say("BATCH", "CLOSE", "b", "CALLBACK", "called", "x")
    world.run(5_000)
    add(world, "a")
    add(world, "a")
    assert shown(world, "a")["closed"] == 0
    assert "callback-queue" not in shown(world, "a")
