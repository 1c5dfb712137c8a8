"""gateway/metrics/table.py: each metric is there once, obeys the rules of Prometheus, and has a source that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from disque_py.gateway.metrics.table import (
    EVENT_METRICS,
    INFO_METRICS,
    METRICS,
    REQUEST_SECONDS,
    UNCOUNTED,
    Field,
    Metric,
    info_samples,
    label_value,
)

ALL = (*METRICS, *EVENT_METRICS, REQUEST_SECONDS)
INFO_PAGE = (Path(__file__).parents[4] / "docs/info.md").read_text(encoding="utf-8")


def samples(name, **info):
    return info_samples(next(metric for metric in METRICS if metric.name == name), info)


def test_every_name_occurs_once():
    names = [metric.name for metric in ALL]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_a_metric_follows_the_rules_of_prometheus(metric):
    """promtool's lint: `_total` for counters alone, base units, a help text."""
    assert re.fullmatch(r"disque_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(r"_(ms|milliseconds|kb|mb|percent)\b", metric.name)
    assert metric.help.endswith(".")
    assert metric.source
    others = {REQUEST_SECONDS.name: "door", UNCOUNTED.name: "reason"}
    assert metric.labels[0] == ("node" if metric in METRICS else others.get(metric.name, "queue"))


@pytest.mark.parametrize("metric", INFO_METRICS, ids=lambda metric: metric.name)
def test_a_field_of_info_is_explained_in_its_page(metric):
    """So no metric has an invented source."""
    names = [field.name for field in metric.fields] or [
        f"{metric.prefix}<{metric.labels[1]}>".replace("reader>", "name>")
    ]
    assert [name for name in names if f"`{name}`" not in INFO_PAGE] == []


def test_a_field_is_a_number_a_word_or_any_text():
    assert Field("x", scale=0.001).value(1500) == 1.5
    assert Field("x").value("odd") is None
    assert [Field("x", word="ok").value(found) for found in ("ok", "fail")] == [1.0, 0.0]
    assert [Field("x", is_text=True).value(found) for found in ("", "no space")] == [0.0, 1.0]


def test_a_field_that_a_node_lacks_gives_no_sample():
    assert samples("disque_journal_bytes") == []


def test_fields_of_one_metric_differ_by_a_label():
    assert samples("disque_cpu_seconds_total", used_cpu_user=1.5, used_cpu_sys=0.5) == [
        (("user",), 1.5),
        (("system",), 0.5),
    ]


def test_fields_with_a_prefix_are_labelled_with_the_rest_of_their_names():
    assert samples("disque_event_reader_lag_events", events_reader_spark="seq=5,lag=12,idle_ms=3") == [(("spark",), 12)]
    assert samples("disque_bus_links_rejected_total", cluster_links_rejected_wrong_secret=3) == [(("wrong_secret",), 3)]


def test_the_samples_for_names_that_clients_choose_are_limited():
    readers = {f"events_reader_{number}": "seq=0,lag=1,idle_ms=0" for number in range(500)}
    assert len(samples("disque_event_reader_lag_events", **readers)) == 100


def test_bytes_that_are_not_text_are_escaped():
    assert label_value(b"a\xffb".decode("utf-8", "surrogateescape")) == "a\\xffb"
    assert label_value("käse") == "käse"


def test_a_metric_without_fields_takes_nothing_from_info():
    assert info_samples(Metric("disque_up", "gauge", "Up."), {"x": 1}) == []
