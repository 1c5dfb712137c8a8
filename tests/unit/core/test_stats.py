"""core/stats.py: counters, rates from samples, SLOWLOG and LATENCY."""

from __future__ import annotations

from disque_py.core.stats import LATENCY_SAMPLES_MAX, OPS_SAMPLES, LatencySeries, Stats


def test_without_two_samples_there_is_no_rate():
    stats = Stats()
    assert stats.rates() == (0.0, 0.0, 0.0)
    stats.sample(1000)
    assert stats.rates() == (0.0, 0.0, 0.0)


def test_rates_are_per_second_and_in_kib():
    stats = Stats()
    stats.sample(1000)
    stats.commands_processed, stats.net_input_bytes, stats.net_output_bytes = 50, 2048, 4096
    stats.sample(1500)
    assert stats.rates() == (100.0, 4.0, 8.0)


def test_only_the_last_samples_count():
    """Sixteen spans of 100 ms: a burst two seconds ago is over."""
    stats = Stats()
    stats.sample(0)
    stats.commands_processed = 1_000_000
    for at in range(1, OPS_SAMPLES + 2):
        stats.sample(at * 100)
    assert stats.rates()[0] == 0.0


def test_two_samples_of_one_moment_divide_by_no_zero():
    stats = Stats()
    stats.sample(1000)
    stats.commands_processed = 1
    stats.sample(1000)
    assert stats.rates()[0] == 1000.0


def test_ignored_messages_are_counted_by_reason():
    stats = Stats()
    for reason in ("late", "odd", "late"):
        stats.ignored(reason)
    assert (stats.messages_ignored, stats.reject_reasons) == (3, {"late": 2, "odd": 1})


def test_resetstat_leaves_the_logs_alone():
    """They have commands of their own."""
    stats = Stats()
    stats.jobs_added = 3
    stats.log_slow([b"PING"], 10, 1, 128)
    stats.log_latency("command", 5, 1)
    stats.reset()
    assert (stats.jobs_added, len(stats.slowlog), list(stats.latency)) == (0, 1, ["command"])


def test_the_slow_log_is_newest_first_and_bounded():
    stats = Stats()
    for number in range(5):
        stats.log_slow([b"%d" % number], number, 100 + number, 3)
    assert [(entry[0], entry[3]) for entry in stats.slowlog] == [(4, [b"4"]), (3, [b"3"]), (2, [b"2"])]
    stats.trim_slowlog(1)
    assert len(stats.slowlog) == 1


def test_ids_of_the_slow_log_go_on_after_a_reset():
    stats = Stats()
    stats.log_slow([b"a"], 1, 1, 9)
    stats.slowlog.clear()
    stats.log_slow([b"b"], 1, 1, 9)
    assert stats.slowlog[0][0] == 1


def test_long_commands_are_cut_as_the_original_cuts_them():
    """An entry has at most 32 words; the last tells how many are missing. Long words tell how many bytes are."""
    stats = Stats()
    stats.log_slow([b"%d" % number for number in range(40)], 1, 1, 9)
    kept = stats.slowlog[0][3]
    assert (len(kept), kept[30], kept[31]) == (32, b"30", b"... (9 more arguments)")
    stats.log_slow([b"x" * 128, b"y" * 130], 1, 1, 9)
    assert stats.slowlog[0][3] == [b"x" * 128, b"y" * 128 + b"... (2 more bytes)"]


def test_a_latency_series_keeps_the_worst_of_each_second():
    series = LatencySeries()
    for wall_s, ms in ((1, 5), (1, 9), (1, 7), (2, 3)):
        series.add(wall_s, ms)
    assert (list(series.samples), series.worst_ms) == ([(1, 9), (2, 3)], 9)


def test_a_latency_series_is_bounded_and_remembers_its_record():
    series = LatencySeries()
    for wall_s in range(LATENCY_SAMPLES_MAX + 10):
        series.add(wall_s, 1000 - wall_s)
    assert len(series.samples) == LATENCY_SAMPLES_MAX
    assert series.worst_ms == 1000
