"""Spark reads and writes Disque: jobs, events, and the indexes made of events.

    from disque_py.spark import ensure_java, register

    ensure_java()
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    spark.readStream.format("disque-events").option("bootstrapServers", "10.0.0.1:7711").load()

Three data sources in pure Python, no jar; docs/spark.md tells what they promise. How it is built: what
talks to nodes and tables imports no Spark (nodes, event_*, events_*, job_*, jobs_reading,
adding, index_*), so it can be tested, and used, without; thin classes give it the shape that Spark
asks for (events, jobs, sink, index). pipelines/ are programs on top, query/ needs no Spark at all.
"""

from __future__ import annotations

from typing import Any

from disque_py.spark.java import NoJavaError, ensure_java

__all__ = ["NoJavaError", "ensure_java", "register"]


def register(spark: Any) -> None:
    """Make `disque`, `disque-events` and `disque-index` known to a SparkSession, classic or Connect.

    Raises ImportError with the extra to install when Spark's own requirements are missing.
    """
    try:
        from disque_py.spark.events import EventSource
        from disque_py.spark.index import IndexSource
        from disque_py.spark.jobs import JobSource
    except ImportError as error:
        raise ImportError(f"{error}; install what Spark needs with: pip install 'disque-py[spark]'") from error
    for source in (JobSource, EventSource, IndexSource):
        spark.dataSource.register(source)
