"""Counters and samples behind INFO, LATENCY and SLOWLOG.

Counters only count. Rates are computed from two samples, once per 100 ms by the broker's tick, or when a client asks.
"""

from __future__ import annotations

from collections import deque
from typing import Final

OPS_SAMPLES: Final = 16
SLOWLOG_ARGUMENTS_MAX: Final = 32
SLOWLOG_ARGUMENT_BYTES_MAX: Final = 128
LATENCY_SAMPLES_MAX: Final = 160


class Stats:
    """The counters that CONFIG RESETSTAT resets, and the logs behind SLOWLOG and LATENCY."""

    def __init__(self) -> None:
        self.reset()
        self.wrong_password_from = ""  # The client that sent the last wrong password.
        self.foreign_client = ""  # The last client that protected mode refused.
        self.slowlog: deque[tuple[int, int, int, list[bytes]]] = deque()
        self.slowlog_next_id = 0
        self.latency: dict[str, LatencySeries] = {}

    def reset(self) -> None:
        """Set every number back to zero, as CONFIG RESETSTAT does."""
        self.connections_received = 0
        self.connections_rejected = 0  # For any reason.
        self.connections_beyond_maxclients = 0
        self.connections_foreign = 0  # Refused by protected mode.
        self.memory_refusals = 0
        self.wrong_passwords = 0
        self.access_refusals = 0
        self.limit_refusals = 0
        self.commands_processed = 0
        self.net_input_bytes = 0
        self.net_output_bytes = 0
        self.jobs_added = 0
        self.jobs_delivered = 0
        self.jobs_acked = 0
        self.jobs_errored = 0
        self.jobs_dead_lettered = 0
        self.jobs_canceled = 0
        self.jobs_expired = 0
        self.jobs_evicted = 0
        self.results_dropped = 0
        self.jobs_requeued = 0
        self.jobs_nacked = 0
        self.jobs_imported = 0
        self.jobs_exported = 0
        self.replication_timeouts = 0
        self.replication_short_of_nodes = 0  # ADDJOBs refused immediately, because too few nodes can take copies.
        self.replication_short_of_zones = 0
        self.once_lost_in_handover = 0
        self.once_lost_in_restart = 0
        self.once_dropped_leaving = 0
        self.copies_missing_leaving = 0
        self.copies_repaired = 0
        self.repair_refusals = 0
        self.hints_sent = 0
        self.hints_received = 0
        self.pulls_sent = 0
        self.pulls_received = 0
        self.refusals_received = 0
        self.messages_ignored = 0
        self.messages_received = 0
        self.reject_reasons: dict[str, int] = {}
        # Samples every 100 ms: (commands, input bytes, output bytes, monotonic ms).
        self.samples: deque[tuple[int, int, int, int]] = deque(maxlen=OPS_SAMPLES + 1)

    def ignored(self, reason: str) -> None:
        """Count an ignored message. INFO shows the reasons with their counts."""
        self.messages_ignored += 1
        self.reject_reasons[reason] = self.reject_reasons.get(reason, 0) + 1

    def sample(self, now_ms: int) -> None:
        """Remember the current values of the counters."""
        self.samples.append((self.commands_processed, self.net_input_bytes, self.net_output_bytes, now_ms))

    def rates(self) -> tuple[float, float, float]:
        """Return commands per second, input and output KiB per second over the remembered samples."""
        if len(self.samples) < 2:
            return 0.0, 0.0, 0.0
        first, last = self.samples[0], self.samples[-1]
        seconds = max(1, last[3] - first[3]) / 1000
        return (
            (last[0] - first[0]) / seconds,
            (last[1] - first[1]) / seconds / 1024,
            (last[2] - first[2]) / seconds / 1024,
        )

    def log_slow(self, argv: list[bytes], usec: int, wall_s: int, entries_max: int) -> None:
        """Add an entry to SLOWLOG. Long commands are shortened as in Disque (spec R8)."""
        kept = [_cut(argument) for argument in argv[:SLOWLOG_ARGUMENTS_MAX]]
        if len(argv) > SLOWLOG_ARGUMENTS_MAX:
            more = len(argv) - SLOWLOG_ARGUMENTS_MAX + 1
            kept[-1] = b"... (%d more arguments)" % more
        self.slowlog.appendleft((self.slowlog_next_id, wall_s, usec, kept))
        self.slowlog_next_id += 1
        self.trim_slowlog(entries_max)

    def trim_slowlog(self, entries_max: int) -> None:
        """Drop the oldest entries over the limit."""
        while len(self.slowlog) > entries_max:
            self.slowlog.pop()

    def log_latency(self, event: str, ms: int, wall_s: int) -> None:
        """Add a sample for LATENCY."""
        series = self.latency.get(event)
        if series is None:
            series = self.latency[event] = LatencySeries()
        series.add(wall_s, ms)


class LatencySeries:
    """The last LATENCY_SAMPLES_MAX samples of one event. Of each second, only the worst one is kept."""

    __slots__ = ("samples", "worst_ms")

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=LATENCY_SAMPLES_MAX)
        self.worst_ms = 0

    def add(self, wall_s: int, ms: int) -> None:
        """Add a sample taken at a unix second."""
        self.worst_ms = max(self.worst_ms, ms)
        if self.samples and self.samples[-1][0] == wall_s:
            self.samples[-1] = (wall_s, max(ms, self.samples[-1][1]))
        else:
            self.samples.append((wall_s, ms))


def _cut(argument: bytes) -> bytes:
    if len(argument) <= SLOWLOG_ARGUMENT_BYTES_MAX:
        return argument
    more = len(argument) - SLOWLOG_ARGUMENT_BYTES_MAX
    return argument[:SLOWLOG_ARGUMENT_BYTES_MAX] + b"... (%d more bytes)" % more
