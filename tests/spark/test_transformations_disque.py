"""The Declarative Pipelines project, copied and run as its first lines say, and run a second time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="spark-pipelines needs pyspark[pipelines]")
pytest.importorskip("yaml", reason="spark-pipelines needs pyspark[pipelines]")

import pyspark.pipelines

import disque_py
import disque_py.spark.declarative
from disque_py.spark import ensure_java
from runs import all_places, places
from spark_settings import SETTINGS
from spark_stub import StubCluster

PROJECT = Path(disque_py.spark.declarative.__file__).parent


def copied(folder: Path, cluster: StubCluster) -> Path:
    """Copy the project, edit its two settings, and make it suit few events."""
    project = folder / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    file = project / "spark-pipeline.yml"
    text = file.read_text().replace("127.0.0.1:7711", cluster.servers)
    # Each partition is a task.
    text = text.replace('partitions: "4"', 'partitions: "1"')
    file.write_text(text.replace("/tmp/disque-declarative", str(folder)))
    return project


def run(project: Path, words: Sequence[Any], environment: Mapping[str, str]) -> None:
    """Run the project once to its end."""
    ran = subprocess.run(
        [*words], cwd=project, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    # The exit status means nothing: after the end, Spark 4.3.0's program fails on a message of Python sources.
    assert "Run is COMPLETED" in ran.stdout + ran.stderr, ran.stdout + ran.stderr


@pytest.mark.timeout(400)
def test_the_project_indexes_events_and_counts_depth(tmp_path):
    with StubCluster() as cluster:
        project = copied(tmp_path, cluster)
        environment = {
            "JAVA_HOME": ensure_java(),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": str(Path(disque_py.__file__).parents[1]),
        }
        settings = {**SETTINGS, "spark.sql.catalogImplementation": "hive"}
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        cluster.nodes[0].events(30)
        # Run it only once: each run starts two JVMs, a server and a catalog, which takes a minute on a busy machine.
        run(project, [Path(sys.executable).with_name("spark-pipelines"), "run", *words], environment)
        assert places(tmp_path) == all_places(cluster)


@pytest.fixture
def connect(spark):
    """Return the address of a Spark Connect server in the tests' own JVM."""
    java = spark._jvm
    server = getattr(getattr(java, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    server.start(spark._jsc.sc())
    yield f"sc://127.0.0.1:{server.localPort()}"
    nothing = getattr(getattr(java, "scala.None$"), "MODULE$")
    server.stop(nothing, nothing)
    for table in ("events", "depth"):
        spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_a_second_run_adds_new_events_and_none_twice(spark, connect, tmp_path):
    """The test runs the program that `spark-pipelines` starts twice, with one server; the checkpoints remain."""
    client = [sys.executable, "-P", Path(pyspark.pipelines.__file__).with_name("cli.py"), "run"]
    with StubCluster() as cluster:
        project = copied(tmp_path, cluster)
        for count in (30, 40):
            cluster.nodes[0].events(count - len(cluster.nodes[0].lines))
            run(project, client, {"SPARK_REMOTE": connect})
            assert places(tmp_path) == all_places(cluster)
            for table in ("events", "depth"):
                spark.catalog.refreshTable(table)
            assert spark.table("events").count() == count
            assert sum(row["count"] for row in spark.table("depth").collect()) == count
