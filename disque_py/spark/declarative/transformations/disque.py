"""Index and depth, declared: a flow from the event logs into the index, and what is made of it.

Run by `spark-pipelines run`; settings stand in spark-pipeline.yml.
"""

from __future__ import annotations

from typing import Any

from pyspark import pipelines
from pyspark.sql import SparkSession

from disque_py.spark import register

dp: Any = pipelines
spark: Any = SparkSession.active()
register(spark)

NODES = spark.conf.get("disque.nodes")
PATH = spark.conf.get("disque.path")

dp.create_sink("disque_index", "disque-index", {"path": PATH})


def index() -> Any:
    """Events of all nodes into `history` and `current`."""
    events = spark.readStream.format("disque-events").option("bootstrapServers", NODES)
    return events.option("startingOffsets", "earliest").load()


dp.append_flow(name="index", target="disque_index")(index)
