"""Detection of the node that feeds a consumer."""

from __future__ import annotations

from disque_py.client.feed import PAUSE_S_MAX, PAUSE_S_MIN, WINDOW_JOBS, FeedWatch

HERE, THERE = "aaaaaaaa", "bbbbbbbb"


def ids(prefix, count=WINDOW_JOBS):
    return [f"D-{prefix}-{'x' * 24}-05a1"] * count


def test_a_window_of_jobs_from_one_other_node_causes_a_move():
    """Each of these jobs crossed the cluster first. Spec X4."""
    assert FeedWatch().count_jobs(ids(THERE), HERE, 0.0) == THERE


def test_fewer_jobs_than_a_window_cause_no_move():
    """They count towards the window that is open."""
    watch = FeedWatch()
    assert watch.count_jobs(ids(THERE, WINDOW_JOBS - 1), HERE, 0.0) == ""
    assert watch.count_jobs(ids(THERE, 1), HERE, 0.0) == THERE


def test_jobs_made_on_the_consumers_node_cause_no_move():
    """Jobs from mixed sources cause no move either, because no other node is better."""
    assert FeedWatch().count_jobs(ids(HERE), HERE, 0.0) == ""
    assert FeedWatch().count_jobs(ids(THERE, 120) + ids(HERE, 80), HERE, 0.0) == ""


def test_old_traffic_does_not_count():
    """Counting starts anew with every window."""
    watch = FeedWatch()
    for _ in range(10):
        watch.count_jobs(ids(HERE), HERE, 0.0)
    assert watch.count_jobs(ids(THERE), HERE, 0.0) == THERE


def test_a_move_is_followed_by_a_pause():
    """The next window causes no move, whatever its jobs."""
    watch = FeedWatch()
    watch.moved(100.0)
    assert watch.count_jobs(ids(HERE), THERE, 100.0 + PAUSE_S_MIN / 2) == ""
    assert watch.count_jobs(ids(HERE), THERE, 100.0 + PAUSE_S_MIN) == HERE


def test_alternating_producers_stop_attracting_consumers():
    """Each move soon after the last one doubles the pause, up to a limit."""
    watch = FeedWatch()
    now, moves = 0.0, 0
    here, there = HERE, THERE
    while now < 3_600:
        if watch.count_jobs(ids(there), here, now):
            watch.moved(now)
            here, there = there, here
            moves += 1
        now += 1.0
    assert moves < 12
    assert watch.count_jobs(ids(there), here, now + PAUSE_S_MAX) == there


def test_settled_producers_make_the_pause_short_again():
    """After a time without a move, the next pause has its minimum again."""
    watch = FeedWatch()
    watch.moved(0.0)
    watch.moved(PAUSE_S_MIN)
    watch.moved(10_000.0)
    assert watch.count_jobs(ids(THERE), HERE, 10_000.0 + PAUSE_S_MIN) == THERE
