"""Spark data sources for Disque: jobs, events, and the indexes made of events.

    from disque_py.spark import ensure_java, register

    ensure_java()
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    spark.readStream.format("disque-events").option("bootstrapServers", "10.0.0.1:7711").load()

There are three data sources, in pure Python and without a jar:

    disque          queues: `readStream` takes jobs, `write` and `writeStream` add them; at least once
    disque-events   the event logs of all nodes: `read` and `readStream`; replayable
    disque-index    two Delta tables made of events: `writeStream` and `read`; exactly once

docs/spark.md lists all options with their types, defaults and guarantees.

The modules that talk to nodes and tables don't import Spark, so they can be tested and used without it: nodes,
event_*, events_*, job_*, jobs_reading, adding and index_*. Four modules adapt them to Spark's interface: events,
jobs, sink and index. pipelines/ has programs on top of the sources. query/ needs no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from disque_py.spark.java import NoJavaError, ensure_java

__all__ = ["NoJavaError", "ensure_java", "register"]


def __getattr__(name: str) -> Any:
    """Load `disque_py.spark.java` on first use. `disque-query` needs no Java, and starts faster without the module."""
    if name in ("NoJavaError", "ensure_java"):
        from disque_py.spark import java

        return getattr(java, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: Any) -> None:
    """Register the formats `disque`, `disque-events` and `disque-index` with a SparkSession.

    spark   a SparkSession, classic or Spark Connect

    Call it once per session. A second call does no harm. Raises ImportError when a package that the sources need is
    missing; the error names the extra to install.
    """
    try:
        from disque_py.spark.events import EventSource
        from disque_py.spark.index import IndexSource
        from disque_py.spark.jobs import JobSource
    except ImportError as error:
        raise ImportError(f"{error}; install what Spark needs with: pip install 'disque-py[spark]'") from error
    for source in (JobSource, EventSource, IndexSource):
        spark.dataSource.register(source)
