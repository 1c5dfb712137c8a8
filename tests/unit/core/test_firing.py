"""core/firing.py: one job for each tick, on the node whose turn it is."""

from __future__ import annotations

import pytest

from cluster_bus.node import LEAVING
from disque_py.core import firing, timers
from disque_py.core.queue_settings import SCHEDULE, state_key
from disque_py.core.recurring import PROGRESS, Progress
from tests.support.brokers import WALL_MS, add_node, ask, host_of, make_broker, make_client, pass_time

MINUTE = 60_000
# The first full minute behind the start.
FIRST = (WALL_MS // MINUTE + 1) * MINUTE


@pytest.fixture
def broker():
    return make_broker()


def set_schedule(broker, *words, name="s", every="60s"):
    """A schedule of every minute, or another one."""
    assert ask(broker, make_client(broker), "SCHEDULE", "SET", name, "EVERY", every, *words, "QUEUE", "q") == b"+OK\r\n"
    run(broker, 1, step_ms=1)


def run(broker, span_ms, step_ms=100):
    """Let time pass, a tick of the broker at a time, and release the replies to its own ADDJOBs."""
    end_ms = broker.now_ms + span_ms
    while broker.now_ms < end_ms:
        pass_time(broker, min(step_ms, end_ms - broker.now_ms))
        for _ in range(30):
            timers.tick(broker)
            clients, broker.outbox.clients = broker.outbox.clients, {}
            for client in clients:
                client.port.wake()
            if not clients and not broker.recurring.answered:
                break


def jump(broker, span_ms):
    """Set the wall clock, and let time pass."""
    broker.wall_ms += span_ms
    broker.cluster.wall_ms += span_ms
    run(broker, 1_000)


def until(broker, wall_ms):
    """Let time pass up to a moment of the wall clock."""
    run(broker, wall_ms - broker.wall_ms, step_ms=1_000)


def ticks_fired(broker):
    """The ticks of all jobs, in order."""
    jobs = [job for shard in broker.shards for job in shard.values()]
    return sorted(int(dict(zip(job.meta[::2], job.meta[1::2], strict=True))[b"x-disque-tick"]) for job in jobs)


def progress_of(broker, name=b"s"):
    """Return the progress of a schedule."""
    return broker.recurring.known[name].progress


def test_a_tick_makes_one_job(broker):
    """Spec SD4: with the schedule and the planned moment in its META."""
    set_schedule(broker, "CATCHUP", "last")
    until(broker, FIRST - 1)
    assert ticks_fired(broker) == []
    until(broker, FIRST + 1_000)
    assert ticks_fired(broker) == [FIRST]
    assert progress_of(broker)[1:] == (FIRST, progress_of(broker).job_id, 1, 0)
    job = broker.find(progress_of(broker).job_id)
    assert job.meta == (b"x-disque-schedule", b"s", b"x-disque-tick", b"%d" % FIRST)


def test_a_tick_is_fired_within_a_millisecond_of_its_moment(broker):
    """Spec SD4: the node wakes for it."""
    set_schedule(broker)
    until(broker, FIRST - 60)
    run(broker, 60, step_ms=1)
    assert ticks_fired(broker) == [FIRST]


def test_nodes_wait_for_those_that_rank_before_them(broker):
    """Spec SD6: half a second for each, unless they have heard of the tick."""
    broker.settings.replicate_default = 1
    for number in (2, 3, 4):
        add_node(broker, number, is_linked=False)
    names = [b"n%d" % number for number in range(40)]
    ranks = {firing.rank_of(broker, name): name for name in names}
    assert sorted(ranks) == [0, 1, 2, 3]
    for rank, name in ranks.items():
        broker.recurring.known.clear()
        set_schedule(broker, name=name.decode())
        first = broker.recurring.known[name].next_ms
        until(broker, first + rank * 500 - 150)
        assert progress_of(broker, name).fired == 0
        run(broker, 300, step_ms=10)
        assert [rank, progress_of(broker, name).last_ms] == [rank, first]


def test_leaving_nodes_have_no_rank(broker):
    """Spec SD6."""
    nodes = [add_node(broker, number) for number in (2, 3, 4)]
    name = next(b"n%d" % number for number in range(100) if firing.rank_of(broker, b"n%d" % number) == 3)
    nodes[0].flags |= LEAVING
    assert firing.rank_of(broker, name) == 2


def test_a_leaving_node_does_not_fire(broker):
    """Spec SD6."""
    set_schedule(broker)
    broker.me.flags |= LEAVING
    until(broker, FIRST + 3_000)
    assert ticks_fired(broker) == []
    broker.me.flags &= ~LEAVING
    run(broker, 200)
    assert ticks_fired(broker) == [FIRST]


def test_a_node_that_heard_of_a_tick_does_not_fire_it(broker):
    """Spec SD5, SD6."""
    set_schedule(broker)
    generation = progress_of(broker).generation
    told = Progress(generation, FIRST, b"D-x", 1, 0)
    broker.queue_settings.merge((state_key(SCHEDULE, b"s"), PROGRESS, told.pack(), 9, b"o" * 20))
    until(broker, FIRST + 10_000)
    assert ticks_fired(broker) == []
    assert progress_of(broker) == told


def test_the_last_recorded_tick_never_falls(broker):
    """Spec SD5: a node that tells less is told more."""
    set_schedule(broker)
    until(broker, FIRST + 1_000)
    ours = progress_of(broker)
    key = state_key(SCHEDULE, b"s")
    less = Progress(ours.generation, FIRST - MINUTE, b"D-x", 1, 0)
    broker.queue_settings.merge((key, PROGRESS, less.pack(), 1_000, b"o" * 20))
    run(broker, 100)
    assert progress_of(broker) == ours
    assert broker.queue_settings.states[key].fields[PROGRESS][0] == ours.pack()


def test_the_last_recorded_tick_survives_a_restart(broker):
    """Spec SD5: it is in the file of settings."""
    set_schedule(broker)
    until(broker, FIRST + 1_000)
    again = make_broker()
    again.wall_ms = broker.wall_ms - 30_000  # And its wall clock went back.
    again.queue_settings.load(host_of(broker).settings_file)
    run(again, 35_000)
    assert progress_of(again) == progress_of(broker)
    assert ticks_fired(again) == []


def test_a_wall_clock_that_goes_back_fires_nothing_again(broker):
    """Spec SD7."""
    set_schedule(broker)
    until(broker, FIRST + 1_000)
    jump(broker, -10 * MINUTE)
    run(broker, 2 * MINUTE, step_ms=1_000)
    assert ticks_fired(broker) == [FIRST]
    until(broker, FIRST + MINUTE + 1_000)
    assert ticks_fired(broker) == [FIRST, FIRST + MINUTE]


@pytest.mark.parametrize(
    ("catchup", "caught_up", "missed"),
    [("none", [], 9), ("last", [FIRST + 8 * MINUTE], 8), ("all", [FIRST + n * MINUTE for n in range(9)], 0)],
)
def test_a_wall_clock_that_jumps_ahead_makes_ticks_missed(broker, catchup, caught_up, missed):
    """Spec SD7, SD8: ten ticks are passed, and the last of them is late by less than a minute."""
    set_schedule(broker, "CATCHUP", catchup)
    jump(broker, FIRST - broker.wall_ms + 9 * MINUTE + 30_000)
    run(broker, 2_000)
    assert ticks_fired(broker) == [*caught_up, FIRST + 9 * MINUTE]
    assert progress_of(broker).fired == len(caught_up) + 1
    assert progress_of(broker).missed == missed


def test_catchup_all_has_a_bound(broker):
    """Spec SD8: the oldest of more than a thousand are missed."""
    set_schedule(broker, "CATCHUP", "all")
    jump(broker, FIRST - broker.wall_ms + 1_099 * MINUTE + 1_000)
    run(broker, 60_000)
    assert len(ticks_fired(broker)) in (1_001, 1_002)
    assert progress_of(broker).missed + progress_of(broker).fired == 1_101
    assert ticks_fired(broker)[-1] == FIRST + 1_100 * MINUTE


def test_a_tick_that_is_late_by_less_than_a_minute_is_not_missed(broker):
    """Spec SD7."""
    set_schedule(broker, "CATCHUP", "none", every="10s")
    first = broker.recurring.known[b"s"].next_ms
    jump(broker, first - broker.wall_ms + 57_000)
    run(broker, 1_000)
    assert ticks_fired(broker) == [first + n * 10_000 for n in range(6)]
    assert progress_of(broker).missed == 0


def test_ticks_of_a_pause_are_neither_fired_nor_missed(broker):
    """Spec SD7."""
    client = make_client(broker)
    set_schedule(broker, "CATCHUP", "all")
    ask(broker, client, "SCHEDULE", "PAUSE", "s")
    until(broker, FIRST + 5 * MINUTE + 1_000)
    assert ticks_fired(broker) == []
    ask(broker, client, "SCHEDULE", "RESUME", "s")
    until(broker, FIRST + 6 * MINUTE + 1_000)
    assert ticks_fired(broker) == [FIRST + 6 * MINUTE]
    assert progress_of(broker).missed == 0


def test_an_addjob_that_fails_is_tried_for_a_minute(broker):
    """Spec SD9: then the tick is missed."""
    client = make_client(broker)
    set_schedule(broker, "CATCHUP", "none", every="1h")
    first = broker.recurring.known[b"s"].next_ms
    ask(broker, client, "PAUSE", "q", "in")
    until(broker, first + 30_000)
    assert progress_of(broker).missed == 0
    assert any("PAUSED" in str(call) for call in host_of(broker).calls if call[0] == "log")
    ask(broker, client, "PAUSE", "q", "none")
    run(broker, 2_000)
    assert [progress_of(broker).fired, progress_of(broker).missed] == [1, 0]
    ask(broker, client, "PAUSE", "q", "in")
    until(broker, first + 3_600_000 + 62_000)
    assert [progress_of(broker).fired, progress_of(broker).missed] == [1, 1]


def test_overlap_skip_waits_for_the_job_before(broker):
    """Spec SD8: while it is neither over nor errored, ticks are missed."""
    client = make_client(broker)
    set_schedule(broker, "OVERLAP", "skip")
    until(broker, FIRST + 2 * MINUTE + 1_000)
    assert ticks_fired(broker) == [FIRST]
    assert [progress_of(broker).fired, progress_of(broker).missed] == [1, 2]
    ask(broker, client, "ACKJOB", progress_of(broker).job_id)
    until(broker, FIRST + 3 * MINUTE + 1_000)
    assert ticks_fired(broker)[-1] == FIRST + 3 * MINUTE


def test_overlap_skip_does_not_wait_for_a_dead_letter(broker):
    """Spec SD8: it failed, as an errored job has."""
    client = make_client(broker)
    assert ask(broker, client, "QUEUE", "SET", "q", "DEAD-LETTER", "dead", "ATTEMPTS", 1) == b"+OK\r\n"
    set_schedule(broker, "OVERLAP", "skip")
    until(broker, FIRST + 1_000)
    ask(broker, client, "GETJOB", "NOHANG", "FROM", "q")
    ask(broker, client, "NACK", progress_of(broker).job_id)
    assert broker.queues[b"dead"].length == 1
    until(broker, FIRST + MINUTE + 1_000)
    assert ticks_fired(broker) == [FIRST, FIRST + MINUTE]


def test_a_new_generation_has_the_ticks_after_its_set(broker):
    """Spec SD5: and a progress of its own."""
    set_schedule(broker)
    until(broker, FIRST + 1_000)
    set_schedule(broker)
    assert progress_of(broker)[1:] == (0, b"", 0, 0)
    until(broker, FIRST + MINUTE + 1_000)
    assert ticks_fired(broker) == [FIRST, FIRST + MINUTE]


def test_a_schedule_that_is_deleted_fires_no_more(broker):
    set_schedule(broker)
    ask(broker, make_client(broker), "SCHEDULE", "DEL", "s")
    until(broker, FIRST + MINUTE)
    assert ticks_fired(broker) == []
    assert broker.recurring.known == {}


def test_a_node_that_starts_hears_of_others_first(broker):
    """Spec SD6: up to two seconds, as for all settings."""
    set_schedule(broker)
    until(broker, FIRST - 500)
    broker.queue_settings.exchange.wait_until_ms = broker.now_ms + 2_000
    run(broker, 1_500)
    assert ticks_fired(broker) == []
    run(broker, 1_000)
    assert ticks_fired(broker) == [FIRST]


def test_ten_thousand_schedules_are_planned_in_parts(broker):
    """Spec SD11: a turn does a bounded part, and a turn without a due tick does nothing."""
    client = make_client(broker)
    for number in range(300):
        ask(broker, client, "SCHEDULE", "SET", f"s{number}", "EVERY", "1h", "QUEUE", "q")
    assert len(broker.recurring.unplanned) == 300
    timers.tick(broker)
    pass_time(broker, 1)
    timers.tick(broker)
    assert len(broker.recurring.unplanned) < 300
    run(broker, 1_000)
    assert broker.recurring.unplanned == {}
    assert len(broker.recurring.due) == 300


def test_malformed_states_are_not_schedules(broker):
    """Spec SD5."""
    key = state_key(SCHEDULE, b"s")
    for number, value in enumerate((b"\xc1", b"\x91\x01", b"abc", Progress(1, 2, b"", 3, 4).pack())):
        broker.queue_settings.merge((key, b"spec", value, number + 1, b"o" * 20))
        run(broker, 100)
        assert broker.recurring.known == {}


def test_few_wrong_names_of_time_zones_are_remembered():
    broker = make_broker()
    client = make_client(broker)
    for name in [*[f"No/Zone{number}" for number in range(1_200)], "x" * 100_000]:
        ask(broker, client, "SCHEDULE", "SET", "s", "CRON", "* * * * *", "TZ", name, "QUEUE", "q")
    assert len(broker.recurring.zones) == 1_000
    assert max(len(name) for name in broker.recurring.zones) < 64
