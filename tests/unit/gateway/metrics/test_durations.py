"""gateway/metrics/durations.py: buckets and sums, as a scrape shows them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from disque_py.gateway.metrics.durations import BUCKETS, Durations
from disque_py.gateway.metrics.table import REQUEST_SECONDS

LABELS = {"door": "http", "operation": "enqueue", "code": "OK"}


def observed(*seconds):
    durations, registry = Durations(), CollectorRegistry()
    registry.register(durations)
    for each in seconds:
        durations.observe(*LABELS.values(), each)
    return lambda suffix, **more: registry.get_sample_value(f"{REQUEST_SECONDS.name}_{suffix}", LABELS | more)


def test_a_bucket_counts_all_durations_up_to_its_bound():
    value = observed(0.001, 0.002, 5, 1000)
    assert [value("bucket", le=str(bound)) for bound in BUCKETS] == [1, 2, 2, 2, 2, 2, 2, 2, 3, 3]
    assert (value("bucket", le="+Inf"), value("count"), value("sum")) == (4, 4, 1005.003)


def test_without_requests_there_is_no_sample():
    assert observed()("count") is None
