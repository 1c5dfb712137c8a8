# ruff: noqa: E402 — the import path comes first
"""Compare two versions by benchmarks that run alternately, to measure the cost of a change.

    python tests/benchmarks/compare.py <before> [<now>] [--benchmark core] [--rounds 5] [--most 1.03]

Each version is a revision of git, or `-` for the working tree as it is. `<revision>@<interpreter>` takes the packages
from that interpreter's environment instead, for example from the one that `make compiled` makes. That compares compiled
builds.

Each round runs the benchmark once with each version, in alternating order, so a machine that gets slower affects both.
Every version is measured by its own benchmarks. A round's ratio is the new figure divided by the old one, in the column
that `--against` compares. If the column is a cost, a ratio above 1 means that the new version costs more. The table has
the median, the lowest and the highest ratio. The exit status is 1 if a median is above `--most`, and 2 if a version
could not be run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))  # For revisions.py.

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from catalogue import BENCHMARKS
from figures import read_results
from revisions import RevisionError, unpack

WORKING_TREE = "-"
ROUNDS = 5
ABOVE, CANNOT_RUN = 1, 2

# Row of the benchmark → its figure.
Figures = Mapping[str, float]


class RunError(Exception):
    """A version could not be measured; the text has the end of its output."""


@dataclass(frozen=True, slots=True)
class Side:
    """A version that can be run: its name, its tree, and an interpreter that has its packages, if any."""

    name: str
    tree: Path
    interpreter: str

    def measure(self, benchmark: str, options: Sequence[str], folder: Path) -> Figures:
        """Run the version's benchmark once. Raises RunError."""
        results = folder / "results"
        results.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if not self.interpreter:
            environment["PYTHONPATH"] = str(self.tree)
        program = str(self.tree / "tests" / "benchmarks")
        words = [self.interpreter or sys.executable, "-P", program, benchmark, "--out", str(results), *options]
        done = subprocess.run(
            words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            raise RunError(f"{self.name}: {done.stdout[-2000:]}")
        column = next(each.compared for each in BENCHMARKS if each.name == benchmark)
        rows = read_results(results).rows[benchmark]
        return {row: float(values[column]) for row, values in rows.items() if values.get(column)}


@dataclass(frozen=True, slots=True)
class Ratio:
    """A row of the benchmark in both versions: the medians of its figures, and of the ratios of new to old."""

    row: str
    before: float
    now: float
    median: float
    lowest: float
    highest: float


def ratios(rounds: Sequence[tuple[Figures, Figures]]) -> list[Ratio]:
    """Return the rows that both versions have in every round."""
    found = []
    for row in rounds[0][0]:
        pairs = [(before[row], now[row]) for before, now in rounds if row in before and row in now]
        if len(pairs) == len(rounds):
            each = [now / before for before, now in pairs]
            before, now = (statistics.median(values) for values in zip(*pairs, strict=True))
            found.append(Ratio(row, before, now, statistics.median(each), min(each), max(each)))
    return found


def side_of(word: str, folder: Path) -> Side:
    """Make a version runnable. Raises RevisionError."""
    revision, _, interpreter = word.partition("@")
    if revision == WORKING_TREE:
        return Side(word, ROOT, interpreter)
    # Then leave out the revision's packages, because some versions would import them before those of the environment.
    unpack(revision, folder, ("tests",) if interpreter else ())
    return Side(word, folder, interpreter)


def table(benchmark: str, found: Sequence[Ratio], most: float) -> Table:
    """Return the ratios as a table for the screen."""
    made = Table(title=f"{benchmark}: now by before", title_justify="left", title_style="bold")
    made.add_column("row", no_wrap=True)
    for title in ("before", "now", "ratio", "lowest", "highest"):
        made.add_column(title, justify="right")
    for each in found:
        style = "red" if each.median > most else "green"
        cells = [f"{each.before:,.2f}", f"{each.now:,.2f}", f"[{style}]{each.median:.3f}[/]"]
        made.add_row(each.row, *cells, f"{each.lowest:.3f}", f"{each.highest:.3f}")
    return made


def main(argv: list[str]) -> int:
    """Compare, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="compare.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", help="a revision, or <revision>@<interpreter>")
    parser.add_argument("now", nargs="?", default=WORKING_TREE, help="the same; the working tree without one")
    parser.add_argument("--benchmark", default="core", choices=[each.name for each in BENCHMARKS])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often each version is run ({ROUNDS})")
    parser.add_argument("--most", type=float, default=1.03, help="the highest median ratio that is well (1.03)")
    parser.add_argument("--jobs", help="passed on to the benchmark")
    parser.add_argument("--seconds", help="passed on to the benchmark")
    parser.add_argument("--quick", action="store_true", help="passed on to the benchmark")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("--rounds must be positive")
    passed = [
        word for name in ("jobs", "seconds") if (value := getattr(options, name)) for word in (f"--{name}", value)
    ]
    passed += ["--quick"] * options.quick
    console = Console()
    with tempfile.TemporaryDirectory(prefix="disque-compare.") as name:
        folder = Path(name)
        try:
            sides = side_of(options.before, folder / "before"), side_of(options.now, folder / "now")
            rounds = []
            with Progress(console=Console(stderr=True)) as progress:
                bar = progress.add_task(options.benchmark, total=2 * options.rounds)
                for number in range(options.rounds):
                    figures: dict[int, Figures] = {}
                    for at in (0, 1) if number % 2 == 0 else (1, 0):
                        figures[at] = sides[at].measure(options.benchmark, passed, folder)
                        progress.advance(bar)
                    rounds.append((figures[0], figures[1]))
        except (RevisionError, RunError, OSError) as error:
            print(f"compare.py: {error}", file=sys.stderr)
            return CANNOT_RUN
    found = ratios(rounds)
    console.print(table(options.benchmark, found, options.most))
    return ABOVE if not found or any(each.median > options.most for each in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
