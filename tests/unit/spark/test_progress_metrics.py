"""progress_metrics.py: the figures of queries, as Prometheus reads them."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client", reason="the extra disque-py[spark] is not installed")

from prometheus_client.parser import text_string_to_metric_families

from disque_py.spark.progress_metrics import HELP, prometheus_of


def samples_of(text):
    """Return (name, query) → value."""
    families = text_string_to_metric_families(text.decode())
    return {(each.name, each.labels["query"]): each.value for family in families for each in family.samples}


def test_numbers_have_all_their_digits():
    """The last digits of a slow counter are the ones that change."""
    figures = {"disque_pipeline_rows_total": 123456789012.0, "disque_pipeline_lag_seconds": 1.5}
    assert samples_of(prometheus_of({"q": figures})) == {(name, "q"): value for name, value in figures.items()}


def test_every_figure_has_a_help_line_a_type_and_a_sample_per_query():
    figures = dict.fromkeys(HELP, 3.0)
    text = prometheus_of({'a"b\\c\n': figures, "d": figures, "e": {}})
    assert samples_of(text) == {(name, query): 3.0 for name in HELP for query in ('a"b\\c\n', "d")}
    for name, (kind, words) in HELP.items():
        assert f"# HELP {name} {words}\n# TYPE {name} {kind}\n" in text.decode()


def test_a_figure_that_no_query_has_is_left_out():
    assert b"lag_events" not in prometheus_of({"q": {"disque_pipeline_batch": 1.0}})
    assert prometheus_of({}) == b""
