"""persistence/patience.py: a quick disk is waited for, and a slow one only now and then."""

from __future__ import annotations

from persistence.patience import AVERAGE_S_MAX, LIMIT_S, PAUSE_S_MAX, PAUSE_S_MIN, Patience


def waits_until_pause(patience: Patience, now_s: float, wait_s: float) -> tuple[int, float]:
    """Wait until there is a pause. Return the number of waits, and when the pause began."""
    count = 0
    while patience.limit_s(now_s):
        patience.waited(now_s, now_s + wait_s)
        now_s += wait_s
        count += 1
        assert count < 10_000
    return count, now_s


def pause_s(patience: Patience, now_s: float) -> float:
    """Return the length of the pause that has begun."""
    step_s = 0.01
    steps = 0
    while not patience.limit_s(now_s + steps * step_s):
        steps += 1
    return steps * step_s


def test_a_quick_disk_is_always_waited_for():
    patience = Patience()
    for number in range(10_000):
        now_s = number * 0.001
        assert patience.limit_s(now_s) == LIMIT_S
        patience.waited(now_s, now_s + AVERAGE_S_MAX * (2 if number % 3 == 0 else 0.4))


def test_single_slow_writes_of_a_quick_disk_make_no_pause():
    patience = Patience()
    for number in range(1_000):
        now_s = number * 0.01
        assert patience.limit_s(now_s) == LIMIT_S
        patience.waited(now_s, now_s + (LIMIT_S if number % 20 == 0 else 0.0002))


def test_a_disk_that_hangs_is_waited_for_a_few_times_only_and_the_pauses_become_longer():
    patience = Patience()
    now_s = 100.0
    lengths = []
    for _ in range(12):
        count, now_s = waits_until_pause(patience, now_s, LIMIT_S)
        assert count * LIMIT_S < 0.1
        lengths.append(pause_s(patience, now_s))
        now_s += lengths[-1]
    assert abs(lengths[0] - PAUSE_S_MIN) < 0.02
    assert lengths == sorted(lengths)
    assert abs(lengths[-1] - PAUSE_S_MAX) < 0.02


def test_after_a_while_with_a_quick_disk_the_next_pause_is_short_again():
    patience = Patience()
    now_s = 0.0
    for _ in range(6):
        _, now_s = waits_until_pause(patience, now_s, LIMIT_S)
        now_s += pause_s(patience, now_s)
    end_s = now_s + PAUSE_S_MAX + 1
    while now_s < end_s:
        patience.waited(now_s, now_s + 0.0001)
        now_s += 0.01
    _, now_s = waits_until_pause(patience, now_s, LIMIT_S)
    assert abs(pause_s(patience, now_s) - PAUSE_S_MIN) < 0.02
