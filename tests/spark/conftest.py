"""One small Spark session for all tests of this folder. Without Spark or Java the tests are skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import disque_py
from disque_py.spark import NoJavaError, ensure_java, register
from spark_settings import SETTINGS

TESTS = Path(__file__).resolve().parents[1]

# Made by fast_java.py. Programs that the tests start use it, too.
if "FAST_JAVA" in os.environ:
    os.environ["JAVA_HOME"] = os.environ["FAST_JAVA"]


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
    # Workers are separate processes. They find the tests' modules by path, and the package where it is installed.
    shared = [str(Path(disque_py.__file__).parents[1]), str(TESTS / "support"), str(TESTS / "spark")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*shared, *filter(None, [os.environ.get("PYTHONPATH")])])
    builder = SparkSession.builder.master("local[2,3]").appName("tests")
    own = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # For a few rows, compiling the code of a query takes longer than interpreting its plan. Tests that start Spark
        # in processes of their own leave this to Spark.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # One test starts a server in this JVM. It takes any free port.
        "spark.connect.grpc.binding.port": "0",
    }
    for name, value in {**SETTINGS, **own}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    register(session)
    yield session
    session.stop()


def pytest_collection_modifyitems(items):
    """Raise the time limits: the first test starts Java, and on a busy machine every task takes long."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))
