"""A SparkSession for a pipeline: the existing one (spark-submit, Spark Connect), or a small local one.

A local session logs little, uses UTC, and listens on this machine only.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from disque_py.spark import ensure_java, register

LOCAL: Final = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    # The programs are short, so full optimisation would cost more time than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


# Spark logs the failure of a query with a Java trace before it raises the same error here.
LOGGERS_OF_FAILURES: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.v2.AppendDataExec",
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
    "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.util.Utils",
)


def open_session(name: str, **more: str) -> Any:
    """Return a session in which the data sources are registered.

    name   the application's name in Spark
    more   further settings of a local session

    Raises NoJavaError, ImportError.
    """
    # Workers must find this package. By default Spark starts the first python3 on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_submitted = _is_submitted()
    if not is_submitted:
        ensure_java()
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.appName(f"disque {name}")
    if not is_submitted and "SPARK_REMOTE" not in os.environ:
        for key, value in (LOCAL | more).items():
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not is_submitted and "SPARK_REMOTE" not in os.environ:
        spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def hush_failures(spark: Any) -> None:
    """Keep the failures of queries out of the log of a local session, because their errors are raised, too."""
    if _is_submitted() or "SPARK_REMOTE" in os.environ:
        return
    log4j = spark._jvm.org.apache.logging.log4j
    for logger in LOGGERS_OF_FAILURES:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)


def _is_submitted() -> bool:
    return "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
