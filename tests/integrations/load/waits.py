"""Waits for conditions. A busy machine may be slow, so the limit only ends a test that would hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LIMIT_S = 60.0


def eventually(condition: Callable[[], T], seconds: float = LIMIT_S) -> T:
    """Wait until a condition is true, and return its value. AssertionError after the limit."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)
    return found
