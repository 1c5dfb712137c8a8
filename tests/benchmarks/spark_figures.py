# ruff: noqa: E402 — the import path comes first
"""Figures of the Spark side, against real nodes on this machine.

    python tests/benchmarks/spark_figures.py [sink] [jobs] [bodies] [index] [freshness] [query] [--markdown] [--rows N]

Needs the extra disque-py[spark]. Rates depend on the machine, because the nodes, the JVM and its Python workers share
its cores. So each rate is shown with a rate of the same run that needs no Spark, or with the CPU time of all processes
per row, event or job (process_cpu.py).
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "integration"), str(ROOT / "tests" / "support")]
sys.path[:0] = [str(ROOT / "tests" / "benchmarks")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

import duckdb

from disque_py.client import Disque
from disque_py.spark.delta_store import Store, TableError
from disque_py.spark.pipelines import index
from disque_py.spark.pipelines.session import open_session
from disque_py.spark.progress_file import last_note
from disque_py.spark.query import questions
from disque_py.spark.query.tables import open_index
from machine import described, in_words
from plan import memory_allowed
from process_cpu import JVM, NODES, cpu_seconds, micros_each
from servers import Cluster

BODY = "x" * 75
PROBE_S = 0.25
FRESHNESS_S = 60
# Twenty jobs are added this often.
STEP_S = 0.05
WARM_UP = 3
# Jobs and their bytes. The last ones are also measured as a stream, with this number per round.
BODIES = ((10_000, 2_000), (5_000, 10_000), (500, 100_000))
GOING_JOBS = 1_000
GOING_ROUNDS = 5
# The number of jobs that are added before they are fetched and acknowledged, so that most of a job's events come in one
# batch.
WAVE = 50_000
# The log of events is synced, and can be read, within a second.
SETTLE_S = 1.5

Lap = tuple[dict[str, Any], dict[str, float]]


class Figures:
    """The measurements: each is printed when it is taken, and all as a table at the end.

    load   the machine's load when the figure was taken
    """

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, float]] = []

    def say(self, name: str, value: str, cpu: dict[str, float] | None = None) -> None:
        """Print and keep one figure. `cpu` is in microseconds by group."""
        spent = "" if cpu is None else _spent(cpu)
        load = os.getloadavg()[0]
        self.rows.append((name, value, spent, load))
        print(f"{name:<52} {value:>12}  {spent:<48} load {load:.1f}", flush=True)

    def markdown(self) -> str:
        """Return a table for docs/performance.md."""
        lines = ["| what | measured | CPU µs each: nodes + JVM + Python = all | load |", "|---|---:|---:|---:|"]
        lines += [f"| {name} | {value} | {spent} | {load:.1f} |" for name, value, spent, load in self.rows]
        return "\n".join(lines)


def _spent(cpu: dict[str, float]) -> str:
    total = sum(cpu.values())
    rest = total - cpu[NODES] - cpu[JVM]
    return f"{cpu[NODES]:.1f} + {cpu[JVM]:.1f} + {rest:.1f} = {total:.1f}"


def places(cluster: Cluster) -> str:
    """Return the option bootstrapServers."""
    return ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers)


def timed(figures: Figures, name: str, count: int, work: Callable[[], object]) -> float:
    """Do the work, print the rate per second, and return it."""
    before, began = cpu_seconds(), time.monotonic()
    work()
    rate = count / (time.monotonic() - began)
    figures.say(name, f"{rate:,.0f}/s", micros_each(before, cpu_seconds(), count))
    return rate


def batches(query: Any, rows_of: Callable[[dict[str, Any]], int]) -> Iterator[tuple[int, float, Lap]]:
    """Yield for each batch that ends: rows, rows per second, and (progress, CPU microseconds per row)."""
    seen, before = -1, cpu_seconds()
    while query.isActive or (query.lastProgress and query.lastProgress["batchId"] != seen):
        time.sleep(0.05)
        progress = query.lastProgress
        if not progress or progress["batchId"] == seen:
            continue
        seen, after, count = progress["batchId"], cpu_seconds(), rows_of(progress)
        if count:
            rate = count * 1000 / max(1, progress["durationMs"]["triggerExecution"])
            yield count, rate, (progress, micros_each(before, after, count))
        before = after
    query.awaitTermination()


def sink(figures: Figures, spark: Any, cluster: Cluster, words: argparse.Namespace, folder: Path) -> None:
    """Measure rows per second into one node, compared with the client library in a plain program."""
    one, rows = places(cluster).split(",")[0], words.rows
    ratios = []
    for attempt in ("cold", "warm", "warm again"):
        with Disque(one, discover=False) as disque:
            plain = timed(
                figures, f"plain pipelined Python, {attempt}", rows,
                lambda disque=disque: disque.add_jobs("plain", [BODY] * rows, retry=3600),
            )  # fmt: skip
        frame = spark.range(0, rows, numPartitions=2).selectExpr(f"'{BODY}' AS body")
        writer = frame.write.format("disque").option("bootstrapServers", one).option("retry", "3600")
        rate = timed(figures, f"sink, batch, {attempt}", rows, writer.option("queue", "batch").mode("append").save)
        ratios.append(rate / plain)
    source = str(folder / "rows")
    spark.range(0, rows, numPartitions=6).selectExpr(f"'{BODY}' AS body").write.parquet(source)
    stream = spark.readStream.schema("body string").option("maxFilesPerTrigger", 2).parquet(source)
    writer = stream.writeStream.format("disque").option("bootstrapServers", one).option("queue", "stream")
    writer = writer.option("retry", "3600").option("checkpointLocation", str(folder / "sink"))
    query = writer.trigger(availableNow=True).start()
    for count, rate, (progress, cpu) in batches(query, lambda progress: int(progress["numInputRows"])):
        figures.say(f"sink, stream, batch {progress['batchId']} of {count:,}", f"{rate:,.0f}/s", cpu)
    figures.say("sink, batch / plain, median of the warm ones (≥ 0.9)", f"{statistics.median(ratios[1:]):.2f}")


def jobs(figures: Figures, spark: Any, cluster: Cluster, words: argparse.Namespace, folder: Path) -> None:
    """Measure jobs per second out of the queues: executors fetch, and acks are included."""
    for place in places(cluster).split(","):
        with Disque(place, discover=False) as disque:
            disque.add_jobs("work", [BODY] * (words.rows // len(cluster.servers)), retry=3600, replicate=1)
    reader = spark.readStream.format("disque").option("bootstrapServers", places(cluster)).option("subscribe", "work")
    frame = reader.option("maxJobsPerTrigger", str(max(1, words.rows // 3))).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "jobs"))
    query = writer.trigger(availableNow=True).start()
    for count, rate, (progress, cpu) in batches(query, lambda progress: int(progress["numInputRows"])):
        figures.say(f"job source, batch {progress['batchId']} of {count:,} (≥ 80,000/s)", f"{rate:,.0f}/s", cpu)


def bodies(figures: Figures, spark: Any, cluster: Cluster, words: argparse.Namespace, folder: Path) -> None:
    """Measure jobs with long bodies: whether AvailableNow takes all, and the rate of a continuous stream."""

    def source(queue: str) -> Any:
        reader = spark.readStream.format("disque").option("bootstrapServers", places(cluster))
        return reader.option("subscribe", queue).load().writeStream.format("noop")

    for count, size in BODIES:
        queue = f"bodies-{size}"
        fill(cluster, queue, count, size)
        writer = source(queue).option("checkpointLocation", str(folder / queue))
        began = time.monotonic()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        took = time.monotonic() - began
        taken = sum(progress["numInputRows"] for progress in query.recentProgress)
        figures.say(f"job source, {count:,} jobs of {size:,} bytes, AvailableNow", f"{taken:,} in {took:.1f} s")
    query = source("going").option("checkpointLocation", str(folder / "going")).start()
    rates = []
    for _ in range(GOING_ROUNDS):
        fill(cluster, "going", GOING_JOBS, BODIES[-1][1])
        began, seen = time.monotonic(), len(query.recentProgress)
        while sum(progress["numInputRows"] for progress in query.recentProgress[seen:]) < GOING_JOBS:
            time.sleep(0.02)
        rates.append(GOING_JOBS / (time.monotonic() - began))
    query.stop()
    what = f"job source, stream of {BODIES[-1][1]:,} bytes, median of {GOING_ROUNDS}"
    figures.say(what, f"{statistics.median(rates):,.0f}/s")


def fill(cluster: Cluster, queue: str, count: int, size: int) -> None:
    """Add jobs, equally to all nodes."""
    for place in places(cluster).split(","):
        with Disque(place, discover=False) as disque:
            disque.add_jobs(queue, ["x" * size] * (count // len(cluster.servers)), retry=3600, replicate=1)


def make_events(cluster: Cluster, rows: int) -> None:
    """Make three events for each job, equally on all nodes."""
    for place in places(cluster).split(","):
        with Disque(place, discover=False) as disque:
            left = rows // len(cluster.servers)
            while left:
                wave = min(WAVE, left)
                disque.add_jobs("flights", [BODY] * wave, retry=3600, replicate=1)
                left -= wave
                while wave and (taken := disque.get_jobs("flights", count=1000, timeout_ms=1000)):
                    disque.ack_jobs(taken)
                    wave -= len(taken)
    time.sleep(SETTLE_S)


def indexes(figures: Figures, spark: Any, cluster: Cluster, words: argparse.Namespace, folder: Path) -> None:
    """Measure events per second through both tables, per micro-batch."""
    make_events(cluster, words.rows)
    path = str(folder / "index")
    query = index.run(
        spark, places(cluster), path, trigger=None,
        source={"maxOffsetsPerTrigger": str(words.batch), "minPartitions": "2"},
    )  # fmt: skip
    store = Store(path)
    for count, rate, (progress, cpu) in batches(query, lambda progress: int(last_note(store).get("rows", 0))):
        if count < words.batch // 2:
            continue  # The last micro-batch is smaller than the requested size.
        what = f"index, batch {progress['batchId']} of {count:,} events"
        figures.say(f"{what}, cold" if progress["batchId"] == 0 else f"{what} (≥ 120,000/s)", f"{rate:,.0f}/s", cpu)


def freshness(figures: Figures, spark: Any, cluster: Cluster, words: argparse.Namespace, folder: Path) -> None:
    """Measure the age of events when they first appear in `current`, with a trigger of two seconds, for all events."""
    path = str(folder / "fresh")
    query = index.run(spark, places(cluster), path, trigger="2 seconds")
    ages: list[float] = []
    ended = threading.Event()

    def add() -> None:
        with Disque(*places(cluster).split(",")) as disque:
            while not ended.wait(STEP_S):
                disque.add_jobs("fresh", [BODY] * 20, retry=3600)

    producer = threading.Thread(target=add)
    producer.start()
    newest = seen = 0
    deadline = time.monotonic() + FRESHNESS_S
    while time.monotonic() < deadline:
        time.sleep(PROBE_S)
        try:
            with open_index(path) as db:
                found = questions.ask(db, "SELECT epoch_ms(max(ts)) FROM current WHERE queue = 'fresh'").rows[0][0]
        except (TableError, duckdb.Error) as error:
            if newest:
                raise RuntimeError("the index could be read, and now it can't") from error
            continue  # The first batch has not made the tables yet.
        now_ms = time.time() * 1000
        if found is not None and found > newest:
            # The first batches start Spark's workers.
            seen += 1
            if seen > WARM_UP:
                ages += [(now_ms - at_ms) / 1000 for at_ms in range(found, newest, -round(STEP_S * 1000))]
            newest = found
    ended.set()
    producer.join()
    query.stop()
    ages.sort()
    figures.say("freshness of current at a 2 s trigger, p50", f"{statistics.median(ages):.1f} s")
    figures.say("freshness of current at a 2 s trigger, p95 (≤ 4 s)", f"{ages[int(len(ages) * 0.95)]:.1f} s")


def query(figures: Figures, spark: Any, cluster: Cluster, words: argparse.Namespace, folder: Path) -> None:
    """Measure the milliseconds of each question, on the index that `indexes` made."""
    path = str(folder / "index")
    if not Path(path).exists():
        indexes(figures, spark, cluster, words, folder)
    with open_index(path) as db:
        count = questions.summary(db)["events"]
        job_id = questions.ask(db, "SELECT job_id FROM current LIMIT 1 OFFSET 17").rows[0][0]
        asked: dict[str, Callable[[], object]] = {
            "trace (≤ 50 ms)": lambda: questions.trace(db, job_id),
            "depth (≤ 50 ms)": lambda: questions.depth(db),
            "latency": lambda: questions.latency(db),
            "depth over time": lambda: questions.depth_over_time(db),
        }
        for name, ask in asked.items():
            times = []
            for _ in range(7):
                began = time.perf_counter()
                ask()
                times.append((time.perf_counter() - began) * 1000)
            figures.say(f"{name} on {count:,} events, median", f"{statistics.median(times):,.0f} ms")
    program = Path(sys.executable).with_name("disque-query")
    command = [str(program), path, "trace", job_id if isinstance(job_id, str) else job_id.decode()]
    times = []
    for _ in range(7):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - began) * 1000)
    figures.say(
        f"disque-query … trace, whole process (≤ 700 ms), {count:,} events", f"{statistics.median(times):,.0f} ms"
    )


BENCHMARKS = {"sink": sink, "jobs": jobs, "bodies": bodies, "index": indexes, "freshness": freshness, "query": query}


def main() -> int:
    """Run the measurements of the command line; without words all of them."""
    parser = argparse.ArgumentParser(description="Figures of the Spark side.")
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="all without one")
    parser.add_argument(
        "--rows", type=int, default=350_000, help="rows or jobs (350,000); an index has three times as many"
    )
    parser.add_argument("--batch", type=int, default=500_000, help="events of a micro-batch of the index (500,000)")
    parser.add_argument("--nodes", type=int, default=2, help="nodes of the cluster (2)")
    parser.add_argument("--markdown", action="store_true", help="a table for docs/performance.md at the end")
    words = parser.parse_args()
    # Nodes and workers are ended at the end, even if the run is interrupted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    machine = in_words(described())
    print(machine, flush=True)
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="disque-spark-") as folder:
        spark = open_session("figures", **{"spark.master": "local[2]"})
        try:
            for name in words.names or BENCHMARKS:
                below = Path(folder) / name if name != "query" else Path(folder) / "index"
                below.mkdir(exist_ok=True)
                # More than the default of 1 GB, because the sink's rows stay until the end.
                options = ["--events", "yes", "--maxmemory", memory_allowed() // words.nodes]
                with Cluster(below / f"nodes-of-{name}", words.nodes, options) as cluster:
                    BENCHMARKS[name](figures, spark, cluster, words, below)
        finally:
            spark.stop()
    if words.markdown:
        print(f"{figures.markdown()}\n\n{machine}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
