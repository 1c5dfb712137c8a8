"""One small Spark session for all tests of this folder; without Spark or Java they are skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark import NoJavaError, ensure_java, register

ROOT = Path(__file__).resolve().parents[2]
QUIET = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """local[2], with tasks that are tried three times."""
    try:
        ensure_java()
    except NoJavaError as error:
        pytest.skip(str(error))
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers are processes of their own: they find this package and the tests' stub by path.
    tests = [ROOT, ROOT / "tests" / "unit", ROOT / "tests" / "spark"]
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, tests), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2,3]").appName("tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUIET,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.pollingDelay": "10ms",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    register(session)
    yield session
    session.stop()
