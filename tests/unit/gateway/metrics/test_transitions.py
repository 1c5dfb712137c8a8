"""gateway/metrics/transitions.py: turns events into counters and durations of queues."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")

from prometheus_client.parser import text_string_to_metric_families

from disque_py import event_format as events
from disque_py.gateway.metrics import transitions
from disque_py.gateway.metrics.exposition import Page
from disque_py.gateway.metrics.selection import Selection
from disque_py.gateway.metrics.transitions import COUNTED, RUNS, Tally


def change(code, queue=b"mail", job=b"D-1", left=events.UNKNOWN, since_ms=0):
    """Return an event with all fields."""
    return code, job, 2, left, since_ms, 1, 0, 0, 10**18, queue, 4


def samples_of(tally, now_s=0.0):
    """Return (name, label values) → value."""
    page = Page("")
    tally.add_to(page, now_s)
    families = text_string_to_metric_families(page.text().decode())
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


@pytest.fixture
def tally():
    return Tally(Selection(limit=2))


def test_each_transition_has_its_counter(tally):
    codes = (events.DELIVERED, events.ACKED, events.NACKED, events.REQUEUED, events.ERRORED_EVENT)
    tally.count(5, [(events.ADDED, b"D-1", 10**18, b"mail", 4), *map(change, codes)], 0)
    tally.count(5, [change(events.EXPIRED_EVENT, job=b"D-2"), change(events.CANCELED_EVENT, job=b"D-3")], 0)
    found = samples_of(tally)
    kinds = ("added", "delivered", "completed", "failed", "requeued", "expired", "errored", "canceled")
    assert {kind: found[f"disque_jobs_{kind}_total", "mail"] for kind in kinds} == dict.fromkeys(kinds, 1)


def test_an_end_that_several_holders_report_counts_once(tally):
    """Each copy of a job expires, but they are one job."""
    tally.count(5, [change(events.EXPIRED_EVENT)] * 3, 0)
    tally.count(5, [change(events.ACKED)], 0)
    found = samples_of(tally)
    assert (found["disque_jobs_expired_total", "mail"], found["disque_jobs_completed_total", "mail"]) == (1, 0)


def test_old_ends_are_forgotten(tally, monkeypatch):
    monkeypatch.setattr(transitions, "ENDS_KEPT", 2)
    for job in (b"D-1", b"D-2", b"D-3", b"D-1"):
        tally.count(5, [change(events.ACKED, job=job)], 0)
    assert samples_of(tally)["disque_jobs_completed_total", "mail"] == 4


def test_a_queue_has_all_counters_from_its_first_event_on(tally):
    """So Prometheus' `increase` counts the first error, too."""
    tally.count(5, [(events.ADDED, b"D-1", 10**18, b"mail", 4)], 0)
    assert samples_of(tally)["disque_jobs_errored_total", "mail"] == 0


def test_waiting_and_running_are_durations(tally):
    delivered = events.DELIVERED, b"D-1", 2, 1_000, 1, 0, 0, 10**18, b"mail", 4
    tally.count(1_300, [delivered], 0)
    tally.count(4_300, [change(events.ACKED, left=events.RUNNING, since_ms=1_300)], 0)
    found = samples_of(tally)
    assert (found["disque_queue_wait_seconds_sum", "mail"], found["disque_queue_run_seconds_sum", "mail"]) == (0.3, 3)
    assert found["disque_queue_wait_seconds_bucket", "mail", "0.1"] == 0
    assert found["disque_queue_wait_seconds_bucket", "mail", "0.5"] == 1
    assert found["disque_queue_run_seconds_bucket", "mail", "2"] == 0
    assert (
        found["disque_queue_run_seconds_bucket", "mail", "10"] == found["disque_queue_run_seconds_count", "mail"] == 1
    )
    assert found["disque_queue_run_seconds_bucket", "mail", "+Inf"] == 1


def test_a_state_of_unknown_begin_has_no_duration(tally):
    """The begin is unknown after a restart of the node, and on a node that did not deliver the job."""
    tally.count(5, [change(events.ACKED), change(events.ACKED, job=b"D-2", left=events.RUNNING)], 0)
    assert ("disque_queue_run_seconds_count", "mail") not in samples_of(tally)


def test_a_value_equal_to_a_bound_belongs_to_its_bucket(tally):
    tally.count(1_100, [change(events.DELIVERED, left=events.PENDING, since_ms=1_000)], 0)
    assert samples_of(tally)["disque_queue_wait_seconds_bucket", "mail", "0.1"] == 1


def test_queues_beyond_the_limit_are_counted_as_one(tally):
    for queue in (b"a", b"b", b"c", b"d", b"\xff"):
        tally.count(5, [(events.ADDED, b"D-1", 10**18, queue, 4)], 0)
    found = samples_of(tally)
    assert found["disque_jobs_added_total", "_other"] == 3
    assert ("disque_jobs_added_total", "c") not in found


def test_a_queue_that_is_gone_frees_its_place(tally):
    tally.count(5, [(events.ADDED, b"D-1", 10**18, b"a", 4)], 0.0)
    samples_of(tally, transitions.IDLE_S + 1)
    for queue in (b"b", b"c"):
        tally.count(5, [(events.ADDED, b"D-1", 10**18, queue, 4)], 9_999.0)
    assert sorted(key[1] for key in samples_of(tally, 9_999.0) if key[0] == "disque_jobs_added_total") == ["b", "c"]


def test_a_queue_that_exists_keeps_its_counters(tally):
    tally.count(5, [(events.ADDED, b"D-1", 10**18, b"a", 4)], 0.0)
    tally._selection.choose("a node", ["a"])
    assert ("disque_jobs_added_total", "a") in samples_of(tally, transitions.IDLE_S + 1)


def test_events_of_nodes_and_of_copies_count_nothing(tally):
    tally.count(5, [(events.STARTED, {"reason": "memory lost"}), change(events.DELETED_COPY), change(99)], 0)
    found = samples_of(tally)
    assert set(found.values()) == {0}
    assert {name for name, *_ in found} == {"disque_events_uncounted_total"}


def test_every_code_is_one_of_the_format():
    assert set(COUNTED) | RUNS <= set(events.CODES)
