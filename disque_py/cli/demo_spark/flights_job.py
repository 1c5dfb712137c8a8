"""The Spark program of the demonstration: flights become jobs, and the events of all nodes become an index.

    python -m disque_py.cli.demo_spark.flights_job <nodes> <file of flights> <path of the index>

One Spark session does both: the index from the start, the flights after an order. The program reports in lines of JSON
on stdout (`kind` ready, batch, produced, indexed). It takes orders as words on stdin: `produce`, then `finish`. It also
ends at the end of stdin.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, Final

# Two tasks add flights, so that two are left for the index, even on a machine with fewer cores.
MASTER: Final = "local[4]"
PRODUCING_TASKS: Final = 2
# A flight that waited on the killed node is queued again by the other holder after this many seconds.
RETRY_SECONDS: Final = 30
# The time limit for the copies of a job while a node is gone and the others are busy.
ADD_TIMEOUT_MS: Final = 60_000
# The time that the index waits for the killed node.
FETCH_TIMEOUT_MS: Final = 180_000

# The fields of a flight that are needed. The body of its job is the line as it was read.
FLIGHT: Final = (
    "row BIGINT, carrier STRING, origin STRING, dest STRING, tailnum STRING, sched_dep_time INT, time_hour TIMESTAMP"
)
# sched_dep_time is 1605 for 16:05; time_hour is the start of that hour, in UTC.
DEPARTURE_MS: Final = "unix_millis(flight.time_hour) + (flight.sched_dep_time % 100) * 60000L"
# The sink refuses a map with null values, and a few flights have no tail number.
META: Final = """map_filter(
    map('carrier', flight.carrier, 'origin', flight.origin, 'dest', flight.dest, 'tailnum', flight.tailnum),
    (name, value) -> value IS NOT NULL)"""


def jobs_of(spark: Any, path: str) -> Any:
    """Return a DataFrame of jobs, one for each line of a file of flights.

    The row number is the key. So a row whose answer was lost with a killed node makes no second job.
    """
    from pyspark.sql import functions as f

    lines = spark.read.text(path).withColumn("flight", f.from_json("value", FLIGHT))
    return lines.selectExpr(
        "value AS body",
        "flight.carrier AS queue",
        f"{DEPARTURE_MS} AS priority",
        f"{META} AS meta",
        "CAST(flight.row AS STRING) AS dedupKey",
    )


def say(kind: str, **more: Any) -> None:
    """Print one line for the process that has started this one."""
    print(json.dumps({"kind": kind, **more}), flush=True)


def indexed_events(progress: dict[str, Any]) -> int:
    """Return the number of events up to the end of a batch, from Spark's report. Logs begin with number 1."""
    offset = progress["sources"][0]["endOffset"]
    nodes = (json.loads(offset) if isinstance(offset, str) else offset)["nodes"]
    return sum(place["next"] - 1 for place in nodes.values())


def listener() -> Any:
    """Return a listener that reports every batch of the index."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Teller(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 — Spark's names
            """Do nothing."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            """Report that a batch is in the index."""
            say("batch", indexed=indexed_events(json.loads(event.progress.json)))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Do nothing."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """End the demonstration, because the index has stopped."""
            if event.exception:
                print(event.exception, file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGTERM)

    return Teller()


def main(nodes: str, flights: str, path: str) -> None:
    """Follow the orders on stdin."""
    from disque_py.spark.pipelines import index
    from disque_py.spark.pipelines.session import open_session

    spark = open_session("demo", **{"spark.master": MASTER, "spark.sql.shuffle.partitions": "2"})
    try:
        spark.streams.addListener(listener())
        source = {"reader": "demo", "fetch.timeoutMs": f"{FETCH_TIMEOUT_MS}"}
        query = index.run(spark, nodes, path, trigger="2 seconds", source=source)
        say("ready", version=spark.version)
        for word in map(str.strip, sys.stdin):
            if word == "produce":
                jobs = jobs_of(spark, flights).coalesce(PRODUCING_TASKS)
                options = {"bootstrapServers": nodes, "replicate": "2", "retry": f"{RETRY_SECONDS}"}
                writer = jobs.write.format("disque").options(**options, timeoutMs=f"{ADD_TIMEOUT_MS}")
                writer.mode("append").save()
                say("produced")
            elif word == "finish":
                query.processAllAvailable()
                query.stop()
                say("indexed")
                break
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
