"""Metrics: docs/metrics.md, the dashboard and the alerts name only metrics of the table, and the page names all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from click.testing import CliRunner

from disque_py.gateway.metrics.command import main
from disque_py.gateway.metrics.table import EVENT_METRICS, METRICS, REQUEST_SECONDS
from rewrite_metrics_page import MARK, PAGE, ROOT, in_step

EXAMPLES = ROOT / "docs/examples/prometheus"
ALL = (*METRICS, *EVENT_METRICS, REQUEST_SECONDS)
BY_NAME = {metric.name: metric for metric in ALL} | {
    f"{metric.name}_{part}": replace(metric, labels=(*metric.labels, "le"))
    for metric in ALL
    if metric.kind == "histogram"
    for part in ("bucket", "sum", "count")
}
NAMES = set(BY_NAME)


@pytest.fixture(scope="module")
def dashboard():
    """The dashboard's queries, by the titles of panels and the names of variables."""
    made = json.loads((EXAMPLES / "disque-dashboard.json").read_text(encoding="utf-8"))
    panels = [(panel["title"], target["expr"]) for panel in made["panels"] for target in panel.get("targets", ())]
    variables = made["templating"]["list"]
    return [*panels, *((each["name"], each["query"]["query"]) for each in variables if each["type"] == "query")]


def metrics_in(query):
    return re.findall(r"\bdisque_[a-z_]+", query)


def wrong_labels(query):
    """Return labels in a query's selectors that their metric lacks."""
    return [
        (name, label)
        for name, selector in re.findall(r"\b(disque_[a-z_]+)\{([^}]*)\}", query)
        for label in re.findall(r"(\w+)\s*(?:=~|=|!=|!~)", selector)
        if label not in BY_NAME[name].labels
    ]


def test_the_page_is_in_step_with_the_table():
    """After a change of the table: python tests/house/rewrite_metrics_page.py."""
    text = PAGE.read_text(encoding="utf-8")
    assert MARK in text
    assert in_step(text) == text


def test_the_page_names_only_metrics_that_exist():
    """This includes its introduction and examples."""
    assert sorted(set(metrics_in(PAGE.read_text(encoding="utf-8"))) - NAMES - {"disque_version"}) == []


def test_the_page_has_every_option():
    text = PAGE.read_text(encoding="utf-8")
    assert [opt for param in main.params for opt in param.opts if opt.startswith("--") and f"`{opt}" not in text] == []


def test_the_dashboard_shows_what_exists(dashboard):
    assert len(dashboard) > 20
    assert [(title, name) for title, query in dashboard for name in metrics_in(query) if name not in NAMES] == []
    assert [(title, wrong_labels(query)) for title, query in dashboard if wrong_labels(query)] == []


def test_the_dashboard_takes_rates_of_counters_and_of_nothing_else(dashboard):
    rated = {name for _, query in dashboard for name in re.findall(r"rate\((disque_[a-z_]+)", query)}
    shown = {name for _, query in dashboard for name in metrics_in(query)}
    assert {name for name in shown if BY_NAME[name].kind in ("counter", "histogram")} == rated


@pytest.mark.parametrize("name", ["disque-alerts.yaml", "disque-alerts-test.yaml"])
def test_alerts_are_about_what_exists(name):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    found = [*re.findall(r"^\s+expr: (.+)$", text, re.MULTILINE), *re.findall(r"series: '(.+?)'", text)]
    assert found
    assert sorted({each for query in found for each in metrics_in(query)} - NAMES) == []
    assert [wrong_labels(query) for query in found if wrong_labels(query)] == []


def test_every_alert_has_a_test_in_which_it_fires():
    alerts = re.findall(r"alert: (\w+)", (EXAMPLES / "disque-alerts.yaml").read_text(encoding="utf-8"))
    tests = (EXAMPLES / "disque-alerts-test.yaml").read_text(encoding="utf-8")
    assert len(alerts) == len(set(alerts))
    assert re.findall(r"alertname: (\w+)\n\s+exp_alerts:", tests) == alerts


@pytest.mark.parametrize(
    "words",
    [
        ["check", "rules", "disque-alerts.yaml"],
        ["test", "rules", "disque-alerts-test.yaml"],
        ["check", "config", "prometheus.yaml"],
    ],
    ids=" ".join,
)
def test_promtool_agrees(words):
    """promtool is Prometheus's own tool, from Debian's package prometheus."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(["promtool", *words], cwd=EXAMPLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_starts_the_program_with_options_that_exist():
    unit = (ROOT / "packaging/systemd/disque-exporter.service").read_text(encoding="utf-8")
    path, *words = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)[0].split()
    assert path == "/opt/disque/bin/disque-exporter"
    assert CliRunner().invoke(main, [*words, "--help"]).exit_code == 0
    assert main.make_context("disque-exporter", words).params["discover"]
