"""LATENCY GRAPH and DOCTOR: samples as a chart in characters and as advice.

The chart has four rows of three heights each, filled from below, in blocks of 80 columns. Under each column the age of
its sample is written downwards. The advice explains the numbers, and lists possible causes of such an event in this
server. Its wording may change (spec R8).
"""

from __future__ import annotations

from typing import Final

from disque_py.core.broker import Broker
from disque_py.core.stats import LatencySeries

CHART_ROWS: Final = 4
CHART_COLUMNS: Final = 80
HEIGHTS: Final = "_o#"  # Low, middle and top of a row.
FILLED: Final = "|"

AGE_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def chart(event: str, series: LatencySeries, wall_s: int) -> str:
    """Return the chart of one event. `wall_s` is the present."""
    samples = list(series.samples)
    values = [ms for _, ms in samples]
    low, high = min(values), max(values)
    lines = [
        f"{event} - high {high} ms, low {low} ms (all time high {series.worst_ms} ms)",
        "-" * CHART_COLUMNS,
    ]
    for at in range(0, len(samples), CHART_COLUMNS):
        block = samples[at : at + CHART_COLUMNS]
        steps = [_step(ms, low, high) for _, ms in block]
        lines += ["".join(_glyph(step, row) for step in steps) for row in range(CHART_ROWS)]
        lines.append("")
        lines += _labels([age(wall_s - sampled_s) for sampled_s, _ in block])
    return "\n".join(lines) + "\n"


def _step(value: int, low: int, high: int) -> int:
    """Return the height of a column, counted from 0."""
    steps = CHART_ROWS * len(HEIGHTS)
    return min((value - low) * steps // max(1, high - low), steps - 1)


def _glyph(step: int, row: int) -> str:
    """Return the character of a column in a row. Rows count from the top."""
    above = step - (CHART_ROWS - 1 - row) * len(HEIGHTS)
    if above < 0:
        return " "
    return HEIGHTS[above] if above < len(HEIGHTS) else FILLED


def _labels(labels: list[str]) -> list[str]:
    """Return texts written downwards, one per column."""
    longest = max(len(label) for label in labels)
    return ["".join(label.ljust(longest)[at] for label in labels) for at in range(longest)]


def age(seconds: int) -> str:
    """`12s`, `3m`, `2h`, `1d`: the largest unit that fits."""
    for unit_s, letter in AGE_UNITS:
        if seconds >= unit_s:
            return f"{seconds // unit_s}{letter}"
    return "0s"


def advice(broker: Broker) -> str:
    """Return the text of DOCTOR."""
    threshold_ms = broker.settings.latency_monitor_threshold
    events = broker.stats.latency
    if not threshold_ms and not events:
        return (
            "Latency monitoring is off: nothing is recorded. CONFIG SET latency-monitor-threshold <milliseconds> turns"
            " it on; events that take at least that long are then remembered. 100 is a good start.\n"
        )
    if not events:
        return f"Nothing took {threshold_ms} milliseconds or more since latency was last reset. All is well.\n"
    lines = ["Events that took long on this node:", ""]
    for number, (event, series) in enumerate(events.items(), 1):
        lines.append(f"{number}. {event}: {_summary(series)}")
    lines += ["", "What may help:", ""]
    lines += [f"- {hint}" for hint in _hints(broker)]
    return "\n".join(lines) + "\n"


def _summary(series: LatencySeries) -> str:
    """Return count, average, mean deviation, period and worst sample, in words."""
    values = [ms for _, ms in series.samples]
    average = sum(values) / len(values)
    deviation = sum(abs(value - average) for value in values) / len(values)
    text = f"{len(values)} {'spike' if len(values) == 1 else 'spikes'}"
    text += f" (average {average:.0f} ms, mean deviation {deviation:.0f} ms"
    if len(values) > 1:
        period_s = (series.samples[-1][0] - series.samples[0][0]) / (len(values) - 1)
        text += f", one every {period_s:.1f} s"
    return f"{text}). Worst of all time: {series.worst_ms} ms."


def _hints(broker: Broker) -> list[str]:
    events = broker.stats.latency
    settings = broker.settings
    hints = []
    if "command" in events:
        if settings.slowlog_log_slower_than < 0:
            hints.append(
                "CONFIG SET slowlog-log-slower-than 10000 turns the slow log on; it shows which commands it was."
            )
        else:
            hints.append("SLOWLOG GET shows which commands took long.")
        hints.append(
            "Commands without the flag `fast` look at many items: QPEEK and JSCAN or QSCAN with a large COUNT, or with"
            " BUSYLOOP, DEBUG FLUSHALL and CLUSTER RESET. Ask for less at a time."
        )
    if "fast-command" in events:
        hints.append(
            "Fast commands do little work each; when they take long, the process did not get the processor. Look for"
            " other processes on the same cores, for swapping (used_memory_rss in INFO, `vmstat 1`), and, on virtual"
            " machines, for stolen time."
        )
        hints.append("GETJOB with a large COUNT and jobs with bodies of megabytes take their time, too.")
    if "jobs-processing" in events:
        hints.append(
            "Many jobs were due at the same moment: spread DELAY, RETRY and TTL of jobs that are added together."
        )
    if "eviction-cycle" in events:
        hints.append(
            "Memory is nearly full and room had to be made while a client waited. Raise maxmemory, add nodes, or add"
            " consumers; INFO memory and INFO jobs tell what fills it."
        )
    if settings.loglevel == "debug":
        hints.append("loglevel is debug; notice costs less.")
    if not hints:
        hints.append("No advice for these events.")
    return hints
