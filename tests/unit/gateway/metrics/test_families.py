"""gateway/metrics/families.py: the text of a scrape."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")

from prometheus_client.parser import text_string_to_metric_families

from disque_py.client import Address, Hello, QueueStat
from disque_py.client.results import ClusterNode
from disque_py.gateway.metrics.families import text_of
from disque_py.gateway.metrics.look import Look
from disque_py.gateway.metrics.table import METRICS
from disque_py.gateway.metrics.watching import Seen

NODE = Address("10.0.0.1", 7711)


def stat(name="mail", length=5, **more):
    return QueueStat(
        name, length, 9, 0, 2, [], 0, 100, 95, **{"pause": "none", "oldest_ms": 65_000, "running": 3, **more}
    )


def samples_of(*nodes):
    """Return (name, label values) → value."""
    families = text_string_to_metric_families(text_of(nodes, "")[0].decode())
    return {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name != "node")): sample.value
        for family in families
        for sample in family.samples
    }


def seen(**parts):
    return Seen(NODE, Look(**parts))


def test_a_node_that_is_down_has_that_one_sample():
    assert samples_of(Seen(NODE, None, "no answer")) == {("disque_up",): 0.0}


def test_a_queue_has_its_jobs_by_state_and_its_age_in_seconds():
    found = samples_of(seen(stats=[stat(pause="all")]))
    assert found["disque_queue_jobs", "mail", "pending"] == 5
    assert found["disque_queue_jobs", "mail", "running"] == 3
    assert found["disque_queue_oldest_job_age_seconds", "mail"] == 65
    assert found["disque_queue_jobs_in_total", "mail"] == 100
    assert found["disque_queue_paused", "in", "mail"] == found["disque_queue_paused", "out", "mail"] == 1


def test_an_empty_queue_has_no_age():
    assert ("disque_queue_oldest_job_age_seconds", "mail") not in samples_of(seen(stats=[stat(oldest_ms=None)]))


def test_queues_without_labels_are_summed_into_one():
    info = {"registered_queues": 40, "queued_jobs": 105}
    found = samples_of(seen(info=info, stats=[stat()]))
    assert found["disque_queue_jobs", "_other", "pending"] == 100
    assert found["disque_queues_other",] == 39


def test_without_other_queues_there_is_no_sample_of_them():
    info = {"registered_queues": 1, "queued_jobs": 4}
    found = samples_of(seen(info=info, stats=[stat()]))
    assert found["disque_queues_other",] == 0
    assert ("disque_queue_jobs", "_other", "pending") not in found


def test_links_are_labelled_with_addresses():
    rows = [
        ClusterNode("a", "10.0.0.1", 7711, frozenset({"myself"}), 0, 0, True),
        ClusterNode("b", "fd00::2", 7711, frozenset({"fail"}), 0, 0, False),
        ClusterNode("c", "10.0.0.3", 7711, frozenset({"handshake"}), 0, 0, False),
    ]
    found = samples_of(seen(table=rows))
    assert [key for key in found if key[0] == "disque_link_up"] == [("disque_link_up", "[fd00::2]:7711")]
    assert found["disque_link_up", "[fd00::2]:7711"] == 0


def test_a_node_is_described_by_labels():
    found = samples_of(seen(info={"disque_version": "1.0", "build": "compiled"}, hello=Hello(1, "a" * 40, [])))
    assert found["disque_node_info", "compiled", "a" * 40, "1.0"] == 1


def test_queue_names_may_have_any_bytes():
    """Producers choose the names, so they may have any bytes."""
    names = ['a"b\\c\n', "\x00", "käse", "# HELP x"]
    found = samples_of(seen(stats=[stat(name) for name in names]))
    assert {key[1] for key in found if key[0] == "disque_queue_waiting_consumers"} == set(names)


def test_help_and_type_come_from_the_table():
    text = text_of([seen(info={"queued_jobs": 1, "total_jobs_added": 3}, stats=[stat()])], "")[0].decode()
    shown = [metric for metric in METRICS if f"\n{metric.name}{{" in text]
    assert len(shown) > 8
    for metric in shown:
        assert f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n" in text


def test_openmetrics_is_served_on_request():
    text, content_type = text_of([seen(info={"total_jobs_added": 3})], "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert b"# TYPE disque_node_jobs_added counter\n" in text
    assert text.endswith(b"# EOF\n")
