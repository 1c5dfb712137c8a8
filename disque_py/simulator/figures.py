"""Figures: the quality of the cluster over many runs, so that a change for the worse is noticed.

The figures of a run are sums (simulation.py). The figures of a kind of weather come from plans that had only this kind.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# Limits by kind of weather, in per mille. The share of acknowledged jobs that were delivered again after the reply to
# their ACKJOB must stay below the limit. These are the shares that the original showed (spec Q43).
AFTER_ACK_PER_MILLE_MAX: Final = {
    "kills": 3,
    "leaving": 10,
    "pauses": 21,
    "ring": 26,
    "one-way": 35,
    "halves": 41,
    "shifting": 55,
    "alone": 74,
}
MIXED: Final = "several at once"
FAIR: Final = "fair"
# The same for kinds in which the original was not measured: a few times the share of this broker, so that a change for
# the worse is noticed. Mixtures of kinds count as one kind. A mixture has the limit of its worst kind, but at least
# this one.
OURS_PER_MILLE_MAX: Final = {"restarts": 5, "power": 30, "forgetting": 20, MIXED: 20}
LIMITS: Final = AFTER_ACK_PER_MILLE_MAX | OURS_PER_MILLE_MAX
# With fewer acknowledged jobs, shares mean nothing.
ACKED_MIN: Final = 2_000
# Nor do they with fewer plans, because the time for which the cluster is cut differs widely between plans.
SEEDS_MIN: Final = 10

COLUMNS: Final = (
    "weather", "seeds", "jobs", "acked", "again after ack", "limit", "delivered twice", "messages per job",
    "bytes per job", "mesh ms", "drain ms",
)  # fmt: skip


class Together(NamedTuple):
    """Sums over several kinds of weather: jobs acknowledged, jobs that came again, and the limit for these."""

    seeds: int
    acked: int
    again: int
    limit: float

    def __str__(self) -> str:
        return (
            f"{self.again} of {self.acked:,} in the {self.seeds} seeds whose weather has a limit; fewer than"
            f" {self.limit:,.0f} are allowed"
        )


class Figures:
    """Sums of many runs: all together, and by kind of weather."""

    def __init__(self) -> None:
        self.total: dict[str, int] = {}
        self.by_weather: dict[str, dict[str, int]] = {}
        self._allowed: dict[str, int] = {}

    def add(self, weather: tuple[str, ...], figures: dict[str, int]) -> None:
        """Add the figures of one run."""
        kind = MIXED if len(weather) > 1 else weather[0] if weather else FAIR
        for sums in (self.total, self.by_weather.setdefault(kind, {})):
            for name, value in figures.items():
                sums[name] = sums.get(name, 0) + value
        if kind in LIMITS:
            limit = max([LIMITS[kind], *[LIMITS[each] for each in weather if each in LIMITS]])
            self._allowed[kind] = self._allowed.get(kind, 0) + limit * figures["acked"]

    def limit_of(self, kind: str) -> float | None:
        """Return how many of 1,000 acknowledged jobs may come again in this weather; None: it has no limit."""
        acked = self.by_weather.get(kind, {}).get("acked", 0)
        return self._allowed[kind] / acked if kind in self._allowed and acked else LIMITS.get(kind)

    def excesses(self) -> list[str]:
        """Return a line for each kind of weather (and for all) in which too many acknowledged jobs came again."""
        found = []
        together = self.together()
        if together.seeds >= SEEDS_MIN and together.acked >= ACKED_MIN and together.again >= together.limit:
            found.append(f"too many acknowledged jobs came again: {together}")
        for kind in LIMITS:
            sums = self.by_weather.get(kind)
            limit = self.limit_of(kind)
            if not sums or limit is None or sums["seeds"] < SEEDS_MIN or sums["acked"] < ACKED_MIN:
                continue
            if sums["after_ack"] * 1000 >= limit * sums["acked"]:
                share = sums["after_ack"] / sums["acked"]
                found.append(f"{kind}: {share:.2%} of acknowledged jobs came again; the limit is {limit / 1000:.1%}")
        return found

    def together(self) -> Together:
        """Return the sum over the kinds of weather that have a limit; each kind counts with its own limit.

        Among fifty seeds, each kind has only a few, but all kinds together have a dozen.
        """
        seeds = acked = again = per_mille = 0
        for kind, limit in AFTER_ACK_PER_MILLE_MAX.items():
            sums = self.by_weather.get(kind)
            if sums:
                seeds += sums["seeds"]
                acked += sums["acked"]
                again += sums["after_ack"]
                per_mille += limit * sums["acked"]
        return Together(seeds, acked, again, per_mille / 1000)

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row per kind of weather, with COLUMNS."""
        return [self._row(kind, sums) for kind, sums in sorted(self.by_weather.items())]

    def _row(self, kind: str, sums: dict[str, int]) -> tuple[str, ...]:
        jobs, acked, seeds = max(1, sums["jobs"]), max(1, sums["acked"]), max(1, sums["seeds"])
        limit = self.limit_of(kind)
        return (
            kind,
            str(sums["seeds"]),
            str(sums["jobs"]),
            str(sums["acked"]),
            f"{sums['after_ack'] / acked:.2%}",
            "" if limit is None else f"{limit / 1000:.1%}",
            f"{sums['duplicates'] / jobs:.2%}",
            f"{sums['messages'] / jobs:.1f}",
            f"{sums['bytes'] / jobs:.0f}",
            str(sums["mesh_ms"] // seeds),
            str(sums["drain_ms"] // seeds),
        )

    def events(self) -> int:
        """Return the number of commands, messages and timers."""
        return sum(self.total.get(name, 0) for name in ("commands", "messages", "timers"))
