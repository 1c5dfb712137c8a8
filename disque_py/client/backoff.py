"""The wait of a job after each failure, until its next attempt.

As text, a policy has the form `exponential:<base-ms>:<cap-ms>:<jitter-percent>`. After k failures a job waits for base
(fixed), base × k (linear) or base × 2^(k−1) (exponential), but at most cap. The wait is then shortened at random by up
to jitter percent, so that jobs which failed together don't come back together. Pure; the caller passes the random
source.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from disque_py.client.spans import Milliseconds, milliseconds, whole

# Every cap is reached before this exponent. It bounds the size of the power.
DOUBLINGS_MAX: Final = 62


@dataclass(frozen=True, slots=True)
class Backoff:
    """A policy of waiting between the attempts of a job.

    kind             "fixed", "linear" or "exponential", the default: how the wait grows with each failure
    base_ms          milliseconds after the first failure, 1000 by default
    cap_ms           milliseconds at most, 300000 (five minutes) by default
    jitter_percent   the most by which a wait is shortened at random, in percent; 25 by default

    Raises ValueError for an invalid policy.

        Backoff("linear", base_ms=5_000, cap_ms=60_000)  # 5 s, 10 s, …, 60 s; each up to a quarter shorter
    """

    kind: Literal["fixed", "linear", "exponential"] = "exponential"
    base_ms: Milliseconds = 1_000
    cap_ms: Milliseconds = 300_000
    jitter_percent: int = 25

    def __post_init__(self) -> None:
        if self.kind not in ("fixed", "linear", "exponential"):
            raise ValueError(f"kind must be fixed, linear or exponential, not {self.kind!r}")
        if not 0 < milliseconds("base_ms", self.base_ms) <= milliseconds("cap_ms", self.cap_ms):
            raise ValueError("base_ms must be above 0, and cap_ms not below it")
        if not 0 <= whole("jitter_percent", self.jitter_percent) <= 100:
            raise ValueError("jitter_percent must be from 0 to 100")

    def __str__(self) -> str:
        """Return the policy as BACKOFF and the setting `backoff` take it."""
        base_ms, cap_ms = milliseconds("base_ms", self.base_ms), milliseconds("cap_ms", self.cap_ms)
        return f"{self.kind}:{base_ms}:{cap_ms}:{self.jitter_percent}"

    def wait_s(self, failure_count: int, rng: Random) -> float:
        """Return how long a job waits after so many failures, in seconds."""
        base_ms, cap_ms = milliseconds("base_ms", self.base_ms), milliseconds("cap_ms", self.cap_ms)
        wait_ms = base_ms
        if self.kind == "linear":
            wait_ms = base_ms * failure_count
        elif self.kind == "exponential":
            wait_ms = base_ms << min(failure_count - 1, DOUBLINGS_MAX)
        return min(wait_ms, cap_ms) * (1 - self.jitter_percent / 100 * rng.random()) / 1000
