"""core/restoring.py: jobs and pauses from records, and the jobs that may go straight back into their queues."""

from __future__ import annotations

import pytest

import journal_files
from brokers import ME, add_node, make_broker, pass_time
from cluster_bus.messages import SETACK, WILLQUEUE
from copies import advance, hold_queued, pack, queue_of, say, sent_of
from disque_py.core import journaling
from disque_py.core.job import ACKED, ACTIVE, QUEUED
from disque_py.core.restoring import Restoring, give_up_once
from disque_py.core.schedule import SWEEP_MS
from journal_files import ACKED_ID, GONE_ID, IS_DELIVERED, IS_QUEUED, ONCE_ID, QUEUED_ID, WAS_QUEUED, base, bases
from journaled import JournaledNode, recount
from persistence import layouts
from persistence.records import (
    DROPPED,
    GONE,
    IS_ALWAYS,
    JOB,
    KEY,
    PAUSE,
    STATE,
    TOKEN,
    FormatError,
    decode_block,
    decode_header,
)

IN_QUEUE = IS_QUEUED | WAS_QUEUED


def restored(*runs, flags=IS_ALWAYS, number=1, age_ms=0, **how):
    """A broker after a restart with these runs in one block."""
    broker = make_broker(node_id=journal_files.NODE)
    broker.journal.first_place = 1
    restoring = Restoring(broker, journal_files.NODE)
    restoring.block(number, broker.wall_ms - age_ms, flags, [list(run) for run in runs])
    finish(restoring, **how)
    return broker, restoring


def finish(restoring, *, is_certain=False, is_whole=True, is_restored=False, wants_queues=False):
    for _ in restoring.finish(
        is_certain=is_certain, is_whole=is_whole, is_restored=is_restored, wants_queues=wants_queues
    ):
        pass


def state(flags, due_ms, attempt=1):
    return layouts.STATE_FIELDS_V2.pack(flags, due_ms, attempt, 0, 0)


def test_a_job_that_turns_out_to_be_over_has_no_timer_left():
    """The sweep sets timers while a long journal is read. When one was due, the node forgot the job twice."""
    broker = make_broker(node_id=journal_files.NODE)
    broker.journal.first_place = 1
    restoring = Restoring(broker, journal_files.NODE)
    job = base(QUEUED_ID, b"q", b"one", retry_ms=3_600_000, flags=IN_QUEUE)
    restoring.block(1, broker.wall_ms - 3_500_000, IS_ALWAYS, [[JOB, job]])
    broker.is_loading = True
    advance(broker, SWEEP_MS)
    restoring.block(1, broker.wall_ms, IS_ALWAYS, [[GONE, (QUEUED_ID, 1)]])
    finish(restoring)
    broker.is_loading = False
    advance(broker, 1_000)
    assert broker.job_count == 0


def test_jobs_come_back_as_they_were():
    broker, restoring = restored([JOB, *bases()])
    assert (broker.job_count, restoring.queued, restoring.lost) == (4, 4, 0)
    job = broker.find(QUEUED_ID)
    assert (job.queue, job.body, job.retry_ms, job.state, job.place) == (b"q", b"one", 30_000, QUEUED, 1)
    assert job.expire_at_ms == broker.now_ms + 3_600_000
    recount(broker)


@pytest.mark.parametrize("version", [1, 2])
def test_all_versions_of_the_format_are_understood(version):
    """The first had no counters in a state."""
    data = journal_files.segment(version)
    broker = make_broker(node_id=journal_files.NODE)
    restoring = Restoring(broker, journal_files.NODE)
    position = 0
    while (block := decode_block(data, decode_header("x", data).size + position, position)) is not None:
        restoring.block(1, block.wall_ms, block.flags, block.runs)
        position += block.size
    assert broker.find(GONE_ID) is None
    assert broker.find(ACKED_ID).state == ACKED
    assert {node.id for node in broker.find(ACKED_ID).holders} == {journal_files.NODE, journal_files.OTHER}
    job = broker.find(QUEUED_ID)
    assert (job.attempt, job.nacks, job.deliveries) == ((1, 0, 0) if version == 1 else (1, 2, 3))
    assert restoring.pauses == {b"q": (1, journal_files.WALL_MS, journal_files.OTHER, 1)}


def test_spans_go_on_from_where_they_were():
    """Time that passed since the record was written counts, and a clock that went back does not (spec T3)."""
    for age_ms, left_ms in ((0, 20_000), (5_000, 15_000), (60_000, 0), (-7_000, 20_000)):
        broker, _ = restored(
            [JOB, base(QUEUED_ID, b"q", b"x", retry_ms=30_000, flags=WAS_QUEUED, due_ms=20_000)], age_ms=age_ms
        )
        job = broker.find(QUEUED_ID)
        assert (job.state, job.requeue_at_ms) == (ACTIVE, broker.now_ms + left_ms or job.requeue_at_ms)
        assert job.expire_at_ms == broker.now_ms + 3_600_000 - max(0, age_ms)


def test_a_job_that_has_expired_meanwhile_is_gone():
    """Spec T5."""
    broker, restoring = restored([JOB, *bases()], age_ms=3_700_000)
    assert (broker.job_count, restoring.expired, broker.stats.jobs_expired) == (0, 4, 4)
    recount(broker)


def test_a_queued_job_without_other_holders_returns_to_its_queue_only_if_that_is_certain():
    """Spec J4."""
    for flags, how, expected in (
        (IS_ALWAYS, {}, QUEUED),
        (0, {"is_certain": True}, QUEUED),
        (0, {}, ACTIVE),
        (IS_ALWAYS, {"is_whole": False}, ACTIVE),
        (IS_ALWAYS, {"is_restored": True}, ACTIVE),
    ):
        broker, _ = restored([JOB, *bases()[:1]], flags=flags, **how)
        job = broker.find(QUEUED_ID)
        assert job.state == expected
        assert expected == QUEUED or job.requeue_at_ms == broker.now_ms + 30_000


def test_a_job_with_other_holders_asks_them_first():
    record = base(QUEUED_ID, b"q", b"x", retry_ms=30_000, flags=IN_QUEUE)
    record[4] = journal_files.NODE + journal_files.OTHER
    broker, restoring = restored([JOB, record])
    job = broker.find(QUEUED_ID)
    assert (job.state, job.was_announced, restoring.waiting) == (ACTIVE, False, 1)
    assert broker.now_ms < job.requeue_at_ms <= broker.now_ms + 3_000


@pytest.mark.parametrize("is_done", [True, False])
def test_a_job_that_is_overdue_is_queued_after_its_holders_were_asked(is_done):
    """Its RETRY ran out while the node was down, and perhaps it was acknowledged elsewhere meanwhile."""
    record = base(QUEUED_ID, b"q", b"x", retry_ms=30_000, flags=IN_QUEUE)
    record[4] = journal_files.NODE + journal_files.OTHER
    broker, _ = restored([JOB, record], age_ms=100_000)
    other = add_node(broker, journal_files.OTHER[0])
    advance(broker, 2_400)
    assert sent_of(broker, WILLQUEUE) == []
    advance(broker, 200)
    assert sent_of(broker, WILLQUEUE) == [((other,), (QUEUED_ID, 0))]
    if is_done:
        say(broker, other, SETACK, (QUEUED_ID, pack(other)))
    advance(broker, 600)
    assert broker.find(QUEUED_ID).state == (ACKED if is_done else QUEUED)


def test_an_overdue_job_that_no_other_node_has_is_queued_at_once():
    """No node can be asked."""
    broker, _ = restored([JOB, base(QUEUED_ID, b"q", b"x", retry_ms=30_000, flags=IN_QUEUE)], age_ms=100_000)
    assert broker.find(QUEUED_ID).state == QUEUED


def test_an_at_most_once_job_is_queued_again_only_if_it_is_certain_that_it_never_left():
    """An uncertain job is visible, counted, and recorded as delivered. Spec O4, O2."""
    for flags, how, is_sure in (
        (IS_ALWAYS, {}, True),
        (0, {"is_certain": True}, True),
        (0, {}, False),
        (IS_ALWAYS, {"is_whole": False}, False),
        (IS_ALWAYS, {"is_restored": True, "is_certain": True}, False),
        (0, {"wants_queues": True}, False),
    ):
        broker, restoring = restored([JOB, *bases()[3:]], flags=flags, **how)
        job = broker.find(ONCE_ID)
        assert (job.state == QUEUED, restoring.lost) == (is_sure, int(not is_sure))
        assert broker.stats.once_lost_in_restart == restoring.lost
        assert job.is_delivered is not is_sure
        assert is_sure or broker.dirty == [job]
        recount(broker)


def test_always_must_have_been_in_force_since_the_job_came():
    """A block without `always` makes all earlier jobs uncertain, but no later ones."""
    for first, second, expected in ((IS_ALWAYS, 0, False), (0, IS_ALWAYS, True)):
        broker = make_broker(node_id=journal_files.NODE)
        restoring = Restoring(broker, journal_files.NODE)
        restoring.block(1, broker.wall_ms, first, [] if expected else [[JOB, *bases()[3:]]])
        restoring.block(1, broker.wall_ms, second, [[JOB, *bases()[3:]]] if expected else [])
        finish(restoring)
        assert (broker.find(ONCE_ID).state == QUEUED) is expected


def test_a_delivered_at_most_once_job_is_never_queued_again():
    delivered = [STATE, (ONCE_ID, state(IS_DELIVERED | WAS_QUEUED, -1), None)]
    broker, restoring = restored([JOB, *bases()[3:]], delivered, is_certain=True)
    job = broker.find(ONCE_ID)
    assert (job.state, job.is_delivered, restoring.lost) == (ACTIVE, True, 0)
    recount(broker)


def test_an_at_most_once_job_in_a_hand_over_is_not_queued_and_counts_as_lost():
    given = [STATE, (ONCE_ID, state(layouts.IS_GIVEN | WAS_QUEUED, -1), None)]
    broker, _ = restored([JOB, *bases()[3:]], given, is_certain=True)
    assert (broker.find(ONCE_ID).is_delivered, broker.stats.once_lost_in_handover) == (True, 1)


def test_the_controlled_restart_brings_back_queues():
    broker, restoring = restored([JOB, *bases()], flags=0, is_certain=True, wants_queues=True)
    assert (restoring.queued, len(queue_of(broker)), queue_of(broker, b"once")) == (4, 3, [ONCE_ID])


def test_the_last_base_counts_and_the_segment_of_the_one_before_is_stale():
    broker = make_broker(node_id=journal_files.NODE)
    restoring = Restoring(broker, journal_files.NODE)
    for number in (1, 4):
        restoring.block(number, broker.wall_ms, 0, [[JOB, *bases()[:2]]])
    assert (restoring.stale, broker.job_count, broker.find(QUEUED_ID).place) == ({1}, 2, 4)
    finish(restoring)
    recount(broker)


def test_an_end_with_another_base_shows_that_the_known_one_is_stale():
    broker = make_broker(node_id=journal_files.NODE)
    restoring = Restoring(broker, journal_files.NODE)
    restoring.block(1, broker.wall_ms, 0, [[JOB, *bases()[:1]]])
    restoring.block(9, broker.wall_ms, 0, [[GONE, (QUEUED_ID, 4)]])
    assert (restoring.stale, broker.job_count) == ({1}, 0)


def test_jobs_in_a_dropped_segment_that_is_still_there_are_over():
    """It could not be removed; its living records were written again before it was dropped."""
    broker = make_broker(node_id=journal_files.NODE)
    restoring = Restoring(broker, journal_files.NODE)
    restoring.block(1, broker.wall_ms, 0, [[JOB, *bases()[:2]], [PAUSE, (b"q", 1, 0, b"")]])
    restoring.block(2, broker.wall_ms, 0, [[JOB, bases()[1]], [DROPPED, 1]])
    finish(restoring)
    assert (broker.find(QUEUED_ID), broker.find(ACKED_ID).place) == (None, 2)
    assert b"q" not in broker.queues or not broker.queues[b"q"].paused
    recount(broker)


@pytest.mark.parametrize("is_dropped", [False, True])
def test_tokens_and_keys_of_a_dropped_segment_are_over_too(is_dropped):
    """Records that still counted were written again; these were not."""
    broker = make_broker(node_id=journal_files.NODE)
    restoring = Restoring(broker, journal_files.NODE)
    leased = journal_files.base(
        QUEUED_ID, b"q", b"one", retry_ms=30_000, flags=IS_DELIVERED | journal_files.IS_LEASED, due_ms=9_000
    )
    restoring.block(1, broker.wall_ms, 0, [[TOKEN, (b"t", 0, [(QUEUED_ID, 0)])], [KEY, (GONE_ID, 60_000)]])
    restoring.block(2, broker.wall_ms, 0, [[JOB, leased], *([[DROPPED, 1]] if is_dropped else [])])
    finish(restoring)
    assert list(broker.tokens.by_name) == ([] if is_dropped else [b"t"])
    assert list(broker.producers.keys.over) == ([] if is_dropped else [GONE_ID])


def test_tokens_and_keys_that_were_recorded_again_are_those_of_the_later_record():
    broker = make_broker(node_id=journal_files.NODE)
    restoring = Restoring(broker, journal_files.NODE)
    leased = journal_files.base(
        QUEUED_ID, b"q", b"one", retry_ms=30_000, flags=IS_DELIVERED | journal_files.IS_LEASED, due_ms=9_000
    )
    again = [[TOKEN, (b"t", 0, [(QUEUED_ID, 0)])], [KEY, (GONE_ID, 60_000)]]
    restoring.block(1, broker.wall_ms, 0, [list(run) for run in again])
    restoring.block(2, broker.wall_ms, 0, [[JOB, leased], *again, [DROPPED, 1]])
    finish(restoring)
    assert (broker.tokens.by_name[b"t"].place, broker.producers.keys.over[GONE_ID][1]) == (2, 2)


def test_states_of_jobs_without_a_base_are_ignored():
    """Their base was copied on, with all fields of the state."""
    broker, _ = restored([STATE, (QUEUED_ID, state(1, -1), None)], [GONE, (GONE_ID, 1)])
    assert broker.job_count == 0


def test_pauses_come_back_and_so_do_their_versions():
    broker, _ = restored(
        [PAUSE, (b"q", 1, 0, b""), (b"r", 2, 77, b"n" * 20), (b"s", 1, 0, b"")], [PAUSE, (b"s", 0, 0, b"")]
    )
    assert {name: queue.paused for name, queue in broker.queues.items() if queue.paused} == {b"q": 1, b"r": 2}
    assert (broker.pauses.versions, broker.outbox.pauses) == ({b"r": (2, 77, b"n" * 20)}, {})


def test_a_pause_of_this_node_alone_is_not_taken_for_one_of_all():
    """Spec U2: the version is that of the state set with BCAST, and other nodes hear of that one."""
    broker, _ = restored([PAUSE, (b"q", 3, 77, b"n" * 20, 0)])
    assert broker.queues[b"q"].paused == 3
    assert broker.pauses.versions == {b"q": (0, 77, b"n" * 20)}


def test_the_former_id_of_the_node_counts_as_its_own():
    """The nodes file was lost, but the journal was not (spec Q21)."""
    broker = make_broker(node_id=ME[::-1])
    restoring = Restoring(broker, journal_files.NODE)
    restoring.block(
        1, broker.wall_ms, IS_ALWAYS, [[JOB, *bases()[:1]], [STATE, (QUEUED_ID, state(17, -1), journal_files.NODE)]]
    )
    assert broker.find(QUEUED_ID).holders is broker.sets.mine


@pytest.mark.parametrize(
    "run",
    [[JOB, [b"x"]], [JOB, (b"x" * 40, b"short", b"", b"", b"", b"")], [STATE, (QUEUED_ID,)], [GONE, 1], [PAUSE, (1,)]],
)
def test_a_malformed_record_is_a_format_error(run):
    broker = make_broker(node_id=journal_files.NODE)
    restoring = Restoring(broker, journal_files.NODE)
    restoring.block(1, broker.wall_ms, 0, [[JOB, *bases()[:1]]])
    with pytest.raises(FormatError, match="a malformed record"):
        restoring.block(1, broker.wall_ms, 0, [run])


def test_kinds_of_a_later_version_are_skipped():
    broker, _ = restored([99, "what", "ever"], [JOB, *bases()[:1]])
    assert broker.job_count == 1


def test_many_jobs_are_put_in_place_in_parts():
    broker = make_broker(node_id=journal_files.NODE)
    restoring = Restoring(broker, journal_files.NODE)
    ids = [b"D-00010203-" + b"%024d" % number + b"-0001" for number in range(2_500)]
    restoring.block(1, broker.wall_ms, 1, [[JOB, *(base(each, b"q", b"", retry_ms=9_000, flags=17) for each in ids)]])
    parts = sum(1 for _ in restoring.finish(is_certain=True, is_whole=True, is_restored=False, wants_queues=False))
    assert (parts, broker.queues[b"q"].length) == (3, 2_500)
    pass_time(broker, 1)


def test_jobs_that_a_cut_off_journal_knows_as_undelivered_are_given_up():
    broker = make_broker()
    broker.journal.first_place = 1
    add_node(broker)
    known, new = (hold_queued(broker, number=number, retry_s=0) for number in (1, 2))
    retried = hold_queued(broker, number=3)
    known.place = retried.place = 1
    broker.journal.live_bytes[1] = journaling.base_bytes(known) + journaling.base_bytes(retried)
    broker.journal.live_records[1] = 2
    give_up_once(broker)
    assert (known.is_delivered, known.state, new.state, retried.state) == (True, ACTIVE, QUEUED, QUEUED)
    assert broker.stats.once_lost_in_restart == 1
    recount(broker)


def test_an_acked_base_may_be_the_first_of_its_segment():
    """It has no living record, but the segment is there (found by the simulator)."""
    acked = base(ACKED_ID, b"q", b"two", retry_ms=30_000, flags=layouts.IS_ACKED | WAS_QUEUED)
    broker, _ = restored([JOB, acked], number=6)
    assert broker.find(ACKED_ID).state == ACKED
    assert 6 in broker.journal.live_bytes
    recount(broker)


def test_a_job_that_waited_in_its_queue_is_pending_after_a_crash_however_often_it_was_delivered():
    """It comes back when its RETRY is over, and no worker has it until then."""
    node = JournaledNode(appendfsync="everysec")
    node.settle()
    job_id = node.answer("ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 100)
    node.answer("GETJOB", "FROM", "q")
    node.answer("NACK", job_id)
    node.settle()
    node = node.restart()
    shown = node.answer("SHOW", job_id)
    assert shown[shown.index(b"status") + 1] == b"pending"


@pytest.mark.parametrize("words", [("PAUSE", "q", "in"), ()])
def test_a_job_that_no_worker_has_is_invisible_after_a_restart(words):
    """Spec U2, Z2: it waits for the end of a pause or was taken out by DEQUEUE, and no other node holds it."""
    node = JournaledNode()
    node.settle(10)
    job_id = node.answer("ADDJOB", "q", "x", 0)
    if words:
        node.answer("GETJOB", "FROM", "q")
        node.answer(*words)
    assert node.answer("NACK" if words else "DEQUEUE", job_id) == 1
    node.settle(10)
    node = node.restart()
    shown = node.answer("SHOW", job_id)
    assert dict(zip(shown[::2], shown[1::2], strict=True))[b"status"] == b"invisible"
    assert [node.answer("QLEN", "q", "STATUS", status) for status in ("invisible", "running")] == [1, 0]
