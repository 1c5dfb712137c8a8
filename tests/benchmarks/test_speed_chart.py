"""speed_chart.py: the figures that the README's chart shows."""

from __future__ import annotations

from speed_chart import Bar, bars_of


def summary(contestant, test, cell, *, median):
    return {
        "contestant": contestant,
        "test": test,
        "cell": cell,
        "metrics": {"cpu": {"median": median, "low": median / 2, "high": median * 2}},
    }


def test_bars_are_microseconds_per_request_in_the_order_of_the_legend():
    found = bars_of(
        [
            summary("redis-list", "add", "p=1 c=50", median=0.5),
            summary("disque-py", "cycle", "p=1 c=50", median=2.0),
            summary("disque-py", "add", "p=1 c=50", median=1.0),
            summary("disque-py", "add", "p=16 c=50", median=0.25),
        ],
        "p=1 c=50",
    )
    assert found == [
        Bar("disque-py", "add", 10.0, 5.0, 20.0),
        Bar("disque-py", "cycle", 20.0, 10.0, 40.0),
        Bar("redis-list", "add", 5.0, 2.5, 10.0),
    ]
