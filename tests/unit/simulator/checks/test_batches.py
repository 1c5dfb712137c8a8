"""simulator/checks/batches.py: counts, ends and callbacks of batches, compared with replies to producers."""

from __future__ import annotations

import pytest

from cluster_bus.messages import DELJOB, GOTJOB
from disque_py.core.keys import KEY_END
from disque_py.simulator.checks.batches import (
    CALLED,
    CLOSED,
    COUNTS,
    DONE_AFTER,
    ONE_CALLBACK,
    RECORDED,
    BatchBook,
)
from disque_py.simulator.checks.cluster_invariants import Losses, jobs_of
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from simulated import ask, joined

NAME = b"b"


class Story:
    """Two nodes, and a batch of two jobs whose ADDJOBs were answered some time ago."""

    def __init__(self):
        self.world = joined("ab")
        self.oracle = Oracle()
        self.losses = Losses(self.oracle)
        self.book = BatchBook(self.world, self.oracle, self.losses)
        self.jobs = [self.add() for _ in range(2)]
        self.world.run(2_000)

    def add(self, node="a"):
        promise = self.oracle.add(b"q", 8, 1_000, 3_600_000, 1, self.world.now_ms)
        self.book.adding(NAME, promise)
        job_id = ask(self.world, node, "ADDJOB", "q", promise.body(), 0, "RETRY", 1, "REPLICATE", 1, "BATCH", NAME)
        self.oracle.answered(promise, job_id, self.world.now_ms)
        self.book.added(promise)
        return promise

    def tell(self, **changes):
        """Give the book a reply to BATCH SHOW."""
        reply = ask(self.world, "b", "BATCH", "SHOW", NAME)
        for field, value in changes.items():
            reply[reply.index(field.encode()) + 1] = value
        self.book.told(NAME, reply, self.world.now_ms)


@pytest.fixture
def story():
    return Story()


def test_the_counts_of_all_nodes_are_right(story):
    """Spec BT7."""
    story.tell()
    assert story.book.shown == 1


def test_a_count_without_a_job_that_was_answered_breaks_the_rule(story):
    """Spec BT7."""
    with pytest.raises(RuleBrokenError, match=COUNTS):
        story.tell(total=1, **{"invisible-or-pending": 1})


def test_an_end_that_no_client_caused_breaks_the_rule(story):
    """Spec BT2, BT7."""
    with pytest.raises(RuleBrokenError, match=COUNTS):
        story.tell(completed=1, **{"invisible-or-pending": 1})


def test_a_batch_that_is_done_before_its_jobs_breaks_the_rule(story):
    """Spec BT4, BT7."""
    story.book.closing(NAME)
    with pytest.raises(RuleBrokenError, match=DONE_AFTER):
        story.tell(done=1)


def test_a_job_that_is_added_after_the_end_breaks_the_rule(story):
    """Spec BT4."""
    story.book.closing(NAME)
    story.book.closed(NAME)
    story.world.run(10)
    with pytest.raises(RuleBrokenError, match=CLOSED):
        story.add()


def test_a_job_that_no_keeper_has_recorded_breaks_the_rule(story):
    """Spec BT1. A keeper that forgot what it had, or is down, excuses that."""
    for machine in story.world.running():
        batch = machine.broker.batches.by_name[NAME]
        machine.broker.batches.drop_ids(batch)
    with pytest.raises(RuleBrokenError, match=RECORDED):
        story.book.added(story.jobs[0])
    story.losses.amnesia_ms = story.world.now_ms
    story.book.added(story.jobs[0])


def test_a_second_callback_breaks_the_rule(story):
    """Spec BT4, BT7."""
    story.book.closing(NAME)
    for promise in story.jobs:
        promise.acked_ms = story.world.now_ms
    story.book.called_back(NAME, b"one", story.world.machines["a"])
    story.book.called_back(NAME, b"one", story.world.machines["a"])
    with pytest.raises(RuleBrokenError, match=ONE_CALLBACK):
        story.book.called_back(NAME, b"two", story.world.machines["a"])


def same_key(job_id, other):
    """Return the id of a job with the key of `job_id`. The rest is that of another job."""
    return job_id[:KEY_END] + other[KEY_END:]


def called_twice(story, *, is_lost=False, second=b""):
    """Make two callbacks during a fault.

    is_lost   the node that has the first one is lost before the second one is begun
    second    the second one, which was begun before any node had the first one
    """
    story.oracle.faults = 1
    machines = story.world.machines
    first = story.jobs[0].id
    story.world.run(10)
    for _ in range(2):
        story.book.called_back(NAME, first, machines["a"])
    story.world.run(2_000)
    if is_lost:
        story.world.crash("a")
    at = "b" if is_lost else "a"
    story.book.called_back(NAME, second or same_key(first, story.add(at).id), machines[at])


def test_a_second_callback_breaks_the_rule_where_a_linked_node_has_the_first_one(story):
    """Spec BT4, K2: both have one key."""
    with pytest.raises(RuleBrokenError, match=ONE_CALLBACK):
        called_twice(story)


def test_a_second_callback_may_come_where_the_first_one_is_lost(story):
    called_twice(story, is_lost=True)


def test_a_second_callback_may_come_if_it_was_begun_before_a_node_had_the_first_one(story):
    """Spec BT4, K7: two makers that can't ask each other may both be linked to the node that has the first one."""
    world = story.world
    world.cut("a", "b")
    ids = [ask(world, name, "ADDJOB", "q", "x", 0, "KEY", "k", "REPLICATE", 1) for name in "ab"]
    world.heal()
    story.jobs[0].id = ids[0]
    world.run(2_000)
    called_twice(story, second=ids[1])


def test_a_batch_that_began_on_two_sides_of_a_partition_may_have_two_callbacks(story):
    """Spec BT4: until the nodes agree on one beginning, the callbacks have two keys (seed 16570)."""
    called_twice(story, second=b"D-" + b"0" * 8 + b"-" + b"k" * 24 + b"-05a1")


@pytest.mark.parametrize(("state", "count"), [("made", 1), ("waits", 0), ("given up", 0), ("creator died", 1)])
def test_a_callback_counts_when_it_can_no_longer_be_taken_back(story, state, count):
    """Spec K5: until then its creator waits for copies, and drops it if a node knows another job with its key."""
    world = story.world
    for promise in story.jobs:
        ask(world, "b", "ACKJOB", promise.id)
        story.oracle.acknowledging(promise, world.now_ms)
    story.book.closing(NAME)
    if state != "made":
        world.traffic.filter = lambda _sender, _receiver, kind, _item: kind in (GOTJOB, DELJOB)
    ask(world, "a", "BATCH", "CLOSE", NAME, "CALLBACK", CALLED, "x")
    world.run(6_000 if state == "given up" else 1_000)
    if state == "creator died":
        world.crash("a")
    assert [job.queue for job in jobs_of(world["b"])] == [CALLED]
    story.book.look()
    assert len(story.book.by_name[NAME].callbacks) == count


@pytest.mark.parametrize("end", ["acked", "errored"])
def test_a_job_that_was_refused_and_ended_may_be_counted(story, end):
    """Spec BT1, BT7: the copy of a job that was not created may be out of reach, or end before (seed 8349)."""
    ghost = story.add()
    story.book.refused(ghost)
    for promise in story.jobs if end == "errored" else [*story.jobs, ghost]:
        ask(story.world, "a", "ACKJOB", promise.id)
        story.oracle.acknowledging(promise, story.world.now_ms)
    if end == "errored":
        jobs = ask(story.world, "a", "GETJOB", "NOHANG", "COUNT", 10, "FROM", "q")
        assert ghost.id in [job[1] for job in jobs]
        ask(story.world, "a", "NACK", ghost.id, "FINAL", "REASON", "no use", "ATTEMPT", 1)
        ghost.nacks = 1
    ask(story.world, "a", "BATCH", "CLOSE", NAME)
    story.book.closing(NAME)
    story.book.closed(NAME)
    story.world.run(2_000)
    story.book.check_counts(NAME, ask(story.world, "b", "BATCH", "SHOW", NAME), "b")


def test_a_batch_moves_until_its_keepers_agree_that_it_is_done(story):
    """Spec BT4: its callback is waited for."""
    for promise in story.jobs:
        ask(story.world, "a", "ACKJOB", promise.id)
    ask(story.world, "a", "BATCH", "CLOSE", NAME, "CALLBACK", "called", "x")
    assert story.book.moving() == [NAME]
    story.world.run(2_000)
    assert story.book.moving() == []


def test_a_batch_that_lost_ids_with_a_node_is_excused_by_name(story):
    """Spec BT1, BT7."""
    assert story.book.unfinished() == ["b'b' is not closed"]
    story.losses.amnesia_ms = story.world.now_ms
    assert story.book.unfinished() == []
    assert story.book.excused == {NAME: "a node forgot ids since the batch began"}


def test_a_close_that_was_lost_with_its_node_is_excused(story):
    """Spec BT6: CLOSE is shared state, and was answered by a node that no other one could hear."""
    for promise in story.jobs:
        ask(story.world, "a", "ACKJOB", promise.id)
    story.world.run(2_000)
    story.book.closed(NAME)
    assert story.book.unfinished() == [f"b'b' is not done on {name}" for name in story.world.machines]
    story.losses.amnesia_ms = story.world.now_ms
    assert story.book.unfinished() == []
