# ruff: noqa: E402 — the import path comes first
"""Figures of the Spark side, against real nodes on this machine.

    python tests/benchmarks/spark_figures.py [sink] [jobs] [index] [freshness] [query] [--rows N] [--nodes N]

Needs the extra disque-py[spark]. Rates depend on the machine, whose cores the nodes, the JVM and its
Python workers share; so each figure stands beside one of the same run that needs no Spark.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "integration"), str(ROOT / "tests" / "unit")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

from disque_py.client import Disque
from disque_py.spark.events_reading import EventPlanner, event_options
from disque_py.spark.pipelines import index
from disque_py.spark.pipelines.session import open_session
from disque_py.spark.query import questions
from disque_py.spark.query.tables import open_index
from servers import Cluster

BODY = "x" * 75
PROBE_S = 0.25


def places(cluster: Cluster) -> str:
    """bootstrapServers."""
    return ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers)


def say(name: str, value: str) -> None:
    """One figure."""
    print(f"{name:<58} {value:>16}", flush=True)


def rate(count: int, began: float) -> str:
    """Per second."""
    return f"{count / (time.monotonic() - began):,.0f}/s"


def sink(spark: Any, cluster: Cluster, rows: int, folder: Path) -> None:
    """Rows per second into one node, beside the client library in a plain program."""
    one = places(cluster).split(",")[0]
    for attempt in ("cold", "warm"):
        began = time.monotonic()
        with Disque(one, discover=False) as disque:
            disque.add_jobs(f"plain-{attempt}", [BODY] * rows, retry=3600)
        say(f"plain pipelined Python, {attempt}", rate(rows, began))
        frame = spark.range(0, rows, numPartitions=2).selectExpr(f"'{BODY}' AS body")
        began = time.monotonic()
        writer = frame.write.format("disque").option("bootstrapServers", one).option("retry", "3600")
        writer.option("queue", f"batch-{attempt}").mode("append").save()
        say(f"sink, batch, {attempt}", rate(rows, began))
    source = str(folder / "rows")
    spark.range(0, rows, numPartitions=4).selectExpr(f"'{BODY}' AS body").write.parquet(source)
    stream = spark.readStream.schema("body string").option("maxFilesPerTrigger", 2).parquet(source)
    writer = stream.writeStream.format("disque").option("bootstrapServers", one).option("queue", "stream")
    writer = writer.option("retry", "3600").option("checkpointLocation", str(folder / "sink"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    for progress in query.recentProgress:
        if progress["numInputRows"]:
            say(f"sink, stream, batch {progress['batchId']}", f"{progress['processedRowsPerSecond']:,.0f}/s")


def jobs(spark: Any, cluster: Cluster, rows: int, folder: Path) -> None:
    """Jobs per second out of the queues, executors fetching."""
    with Disque(*places(cluster).split(",")) as disque:
        disque.add_jobs("work", [BODY] * rows, retry=3600, replicate=1)
    reader = spark.readStream.format("disque").option("bootstrapServers", places(cluster)).option("subscribe", "work")
    frame = reader.option("maxJobsPerTrigger", str(max(1, rows // 3))).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "jobs"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    for progress in query.recentProgress:
        if progress["numInputRows"]:
            batch = f"job source, batch {progress['batchId']} of {progress['numInputRows']:,}"
            say(batch, f"{progress['processedRowsPerSecond']:,.0f}/s")


def make_events(cluster: Cluster, rows: int) -> None:
    """About three events per job."""
    with Disque(*places(cluster).split(",")) as disque:
        disque.add_jobs("flights", [BODY] * rows, retry=3600, replicate=1)
        left = rows
        while left:
            taken = disque.get_jobs("flights", count=1000, timeout_ms=1000)
            disque.ack_jobs(taken)
            left = left - len(taken) if taken else 0
    time.sleep(1.5)


def indexes(spark: Any, cluster: Cluster, rows: int, folder: Path) -> None:
    """Events per second through both tables, per micro-batch."""
    make_events(cluster, rows)
    options = {"bootstrapServers": places(cluster), "startingOffsets": "earliest"}
    planner = EventPlanner(event_options(options, is_stream=True))
    total = sum(piece.end - piece.start for piece, _ in planner.ranges(planner.latest(planner.initial())))
    planner.close()
    began = time.monotonic()
    query = index.run(
        spark, places(cluster), str(folder / "index"), trigger=None,
        source={"maxOffsetsPerTrigger": str(max(1, total // 4)), "minPartitions": "2"},
    )  # fmt: skip
    query.awaitTermination()
    for progress in query.recentProgress:
        if progress["numInputRows"]:
            batch = f"index, batch {progress['batchId']} of {progress['numInputRows']:,} events"
            say(batch, f"{progress['processedRowsPerSecond']:,.0f}/s")
    say(f"index, {total:,} events, all in all", rate(total, began))


def freshness(spark: Any, cluster: Cluster, rows: int, folder: Path) -> None:
    """How old an event is when it can be seen in `current`, at a trigger of two seconds."""
    path = str(folder / "fresh")
    query = index.run(spark, places(cluster), path, trigger="2 seconds")
    ages: list[float] = []
    ended = threading.Event()

    def add() -> None:
        with Disque(*places(cluster).split(",")) as disque:
            while not ended.wait(0.05):
                disque.add_jobs("fresh", [BODY] * 20, retry=3600)

    producer = threading.Thread(target=add)
    producer.start()
    newest = 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(PROBE_S)
        try:
            with open_index(path) as db:
                found = questions.ask(db, "SELECT epoch_ms(max(ts)) FROM current WHERE queue = 'fresh'").rows[0][0]
        except Exception:
            continue
        if found is not None and found > newest:
            newest = found
            ages.append(time.time() - newest / 1000)
    ended.set()
    producer.join()
    query.stop()
    # The first batches start Spark's workers.
    ages = sorted(ages[3:])
    say("freshness of current at a 2 s trigger, p50", f"{statistics.median(ages):.1f} s")
    say("freshness of current at a 2 s trigger, p95", f"{ages[int(len(ages) * 0.95)]:.1f} s")


def query(spark: Any, cluster: Cluster, rows: int, folder: Path) -> None:
    """Milliseconds of the questions, on the index that `indexes` made."""
    path = str(folder / "index")
    if not Path(path).exists():
        indexes(spark, cluster, rows, folder)
    with open_index(path) as db:
        count = questions.summary(db)["events"]
        job_id = questions.ask(db, "SELECT job_id FROM current LIMIT 1 OFFSET 17").rows[0][0]
        asked: dict[str, Callable[[], object]] = {
            "trace": lambda: questions.trace(db, job_id),
            "depth": lambda: questions.depth(db),
            "latency": lambda: questions.latency(db),
            "depth over time": lambda: questions.depth_over_time(db),
        }
        for name, ask in asked.items():
            times = []
            for _ in range(7):
                began = time.perf_counter()
                ask()
                times.append((time.perf_counter() - began) * 1000)
            say(f"{name} on {count:,} events, median", f"{statistics.median(times):,.0f} ms")


BENCHMARKS = {"sink": sink, "jobs": jobs, "index": indexes, "freshness": freshness, "query": query}


def main() -> int:
    """Run what was asked for, all without a word."""
    parser = argparse.ArgumentParser(description="Figures of the Spark side.")
    parser.add_argument("names", nargs="*", help="all without one")
    parser.add_argument("--rows", type=int, default=300_000, help="rows or jobs (300,000)")
    parser.add_argument("--nodes", type=int, default=2, help="nodes of the cluster (2)")
    words = parser.parse_args()
    print(f"load at the start: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="disque-spark-") as folder:
        spark = open_session("figures", **{"spark.master": "local[2]"})
        try:
            for name in words.names or BENCHMARKS:
                below = Path(folder) / name if name != "query" else Path(folder) / "index"
                below.mkdir(exist_ok=True)
                with Cluster(below / "nodes", words.nodes, ["--events", "yes"]) as cluster:
                    BENCHMARKS[name](spark, cluster, words.rows, below)
        finally:
            spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
