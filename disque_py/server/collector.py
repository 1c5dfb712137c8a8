"""Collector: the policy for collecting garbage.

Python frees most objects immediately, by counting references. The collector only finds cycles, by walking through all
living containers. With 400,000 jobs one such walk stops the server for 190 ms. By default it happens whenever the
number of objects has grown by a quarter, so it would happen during every burst of jobs. The broker makes no cycles per
job, client or message. The rare cycles (tracebacks, closed transports) come to kilobytes an hour.

So automatic collection is off, and objects made at start-up are excluded for good. A full collection runs only when few
jobs are registered, and then takes a few milliseconds.
"""

from __future__ import annotations

import gc
from typing import Final

# A full collection with this many jobs takes about 10 ms. No client should wait longer.
JOB_COUNT_MAX: Final = 20_000

COLLECT_INTERVAL_MS: Final = 60_000  # The interval at which the server calls `collect_when_cheap`.


def tune_collector() -> None:
    """Set the policy. Called once, when all modules are imported and the node is built."""
    gc.disable()
    gc.collect()
    gc.freeze()


def collect_when_cheap(job_count: int) -> bool:
    """Run a full collection if fewer than JOB_COUNT_MAX jobs are registered. Return whether it ran."""
    if job_count >= JOB_COUNT_MAX:
        return False
    gc.collect()
    return True
