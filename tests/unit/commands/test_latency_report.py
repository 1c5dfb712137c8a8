"""The chart and the advice of LATENCY."""

from __future__ import annotations

import pytest

from brokers import make_broker
from disque_py.commands.latency_report import advice, age, chart
from disque_py.core.stats import LatencySeries


def series_of(*samples):
    series = LatencySeries()
    for wall_s, ms in samples:
        series.add(wall_s, ms)
    return series


def test_a_chart_has_a_headline_four_rows_and_ages_written_downwards():
    series = series_of((100, 10), (150, 40), (160, 100), (170, 70))
    assert chart("command", series, 172).splitlines() == [
        "command - high 100 ms, low 10 ms (all time high 100 ms)",
        "-" * 80,
        "  # ",
        "  |#",
        " o||",
        "_|||",
        "",
        "1212",
        "m22s",
        " ss ",
    ]


def test_a_flat_series_is_a_line_at_the_bottom():
    rows = chart("command", series_of((1, 50), (2, 50)), 3).splitlines()[2:6]
    assert rows == ["  ", "  ", "  ", "__"]


def test_more_than_eighty_samples_make_two_blocks():
    lines = chart("command", series_of(*((second, second % 7) for second in range(100))), 100).splitlines()
    assert [len(line) for line in lines[2:6]] == [80] * 4
    assert [len(line) for line in lines[10:14]] == [20] * 4


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (7200, "2h"), (200_000, "2d"), (-5, "0s")]
)
def test_ages_have_units(seconds, text):
    assert age(seconds) == text


def test_the_doctor_says_when_nothing_is_recorded():
    assert "monitoring is off" in advice(make_broker())
    assert "Nothing took 50 milliseconds" in advice(make_broker(latency_monitor_threshold=50))


def test_the_doctor_gives_the_figures_of_each_event():
    broker = make_broker(latency_monitor_threshold=10)
    for wall_s, ms in ((100, 20), (110, 40), (120, 30)):
        broker.stats.log_latency("command", ms, wall_s)
    text = advice(broker)
    assert (
        "1. command: 3 spikes (average 30 ms, mean deviation 7 ms, one every 10.0 s). Worst of all time: 40 ms." in text
    )
    assert "SLOWLOG GET" in text


def test_the_doctor_mentions_only_what_happened():
    broker = make_broker(latency_monitor_threshold=10, slowlog_log_slower_than=-1, loglevel="debug")
    broker.stats.log_latency("jobs-processing", 20, 1)
    text = advice(broker)
    assert "due at the same moment" in text
    assert "SLOWLOG" not in text
    assert "loglevel is debug" in text
