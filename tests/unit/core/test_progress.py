"""core/progress.py: the progress of running jobs."""

from __future__ import annotations

from brokers import make_broker
from copies import deliver, hold_queued
from disque_py.core.progress import PROGRESS_BYTES


def test_a_later_delivery_begins_without_progress():
    """Spec RW4."""
    broker = make_broker()
    hold_queued(broker)
    job = deliver(broker)
    broker.progress.put(job, 50, b"half", job.attempt)
    assert broker.progress.get(job).percent == 50
    job.attempt += 1
    assert broker.progress.get(job) is None


def test_progress_counts_in_memory():
    broker = make_broker()
    job = hold_queued(broker)
    before = broker.used_memory
    broker.progress.put(job, 1, b"", 0)
    broker.progress.put(job, 2, b"12345", 0)
    assert broker.used_memory == before + PROGRESS_BYTES + 5
    broker.progress.drop(job)
    assert broker.used_memory == before
