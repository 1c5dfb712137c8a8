"""pipelines/session.py: the settings of a local session."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="the extra disque-py[spark] is not installed")

from pyspark.sql import SparkSession

from disque_py.spark.pipelines import session


class Builder:
    """A builder that notes its settings."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}

    def appName(self, name):  # noqa: N802 — Spark's name
        return self

    def config(self, key, value):
        self.said[key] = value
        return self

    def getOrCreate(self):  # noqa: N802 — Spark's name
        return SimpleNamespace(
            sparkContext=SimpleNamespace(setLogLevel=lambda _: None),
            dataSource=SimpleNamespace(register=lambda _: None),
        )


@pytest.fixture
def builder(monkeypatch):
    for name in ("PYSPARK_PYTHON", "SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(session, "ensure_java", lambda: "")
    monkeypatch.setattr(SparkSession, "builder", Builder())
    return SparkSession.builder


def test_a_local_session_runs_its_workers_with_this_python(builder, monkeypatch):
    session.open_session("index", **{"spark.driver.memory": "2g"})
    assert builder.said["spark.driver.memory"] == "2g"
    assert builder.said["spark.master"] == "local[*]"
    import os

    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_under_spark_submit_nothing_is_set(builder, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    session.open_session("index")
    assert builder.said == {}


def test_a_session_of_another_program_keeps_its_log(builder, monkeypatch):
    """Only a local session has loggers that are ours to change."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    session.hush_failures(SimpleNamespace())
