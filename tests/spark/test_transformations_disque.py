"""The Declarative Pipelines project, copied and run as its first lines say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="spark-pipelines needs pyspark[pipelines]")
pytest.importorskip("yaml", reason="spark-pipelines needs pyspark[pipelines]")

import disque_py
import disque_py.spark.declarative
from disque_py.spark import ensure_java
from index_events import rows
from spark_settings import SETTINGS
from spark_stub import StubCluster

PROJECT = Path(disque_py.spark.declarative.__file__).parent


@pytest.mark.timeout(400)
def test_the_project_indexes_events_and_counts_depth(tmp_path):
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    file = project / "spark-pipeline.yml"
    with StubCluster() as cluster:
        text = file.read_text().replace("127.0.0.1:7711", cluster.servers)
        file.write_text(text.replace("/tmp/disque-declarative", str(tmp_path)))
        environment = {
            **os.environ, "JAVA_HOME": ensure_java(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": str(Path(disque_py.__file__).parents[1]),
        }  # fmt: skip
        settings = {**SETTINGS, "spark.sql.catalogImplementation": "hive"}
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        script = Path(sys.executable).with_name("spark-pipelines")
        cluster.nodes[0].events(30)
        # Once: each run starts a JVM, a server and a catalog, a minute on a busy machine.
        ran = subprocess.run(
            [script, "run", *words], cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        # The status says nothing: Spark 4.3.0's program stumbles over a message of Python sources after the end.
        assert "Run is COMPLETED" in ran.stdout + ran.stderr, ran.stdout + ran.stderr
        assert len(rows(tmp_path / "index", "history")) == 30
