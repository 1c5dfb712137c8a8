"""The data sources where Spark does not run in this process: on separate executors, and through Connect.

The tests run tour.py. An installed package is found everywhere; the package of a checkout needs a path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import disque_py
from disque_py.spark import ensure_java
from servers import Cluster
from spark_settings import SETTINGS

TOUR = Path(__file__).with_name("tour.py")
PACKAGE = Path(disque_py.__file__).parents[1]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("nodes"), 2, ["--events", "yes"]) as cluster:
        yield cluster


def places(cluster) -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers)


def run(folder, *words, **settings):
    """Run the program with Spark's settings in files, and return its output."""
    lines = [f"{name} {value}" for name, value in {**SETTINGS, **settings}.items()]
    (folder / "spark-defaults.conf").write_text("\n".join([*lines, f"spark.local.dir {folder}/local", ""]))
    environment = {
        **os.environ, "SPARK_CONF_DIR": str(folder), "JAVA_HOME": ensure_java(), "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    environment["SPARK_TESTING"] = "1"  # A server of Connect takes a free port then, and not always the same one.
    environment.pop("PYTHONPATH", None)
    if (PACKAGE / "pyproject.toml").exists():
        environment["PYTHONPATH"] = str(PACKAGE)
    ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.timeout(400)
def test_sources_work_under_spark_submit_with_separate_executors(nodes, tmp_path):
    submit = Path(sys.executable).with_name("spark-submit")
    master = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
    found = run(tmp_path, submit, TOUR, places(nodes), str(tmp_path), **master)
    package = str(PACKAGE / "disque_py" / "__init__.py")
    assert (found["driver"], found["executors"]) == (package, [package])
    assert found["bodies"] == 300
    assert found["completed"] % 300 == 0
    assert found["completed"] > 0


@pytest.mark.timeout(400)
def test_sources_work_through_spark_connect(nodes, tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    found = run(tmp_path, sys.executable, TOUR, places(nodes), str(tmp_path), "local[2]")
    assert found["bodies"] == 300
    assert found["completed"] % 300 == 0
    assert found["completed"] > 0
