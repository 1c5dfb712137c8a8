"""Kinds of records: what a journal is told about jobs.

The core appends (kind, value) to `outbox.records` while `broker.is_journaling`; the driver hands them to the journal
before it sends what depends on them. Nothing is journaled while no journal is attached.
"""

from __future__ import annotations

from typing import Final

JOB: Final = 1  # a job image: held here from now on
ACK: Final = 2  # (job id, NODES): acknowledged, not yet collected
GONE: Final = 3  # job id: nothing of it is left here
HANDING: Final = 4  # (job id, node id, number): being handed over
PAUSE: Final = 5  # (queue, flags, version ms, node id)
