"""When garbage is collected.

Python frees most objects at once, by counting references; the collector only finds cycles, by walking through every
container that is alive. With 400,000 jobs one such walk stops the server for 190 ms, and by default it happens whenever
the number of objects has grown by a quarter: during every burst of jobs. The broker makes no cycles per job, client
or message; what rare ones there are (tracebacks, closed transports) come to kilobytes an hour.

So automatic collection is off, what start-up created is put aside for good, and a full collection runs only when few
jobs are registered and it therefore takes a few milliseconds.
"""

from __future__ import annotations

import gc
from typing import Final

# A full collection of so many jobs takes about 10 ms, the longest that a client may be kept waiting.
JOB_COUNT_MAX: Final = 20_000

COLLECT_INTERVAL_MS: Final = 60_000  # How often the server may ask.


def tune_collector() -> None:
    """Set the policy; called once, when everything has been imported and built."""
    gc.disable()
    gc.collect()
    gc.freeze()


def collect_when_cheap(job_count: int) -> bool:
    """Collect everything if fewer than JOB_COUNT_MAX jobs are registered; True if it was done."""
    if job_count >= JOB_COUNT_MAX:
        return False
    gc.collect()
    return True
