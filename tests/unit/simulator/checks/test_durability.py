"""Durability: promises are compared with the records in the journal."""

from __future__ import annotations

import errno

import pytest

from cluster_bus.codec import PROTOCOL_MAX, encode_run, frame
from cluster_bus.messages import DELJOB, GOTACK, GOTJOB, YOURJOBS
from disque_py.core import handover
from disque_py.core.job import Handover
from disque_py.simulator.checks.durability import NOWHERE, DurabilityChecker
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.world.disk import DELAYS_MS
from disque_py.simulator.world.world import World
from persistence.layouts import IS_GIVEN
from persistence.records import GONE, JOB
from simulated import ask, asker, journaling_pair, words


@pytest.fixture
def world():
    return journaling_pair()


def durability(world: World, name: str = "a") -> DurabilityChecker:
    found = world.machines[name].journal_storage.durability
    assert found is not None
    return found


def stuck(world: World, name: str = "a") -> None:
    """Stop a disk: no more writes reach it."""
    world.machines[name].journal_storage.disk.is_stuck = True


def free(world: World, name: str = "a") -> None:
    world.machines[name].journal_storage.disk.is_stuck = False
    world.machines[name].journal_storage.disk.delays_ms = list(DELAYS_MS)
    world.machines[name].journal_storage.disk.free()


def test_an_answer_that_does_not_wait_for_its_record_is_found(world):
    """Once the record is safe, the reply may leave."""
    world.machines["a"].journal_storage.disk.wait_share = 0.0
    connection = asker(world, "a")
    connection.send([words("ADDJOB", "q", "x", 0, "REPLICATE", 1)])
    [job_id] = connection.unseen()
    with pytest.raises(RuleBrokenError, match=r"the answer to an ADDJOB .* recorded up to"):
        durability(world).check_added(job_id, 1)
    world.run(100)
    durability(world).check_added(job_id, 1)


def test_a_copy_that_was_not_counted_need_not_be_safe(world):
    """A node that replicated elsewhere may get the job back before its reply."""
    stuck(world)
    connection = asker(world, "a")
    connection.send([words("ADDJOB", "q", "x", 0, "REPLICATE", 2)])
    world.run(100)
    [job_id] = connection.unseen()
    durability(world).check_added(job_id, 1)
    with pytest.raises(RuleBrokenError):
        durability(world).check_added(job_id, 2)
    free(world)


def test_a_job_that_is_done_on_another_node_need_not_be_safe_here(world):
    """The ack came before the copies, and the producer gets its reply then."""
    connection = asker(world, "a")
    stuck(world)
    connection.send([words("ADDJOB", "q", "x", 0, "REPLICATE", 2)])
    world.run(100)
    [job_id] = connection.unseen()
    with pytest.raises(RuleBrokenError, match="the answer to an ADDJOB"):
        durability(world).check_added(job_id, 3)
    assert ask(world, "b", "ACKJOB", job_id) == 1
    durability(world).check_added(job_id, 3)
    free(world)


@pytest.mark.parametrize(("kind", "item"), [(GOTJOB, []), (GOTACK, [b"some", 1]), (DELJOB, [b"some"])])
def test_messages_wait_for_their_records(world, kind, item):
    """GOTJOB waits for the job's record, GOTACK for the ack's, and DELJOB for the end's."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    stuck(world)
    connection = asker(world, "a")
    connection.send([words("ADDJOB", "q", "y", 0, "REPLICATE", 1)])
    later_id = connection.unseen()[0]
    connection.send([words("ACKJOB", job_id), words("ACKJOB", later_id)])
    told = later_id if kind == GOTJOB else job_id
    world.run(20)
    if kind == GOTJOB:
        durability(world)._check_said(world["b"].me, kind, [job_id])
    with pytest.raises(RuleBrokenError, match="before its record"):
        durability(world)._check_said(world["b"].me, kind, [told, *item])
    free(world)


def test_the_collection_of_a_canceled_job_ends_with_its_cancellation_on_disk(world):
    """Its record is dropped later, when no lease of the job can run. A restart before that only collects again."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 1, "RETRY", 1)
    ask(world, "a", "GETJOB", "FROM", "q")
    ask(world, "a", "CANCELJOB", job_id)
    world.run(500)
    stuck(world)
    world.run(1500)
    assert world["a"].find(job_id) is None
    durability(world)._check_said(world["b"].me, DELJOB, [job_id, b"some"])
    free(world)


def test_a_collection_ends_with_its_ack_on_disk(world):
    """The end itself may have no record yet. A restart before that only collects again."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    ask(world, "a", "ACKJOB", job_id)
    world.run(100)
    stuck(world)
    noted = durability(world)._noted[job_id]
    position = durability(world)._journal.position
    noted.acked, noted.gone = position, position + 1
    durability(world)._check_said(world["b"].me, DELJOB, [job_id, b"some"])
    noted.acked = position + 1
    with pytest.raises(RuleBrokenError, match="DELJOB"):
        durability(world)._check_said(world["b"].me, DELJOB, [job_id, b"some"])
    free(world)


def test_an_answered_ack_is_recorded(world):
    """The job may be gone from memory or not."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    stuck(world)
    asker(world, "a").send([words("ACKJOB", job_id)])
    with pytest.raises(RuleBrokenError, match="ACKJOB"):
        durability(world).check_acked(job_id)
    free(world)
    world.run(100)
    durability(world).check_acked(job_id)


def test_a_delivery_is_recorded(world):
    """The record comes before the consumer gets the job."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "RETRY", 0)
    stuck(world)
    asker(world, "a").send([words("GETJOB", "FROM", "q")])
    with pytest.raises(RuleBrokenError, match="a delivery"):
        durability(world).check_delivered(job_id)
    free(world)
    world.run(100)
    durability(world).check_delivered(job_id)


def test_a_job_is_given_away_after_its_record(world):
    """The journal must record the hand-over of all jobs that YOURJOBS names."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "RETRY", 0)
    ask(world, "a", "DEQUEUE", job_id)
    stuck(world)
    broker = world["a"]
    job = broker.find(job_id)
    taker = next(node for node in broker.cluster.linked if node.host == "b")
    world.machines["a"].open()
    handover.hand_over(broker, taker, [job])
    world.machines["a"].close()
    with pytest.raises(RuleBrokenError, match="YOURJOBS"):
        durability(world)._check_said(taker, YOURJOBS, [job.work.number, 0, [(job_id,)]])
    # Another node got a hand-over of that number before, and its record is older (seed 11760).
    durability(world)._check_said(broker.me, YOURJOBS, [job.work.number, 0, [(job_id,)]])
    free(world)


def test_a_hand_over_that_was_read_from_the_journal_is_recorded(world):
    """The node continues it, and sends YOURJOBS again."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    journal = durability(world)._journal
    world["a"].find(job_id).work = Handover(world["b"].me, 7)
    assert DurabilityChecker(world.machines["a"], journal)._noted[job_id].given == 0


@pytest.mark.parametrize(("segment", "given"), [(3, 100), (4, 300)])
def test_a_repeated_gone_record_ends_no_promise(world, segment, given):
    """The job came back, and its base follows the repeated GONE. A GONE of another base means another job."""
    checker = durability(world)
    base = [JOB, (b"id", b"", b"q", b"", b"", bytes([IS_GIVEN]) + bytes(20))]
    checker.note([base], 10)
    checker.note([[GONE, (b"id", 3)]], 50)
    checker.note([base], 100)
    checker.note([[GONE, (b"id", segment)], base], 300)
    assert checker._noted[b"id"].given == given


def test_a_job_that_is_done_and_whose_ack_came_again_was_here(world):
    """The producer, or the node that asked for the copy, may get its answer late. The first record counts."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    ask(world, "a", "ACKJOB", job_id)
    world.run(100)
    assert world["a"].find(job_id) is None
    stuck(world)
    journal = durability(world)._journal
    noted = durability(world)._noted[job_id]
    noted.come_again(journal.position + 1)
    durability(world).check_added(job_id, 1)
    durability(world)._check_said(world["b"].me, GOTJOB, job_id)
    free(world)


def test_an_ack_that_went_with_its_job_was_recorded_then(world):
    """The same ack may come again before the answer to the first one leaves. The first record counts."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    ask(world, "a", "DELJOB", job_id)
    world.run(100)
    stuck(world)
    noted = durability(world)._noted[job_id]
    noted.acked = durability(world)._journal.position + 1
    durability(world)._check_said(world["b"].me, GOTACK, [job_id, b"some", 1])
    free(world)


def test_a_disk_that_fails_without_a_fault_is_reported():
    """With everysec, acks go on in memory, which breaks no promise. But here no disk fault was planned."""
    world = World("")
    world.add("a", journal="everysec")
    world.run(200)
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    journal_storage = world.machines["a"].journal_storage
    journal_storage.folder.fail("sync write create", errno.EIO, times=1_000)
    world.run(3_000)
    assert not journal_storage.journal_service.journal.must_wait()
    assert ask(world, "a", "ACKJOB", job_id) == 1
    with pytest.raises(RuleBrokenError, match=r"a disk without faults is well.*a: .*error"):
        durability(world).check_acked(job_id)


def test_an_ack_that_came_and_went_within_a_turn_needs_no_record(world):
    """GOTACK was sent for it. When the ack comes again it has a record, for which no message was sent yet."""
    stuck(world)
    connection = asker(world, "a")
    connection.send([words("ADDJOB", "q", "x", 0, "REPLICATE", 1)])
    [job_id] = connection.unseen()
    connection.send([words("ACKJOB", job_id)])
    world.run(20)
    with pytest.raises(RuleBrokenError, match="GOTACK"):
        durability(world)._check_said(world["b"].me, GOTACK, [job_id, b"some", 1])
    world["a"].tombstones.add(job_id, world["a"].now_ms)
    durability(world)._check_said(world["b"].me, GOTACK, [job_id, b"some", 1])
    free(world)


def test_an_ack_of_a_flushed_job_for_which_there_was_no_room_needs_no_record(world):
    """GOTACK was sent for it. When the ack comes again there is room, and it gets a record (seed 8357)."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    world.run(100)
    durability(world).flushing()
    ask(world, "a", "DEBUG", "FLUSHALL")
    world.run(100)
    stuck(world)
    world["a"].tombstones.add(job_id, world["a"].now_ms)
    asker(world, "a").send([words("ACKJOB", job_id)])
    world.run(20)
    durability(world)._check_said(world["b"].me, GOTACK, [job_id, b"some", 1])
    free(world)


def test_frames_are_opened_while_something_is_not_safe(world):
    """If everything in a node's memory is recorded, its frames need no check."""
    stuck(world)
    connection = asker(world, "a")
    connection.send([words("ADDJOB", "q", "x", 0, "REPLICATE", 1)])
    [job_id] = connection.unseen()
    data = frame(PROTOCOL_MAX, [encode_run(GOTJOB, [job_id])])
    with pytest.raises(RuleBrokenError, match="GOTJOB"):
        durability(world).check_frame(world["b"].me, data)
    free(world)
    world.run(100)
    durability(world).check_frame(world["b"].me, data)


def test_decisions_while_the_disk_fails_are_excused_and_later_ones_are_not(world):
    """The record of an ack that needed no disk may be written after its reply has left."""
    machine = world.machines["a"]
    journal = machine.journal_storage.journal_service.journal
    held = durability(world)
    machine.journal_storage.had_failure = True
    held._unwaited = (journal.position + 1, journal.position + 10)
    held._check(b"some", journal.position + 5, "an ack")
    for position in (journal.position + 11, NOWHERE):
        with pytest.raises(RuleBrokenError, match="no promise before its record"):
            held._check(b"some", position, "an ack")
