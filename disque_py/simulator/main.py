"""bin/disque-sim: play seeds, show the progress, and report broken rules.

The only module of the simulator that uses real processes, the real clock and the terminal. Users: docs/simulator.md.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from disque_py import __version__
from disque_py.output_errors import naming
from disque_py.program_commands import ProgramCommand
from disque_py.shell_scripts import completion_option
from disque_py.simulator.figures import COLUMNS, Figures
from disque_py.simulator.focused_plans import FOCUSES, draw_focused
from disque_py.simulator.plan import WEATHER, Keep, Plan, draw
from disque_py.simulator.shrink import RUNS_MAX, shrink
from disque_py.simulator.simulation import Failure, Result, simulate
from disque_py.simulator.world.world import World

SECONDS: Final = 10
SECONDS_MIN: Final = 0.1
SEEDS: Final = 50
# Seeds that are queued for the processes ahead of the seeds that are done.
AHEAD: Final = 2
FAILURES_SHRUNK_MAX: Final = 3
# The file of --report is written after the first seed, and then after each further group of this many seeds.
REPORT_EVERY: Final = 50
REPORT_COLUMNS: Final = 160
# New objects between two runs of the garbage collector.
GARBAGE_MIN: Final = 50_000
# A shell's exit status after Ctrl-C, also used after SIGTERM.
INTERRUPTED: Final = 130
# A run in a terminal ends at the first failure, because a person waits for it. A run with --report goes on.
FAILURES_MAX: Final = 1


@dataclass(frozen=True, slots=True)
class Order:
    """A seed to play, with its options."""

    seed: int
    seconds: float
    weather: str
    keep: str
    focus: str = ""

    def plan(self) -> Plan:
        """Return the plan of the seed, or the part of it that is kept."""
        duration_ms = round(self.seconds * 1000)
        if self.focus:
            plan = draw_focused(self.focus, self.seed, duration_ms, weather=self.weather)
        else:
            plan = draw(self.seed, duration_ms, weather=self.weather)
        return plan.kept(Keep.read(self.keep)) if self.keep else plan

    def play(self) -> Result:
        """Play the seed."""
        result = simulate(self.plan())
        # The world is gone, but its cycles are not. With collect_seldom(), a process would keep a gigabyte of them.
        gc.collect()
        return result

    def command(self, keep: str) -> str:
        """Return the command that plays the seed again."""
        words = [f"bin/disque-sim --seeds {self.seed} --seconds {self.seconds:g}"]
        words += [f"--focus {self.focus}"] if self.focus else []
        words += [f"--weather {self.weather}"] if self.weather else []
        words += [f'--keep "{keep}"'] if keep else []
        return " ".join(words)


def play(order: Order) -> Result:
    """Play a seed in a process of the pool."""
    return order.play()


def collect_seldom() -> None:
    """Collect garbage less often: a world has millions of objects, and only simulated deaths leave cycles."""
    gc.set_threshold(GARBAGE_MIN)


def settle_in() -> None:
    """Prepare a process of the pool: it finishes its seed after Ctrl-C, which only the main process handles."""
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 seed`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class Report:
    """The output: a progress bar, each failure when it happens, and figures at the end; the same in a file."""

    def __init__(self, *, is_hashing: bool, total: int | None, path: Path | None = None) -> None:
        self._path = path
        self._failures: list[str] = []
        self.console = Console(stderr=is_hashing, highlight=False)
        self.figures = Figures()
        self.failed = 0
        self._is_hashing = is_hashing
        self._started_s = time.monotonic()
        self._bar = Progress(
            TextColumn("seeds"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]} events/s"),
            TextColumn("{task.fields[failed]}", style="red"),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, rate="-", failed="")

    def __enter__(self) -> Report:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def add(self, order: Order, result: Result) -> None:
        """Add the result of a seed."""
        self.figures.add(result.plan.weather, result.figures)
        if self._is_hashing:
            click.echo(f"{order.seed} {result.digest}")
        if result.failure is not None:
            self.failed += 1
            self._failures.append(f"{told(result.failure)}\n    {order.command('')}")
            self.console.print(f"seed {order.seed}: {told(result.failure)}", markup=False, style="red")
        if self.figures.total["seeds"] % REPORT_EVERY == 1:
            self.write()
        rate = self.figures.events() / max(0.001, time.monotonic() - self._started_s)
        failed = f"{self.failed} failed" if self.failed else ""
        self._bar.update(self._task, advance=1, rate=f"{rate:,.0f}", failed=failed)

    def show_failure(self, order: Order, result: Result) -> None:
        """Show a shrunk failure: the rest of the plan, the last events, and the command that replays it."""
        failure = result.failure
        assert failure is not None
        plan = result.plan
        journals = " ".join(dict.fromkeys(name or "none" for name in plan.journals[: plan.nodes]))
        lines = [
            "",
            f"seed {order.seed}: {told(failure)}",
            f"  {_counted(plan.nodes, 'node')}, weather {' '.join(plan.weather) or 'fair'}, journals {journals},"
            f" {_counted(len(plan.clients), 'client')}, {_counted(len(plan.faults), 'fault')}, at {failure.at_ms} ms",
            *failure.transcript,
            f"again: {order.command(str(plan.keep))}",
        ]
        for line in lines:
            self.console.print(line, markup=False, soft_wrap=True)

    def write(self) -> None:
        """Write the file with the progress and all failures. A reader sees either the old file or the new one."""
        if self._path is not None:
            console = Console(file=StringIO(), width=REPORT_COLUMNS, highlight=False)
            self.show_summary(console)
            for failure in self._failures:
                console.print(failure, markup=False, soft_wrap=True)
            assert isinstance(console.file, StringIO)
            draft = self._path.with_name(self._path.name + ".new")
            try:
                with naming(draft):
                    draft.write_text(console.file.getvalue(), encoding="utf-8")
                draft.replace(self._path)
            except OSError as error:
                draft.unlink(missing_ok=True)
                what = f"--report {self._path} can't be written: {error.strerror or error}; name another file"
                raise click.ClickException(what) from error

    def show_summary(self, console: Console) -> None:
        """Show the figures of all seeds."""
        total = self.figures.total
        seconds = time.monotonic() - self._started_s
        table = Table(box=None, pad_edge=False)
        for name in COLUMNS:
            table.add_column(name, justify="left" if name == "weather" else "right")
        for row in self.figures.rows():
            table.add_row(*row)
        console.print(table)
        console.print(
            f"{_counted(total.get('seeds', 0), 'seed')}, {self.failed} failed;"
            f" {total.get('virtual_ms', 0) / 1000:,.0f} virtual seconds in {seconds:,.0f} real ones;"
            f" {self.figures.events():,} commands, messages and timers,"
            f" {self.figures.events() / max(seconds, 0.001):,.0f} per second;"
            f" {_counted(total.get('faults', 0), 'fault')},"
            f" {_counted(total.get('deaths', 0), 'death')}, {_counted(total.get('jobs', 0), 'job')}",
            soft_wrap=True,
        )
        together = self.figures.together()
        if together.seeds:
            console.print(f"acknowledged jobs that came again: {together}", soft_wrap=True)
        for line in self.figures.excesses():
            console.print(line, style="red")


def told(failure: Failure) -> str:
    """Return a failure as one line."""
    return f"{failure.rule}: {failure.detail}"


class Playing:
    """The seeds that are being played, in this process or in others.

    `failed` and `is_interrupted` are the outcome. After `failures_max` failed seeds no further seed begins; 0 sets no
    limit.
    """

    def __init__(self, report: Report, until_s: float, failures_max: int = 0) -> None:
        self.failed: list[tuple[Order, Result]] = []
        self.is_interrupted = False
        self._report = report
        self._until_s = until_s
        self._failures_max = failures_max
        self._pending: dict[Future[Result], Order] = {}
        self._results: dict[int, tuple[Order, Result]] = {}
        self._next = 0

    @property
    def _is_over(self) -> bool:
        """Return whether no further seed may begin."""
        has_failed = bool(self._failures_max) and len(self.failed) >= self._failures_max
        return has_failed or time.monotonic() >= self._until_s

    def run(self, orders: Iterator[Order], jobs: int) -> None:
        """Play all seeds, or stop at the time limit, the limit of failures or an interrupt.

        Processes finish the seeds that they have begun.
        """
        try:
            if jobs == 1:
                self._play_here(orders)
            else:
                self._play_there(orders, jobs)
        except KeyboardInterrupt:
            self.is_interrupted = True

    def _play_here(self, orders: Iterator[Order]) -> None:
        collect_seldom()
        with interrupting_worlds():
            for order in orders:
                self._done(order, order.play())
                if self._is_over or World.is_interrupted:
                    self.is_interrupted = World.is_interrupted
                    break

    def _play_there(self, orders: Iterator[Order], jobs: int) -> None:
        with ProcessPoolExecutor(jobs, initializer=settle_in) as pool:
            try:
                for order in orders:
                    if self._is_over:
                        self._call_off()
                        break
                    if not (self._pending or self._results):
                        self._next = order.seed
                    self._pending[pool.submit(play, order)] = order
                    while len(self._pending) >= jobs * AHEAD:
                        self._collect()
            except KeyboardInterrupt:
                self.is_interrupted = True
                self._call_off()
            while self._pending:
                self._collect()
                if self._is_over:
                    self._call_off()
            for seed in sorted(self._results):  # Some seeds before these were cancelled.
                self._done(*self._results[seed])

    def _call_off(self) -> None:
        """Cancel the seeds that no process has begun."""
        self._pending = {future: order for future, order in self._pending.items() if not future.cancel()}

    def _collect(self) -> None:
        """Wait until one seed ends. Show the results so far in the order of seeds."""
        ended, _ = wait(self._pending, return_when=FIRST_COMPLETED)
        for future in ended:
            order = self._pending.pop(future)
            self._results[order.seed] = (order, future.result())
        while self._next in self._results:
            self._done(*self._results.pop(self._next))
            self._next += 1

    def _done(self, order: Order, result: Result) -> None:
        self._report.add(order, result)
        if result.failure is not None:
            self.failed.append((order, result))


def show_failures(report: Report, failed: list[tuple[Order, Result]], runs_max: int) -> None:
    """Shrink and show each failure. After an interrupt, print only the commands that replay the other failures."""
    left = list(failed)
    try:
        with interrupting_worlds():
            while left:
                order, result = left[0]
                again = shrink(result, runs_max)
                report.show_failure(order, again if again.failure is not None else result)
                del left[0]
    except KeyboardInterrupt:
        for order, result in left:
            report.show_failure(order, result)


def interrupt(*_: object) -> None:
    """Handle SIGTERM like Ctrl-C."""
    raise KeyboardInterrupt


@contextmanager
def interrupting_worlds() -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end the world that this process plays. Worlds look for that often, and then raise."""

    def stop(*_: object) -> None:
        World.is_interrupted = True

    handlers = [(number, signal.signal(number, stop)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        World.is_interrupted = False
        for number, handler in handlers:
            signal.signal(number, handler)


def seeds_of(text: str) -> range:
    """Return the seeds of `7`, or of `7..20`, which includes both ends."""
    first, dots, last = text.partition("..")
    try:
        seeds = range(int(first), int(last if dots else first) + 1)
    except ValueError:
        raise click.BadParameter(f"'{text}' is neither a number nor FIRST..LAST", param_hint="--seeds") from None
    if not seeds:
        raise click.BadParameter(f"'{text}' has no seeds: write the smaller number first", param_hint="--seeds")
    return seeds


@click.command(cls=ProgramCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", metavar="FIRST..LAST", help="Seeds to play, or one seed.")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    help="Play seeds for this time, starting with --seeds or a random one.",
)
@click.option("--seconds", type=click.FloatRange(SECONDS_MIN), default=SECONDS, show_default=True,
              help="Virtual seconds with faults per seed.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True,
              help="Number of processes that play seeds.")  # fmt: skip
@click.option("--weather", metavar="KIND[+KIND...]", help=f"Only this weather (kinds of faults): {', '.join(WEATHER)}.")
@click.option(
    "--focus",
    type=click.Choice(list(FOCUSES)),
    help="Only clients of one part of the broker, and the faults that matter to it.",
)
@click.option("--keep", default="", help="The part of a seed's plan to keep, as printed for a shrunk failure.")
@click.option("--trace-hash", is_flag=True, help="Print a line `seed hash` for each seed.")
@click.option("--transcript", is_flag=True, help="Print the last events even if no rule broke.")
@click.option(
    "--report",
    "report_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file for the summary and the failures, which is kept up to date.",
)
@click.option("--shrink/--no-shrink", "shrinks", default=True, help="Whether to make failing plans smaller.")
@click.option(
    "--failures",
    "failures_max",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"End after N seeds that failed; 0: never. By default {FAILURES_MAX}, and with --report 0.",
)
@completion_option("disque-sim")
@click.version_option(__version__, message="disque-sim %(version)s")
def main(
    seeds: str | None,
    minutes: float | None,
    seconds: float,
    jobs: int,
    weather: str | None,
    focus: str | None,
    keep: str,
    trace_hash: bool,
    transcript: bool,
    report_path: Path | None,
    shrinks: bool,
    failures_max: int | None,
) -> None:
    """Run clusters of the real broker under faults, on a virtual clock, network and disk.

    A seed decides everything in a run. Without --seeds and --minutes, seeds 1 to 50 are played. If a rule is broken,
    the program makes the failing plan smaller, prints it with its last events, and exits with status 1. The first
    failure ends the run, unless --failures or --report is given. Ctrl-C ends the run with a summary of the seeds that
    were played.
    """
    unknown = [kind for kind in (weather or "fair").split("+") if kind not in WEATHER]
    if unknown:
        raise click.BadParameter(
            f"there is no weather '{unknown[0]}'; the kinds are {', '.join(WEATHER)}", param_hint="--weather"
        )
    chosen = seeds_of(seeds) if seeds else range(1, SEEDS + 1)
    until_s = float("inf")
    if minutes is not None:
        start = chosen.start if seeds else int.from_bytes(os.urandom(4), "big")
        chosen = range(start, sys.maxsize)
        until_s = time.monotonic() + minutes * 60
    try:
        Keep.read(keep)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--keep") from None
    orders = (Order(seed, seconds, weather or "", keep, focus or "") for seed in chosen)
    signal.signal(signal.SIGTERM, interrupt)
    if report_path is not None and not os.access(report_path.parent, os.W_OK):
        raise click.BadParameter(
            f"{report_path.parent} is missing, or can't be written; name a file in another directory",
            param_hint="--report",
        )
    if failures_max is None:
        failures_max = 0 if report_path is not None else FAILURES_MAX
    with Report(is_hashing=trace_hash, total=None if minutes is not None else len(chosen), path=report_path) as report:
        playing = Playing(report, until_s, failures_max)
        playing.run(orders, jobs)
    report.write()
    failed = playing.failed
    if failed and not playing.is_interrupted:
        show_failures(report, failed[:FAILURES_SHRUNK_MAX], RUNS_MAX if shrinks else 0)
    if transcript and not failed:
        first = Order(chosen.start, seconds, weather or "", keep, focus or "")
        for line in simulate(first.plan(), is_read=True).transcript:
            report.console.print(line, markup=False, soft_wrap=True)
    report.show_summary(report.console)
    if failed or report.figures.excesses():
        sys.exit(1)
    sys.exit(INTERRUPTED if playing.is_interrupted else 0)


if __name__ == "__main__":
    main()
