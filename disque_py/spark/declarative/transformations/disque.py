"""Index and depth as a declarative pipeline. `spark-pipelines run` runs it; spark-pipeline.yml has the settings.

`index` is the flow into the tables that disque-query reads. `events` is the same stream as a table in Spark's catalog.
`depth` is a materialized view of `events`: the number of jobs per queue and state.
"""

from __future__ import annotations

from typing import Any

from pyspark import pipelines
from pyspark.sql import SparkSession

from disque_py.event_format import FINAL_RANK_SQL
from disque_py.spark import register

dp: Any = pipelines
spark: Any = SparkSession.active()
register(spark)

NODES = spark.conf.get("disque.nodes")
PATH = spark.conf.get("disque.path")


def logs() -> Any:
    """Return the stream of all nodes' event logs."""
    events = spark.readStream.format("disque-events").option("bootstrapServers", NODES)
    return events.option("startingOffsets", "earliest").load()


def events() -> Any:
    """Return all events, as a table of the catalog."""
    return logs()


def depth() -> Any:
    """Return the number of jobs by queue and state, from each job's newest event in the documented order."""
    newest = f"max_by(struct(queue, to_state), struct({FINAL_RANK_SQL}, version, node, seq))"
    jobs = spark.read.table("events").where("job_id IS NOT NULL").groupBy("job_id")
    return jobs.agg(_expression(newest)).select("newest.queue", "newest.to_state").groupBy("queue", "to_state").count()


def _expression(text: str) -> Any:
    from pyspark.sql import functions as f

    return f.expr(text).alias("newest")


dp.create_sink("disque_index", "disque-index", {"path": PATH})
dp.append_flow(name="index", target="disque_index")(logs)
dp.table(events)
dp.materialized_view(depth)
