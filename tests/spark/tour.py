"""A program that uses every data source once. test_spark_places.py runs it in all places where Spark can run.

    python tour.py <nodes> <folder> [remote]        or under spark-submit

Prints one line of JSON: the results, and the package that the driver and the executors have used.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

JOBS = 300


def open_session(remote: str) -> Any:
    """Return the session of spark-submit, or of a server of Spark Connect that Spark starts for this program."""
    from pyspark.sql import SparkSession

    return (SparkSession.builder.remote(remote) if remote else SparkSession.builder).getOrCreate()


def where(_: Any) -> Any:
    """Return one row per task: the package that its Python finds."""
    import pyarrow as pa

    import disque_py

    yield pa.RecordBatch.from_pydict({"file": [disque_py.__file__]})


def until_now(stream: Any, form: str, path: str, checkpoint: str) -> None:
    """Read everything that exists now into a table."""
    writer = stream.writeStream.format(form).option("path", path).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def main(nodes: str, folder: str, remote: str = "") -> None:
    """Write rows as jobs, read jobs as rows, index events, and read the index back."""
    import disque_py
    from disque_py.spark import register

    spark = open_session(remote)
    register(spark)
    rows = spark.range(JOBS).selectExpr("CAST(id AS string) AS body", "map('kind', 'tour') AS meta").repartition(2)
    writer = rows.write.format("disque").options(bootstrapServers=nodes, queue="tour", onError="fail")
    writer.mode("append").save()
    jobs = spark.readStream.format("disque").options(bootstrapServers=nodes, subscribe="tour").load()
    until_now(jobs, "parquet", f"{folder}/jobs", f"{folder}/checkpoint-jobs")
    time.sleep(1.5)  # Events can be read after the next fsync of their log.
    events = spark.readStream.format("disque-events").options(bootstrapServers=nodes, startingOffsets="earliest").load()
    until_now(events, "disque-index", f"{folder}/index", f"{folder}/checkpoint-index")
    index = spark.read.format("disque-index").option("table", "current").load(f"{folder}/index")
    found = {
        "bodies": spark.read.parquet(f"{folder}/jobs").selectExpr("CAST(body AS string)").distinct().count(),
        "completed": index.where("to_state = 'completed'").count(),
        "events": spark.read.format("disque-events").option("bootstrapServers", nodes).load().count(),
        "driver": disque_py.__file__,
        "executors": [row.file for row in rows.mapInArrow(where, "file string").distinct().collect()],
        "version": spark.version,
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
