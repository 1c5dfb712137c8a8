"""Patience: how long the loop may wait for a disk.

The loop waits for a quick disk, because this costs less than to go on and be woken. It must not wait for a slow disk,
because nothing else is done meanwhile. So each wait has a limit. If the latest waits are too long on average, there are
no waits for a while. These pauses become longer if the disk stays slow.
"""

from __future__ import annotations

from typing import Final

LIMIT_S: Final = 0.002
AVERAGE_S_MAX: Final = 0.001
# The share of the latest wait in the average.
_WEIGHT: Final = 1 / 32
PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 10.0


class Patience:
    """The waits for one disk. All times are seconds of a monotonic clock."""

    __slots__ = ("_average_s", "_pause_s", "_resume_s")

    def __init__(self) -> None:
        self._average_s = 0.0
        self._pause_s = PAUSE_S_MIN
        self._resume_s = 0.0

    def limit_s(self, now_s: float) -> float:
        """Return how long a wait that begins now may be; 0: there must be none."""
        return LIMIT_S if now_s >= self._resume_s else 0.0

    def waited(self, began_s: float, ended_s: float) -> None:
        """Note a wait, whether or not it reached its limit."""
        self._average_s += (ended_s - began_s - self._average_s) * _WEIGHT
        if self._average_s <= AVERAGE_S_MAX:
            if ended_s - self._resume_s > PAUSE_S_MAX:
                self._pause_s = PAUSE_S_MIN
            return
        self._average_s = 0.0
        self._resume_s = ended_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
