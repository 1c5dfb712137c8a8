"""The benchmarks: python tests/benchmarks [--quick] [name …]. docs/performance.md describes each one.

Every benchmark starts its own nodes, and ends them even after Ctrl-C or when its time is over. Rows that were measured
until then are shown and kept. The exit status is 1 if a benchmark could not be finished.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from rich.console import Console

from catalogue import BENCHMARKS
from figures import Benchmark, Past, Results, Row, markdown_table, read_results, screen_table
from load import LoadError
from machine import described, in_words, is_busy
from plan import Plan, memory_available
from redis_load import RedisBenchmarkError

LIMIT_SECONDS, QUICK_LIMIT_SECONDS = 1800.0, 180.0
SCREEN_WIDTH = 140  # The width if the output is not a terminal.
FAILURE, INTERRUPTED = 1, 130


class TimeOverError(Exception):
    """A benchmark exceeded its time limit."""


def main(argv: list[str]) -> int:
    """Run the benchmarks of the command line, and return the exit status."""
    options = _read(argv)
    console = Console(width=None if sys.stdout.isatty() else SCREEN_WIDTH)
    try:
        before = read_results(options.against) if options.against else None
    except (OSError, ValueError) as error:
        console.print(f"--against: {error}", markup=False)
        return FAILURE
    machine = described()
    console.print(in_words(machine) + f"; {memory_available() / 2**30:.1f} GiB free\n", markup=False, highlight=False)
    if is_busy(machine):
        console.print("[yellow]The machine is busy with other work, which will affect rates and latencies.[/]\n")
    results = Results(options.out, time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    results.note_machine(machine, is_quick=options.quick)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    status = 0
    limit_s = options.limit or (QUICK_LIMIT_SECONDS if options.quick else LIMIT_SECONDS)
    with console.status("") as line:
        plan = Plan(options.quick, options.jobs, options.seconds, _directives(options.directive), line.update)
        for benchmark in BENCHMARKS:
            if benchmark.name in options.names or not options.names:
                rows: list[Row] = []
                failure = _measure(benchmark, plan, limit_s, rows, results)
                _show(console, benchmark, rows, before, as_markdown=options.markdown)
                if isinstance(failure, KeyboardInterrupt):
                    return INTERRUPTED
                if failure is not None:
                    console.print(f"{benchmark.name}: {failure}\n", style="red", markup=False)
                    status = FAILURE
    return status


def _measure(
    benchmark: Benchmark, plan: Plan, limit_s: float, rows: list[Row], results: Results
) -> BaseException | None:
    """Collect rows as they come, and return the reason of an early end, if there was one."""
    limit = TimeLimit(limit_s)
    try:
        with limit:
            for row in benchmark.run(plan):
                rows.append(row)
                results.note_row(benchmark.name, row)
    except KeyboardInterrupt as interruption:
        return TimeOverError(f"not finished after {limit_s:g} s") if limit.is_over else interruption
    except (LoadError, RedisBenchmarkError, AssertionError, OSError, EOFError) as error:
        return error
    return None


def _show(console: Console, benchmark: Benchmark, rows: list[Row], before: Past | None, *, as_markdown: bool) -> None:
    if not rows:
        return
    if as_markdown:
        console.print(f"### {benchmark.title}\n\n{markdown_table(benchmark, rows)}", markup=False, soft_wrap=True)
    else:
        console.print(screen_table(benchmark, rows, before.rows.get(benchmark.name, {}) if before else None), "")


class TimeLimit:
    """A time limit for a `with` block, which it ends like Ctrl-C. `is_over` distinguishes the two."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._end)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.is_over = True
        interrupt(number, frame)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Act like Ctrl-C. An exception that is raised here would end in some callback of an event loop."""
    signal.raise_signal(signal.SIGINT)


def _directives(given: list[str]) -> tuple[str, ...]:
    """Return `name=value` as words for a node's command line."""
    words: list[str] = []
    for directive in given:
        name, _, value = directive.partition("=")
        words += [f"--{name}", *value.split()]
    return tuple(words)


def _read(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python tests/benchmarks",
        description="Measure the broker on this machine; docs/performance.md explains the figures.",
        epilog="Benchmarks: " + ", ".join(benchmark.name for benchmark in BENCHMARKS),
    )
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="benchmark", help="which of them; all without one")
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that everything works")
    parser.add_argument("--jobs", type=int, help="this many jobs or commands, where a benchmark has a number of them")
    parser.add_argument("--seconds", type=float, help="measure for so long, where a benchmark waits (idle, latency …)")
    parser.add_argument("--limit", type=float, help=f"seconds per benchmark ({LIMIT_SECONDS:.0f})")
    parser.add_argument("--directive", action="append", default=[], metavar="NAME=VALUE", help="for every node")
    parser.add_argument("--out", type=Path, help="append the figures to this file, as JSON lines")
    parser.add_argument("--against", type=Path, help="compare with such a file of an earlier run")
    parser.add_argument("--markdown", action="store_true", help="tables for a document instead of the screen")
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    if options.jobs is not None and options.jobs < 1:
        parser.error("--jobs must be positive")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
