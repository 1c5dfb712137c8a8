"""gateway/metrics/exposition.py: the text of a page, as the parsers of prometheus_client read it."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from disque_py.gateway.metrics.exposition import Page, line
from disque_py.gateway.metrics.table import TRANSITIONS, UP

ADDED = TRANSITIONS[0]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def page(accept, registry=None):
    """A gauge and a counter."""
    made = Page(accept)
    made.add(UP, [line(UP, ("10.0.0.1:7711",), 1.0)])
    made.add(ADDED, [line(ADDED, ('a"b\\c\nd',), 3)])
    return made.text(registry).decode()


@pytest.mark.parametrize(("accept", "read"), [("", read_text), (OPENMETRICS, read_openmetrics)])
def test_both_formats_have_the_same_samples(accept, read):
    families = list(read(page(accept)))
    assert [family.type for family in families] == ["gauge", "counter"]
    assert [(sample.name, sample.value) for family in families for sample in family.samples] == [
        ("disque_up", 1),
        ("disque_jobs_added_total", 3),
    ]
    assert families[1].samples[0].labels == {"queue": 'a"b\\c\nd'}
    assert families[1].documentation == ADDED.help


@pytest.mark.parametrize(("accept", "read"), [("", read_text), (OPENMETRICS, read_openmetrics)])
def test_metrics_of_a_registry_come_last_and_the_page_ends_once(accept, read):
    registry = CollectorRegistry()
    Counter("own", "Of the program.", registry=registry).inc()
    text = page(accept, registry)
    assert "own" in [family.name for family in read(text)][2:]
    assert text.count("# EOF") == (1 if accept else 0)


def test_a_metric_without_a_sample_is_left_out():
    made = Page("")
    made.add(UP, [])
    assert made.text() == b""
