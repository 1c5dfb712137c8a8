"""Processor instructions per command: python tests/benchmarks/instructions.py [--nodes 3]

The commands of the benchmark `core` run under Callgrind (the package valgrind). Unlike times, these numbers are the
same on a busy machine, within a few tenths of a per cent, so they show small differences between two versions. The
interpreter that runs this program is measured, with the disque-py that it imports (`-P` avoids that of the directory).
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `-P` leaves it out.

import core
from load import packed

BATCHES_BEFORE, BATCHES = 8, 5
COMMANDS = ("PING", "ADDJOB", "GETJOB", "ACKJOB")
# Callgrind writes a file of totals whenever this function of the interpreter is called. Nothing else here calls it.
MARK = "os_getppid"


def main(argv: list[str]) -> int:
    """Print the instructions of each command on all nodes. Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="with 3, each job has three copies")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.inside:
        run_commands("abc"[: options.nodes])
        return 0
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("This needs Callgrind: install the package valgrind.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        words = [valgrind, "--tool=callgrind", f"--dump-before={MARK}", f"--callgrind-out-file={directory}/out"]
        inside = [sys.executable, "-P", __file__, "--inside", "--nodes", str(options.nodes)]
        found = subprocess.run(
            [*words, *inside], env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True
        )
        if found.returncode:
            print(found.stderr, file=sys.stderr)
            return 1
        for command, total in zip(COMMANDS, totals(Path(directory)), strict=True):
            print(f"{command:8} {total / (BATCHES * core.BATCH):>10,.0f}")
    return 0


def run_commands(names: str) -> None:
    """Run each command on these nodes: batches that do not count, a mark, the batches that count, and a mark."""
    core.calibration_ns = lambda: 1  # The instructions of the calibration are no command's.
    core.WARM_ROUNDS = 0
    bench = core.Bench(names)
    gc.disable()
    rounds = BATCHES_BEFORE + BATCHES

    def measure(batches: list[bytes]) -> list[Any]:
        replies = bench.measure(batches[:BATCHES_BEFORE])[1]
        os.getppid()
        replies += bench.measure(batches[BATCHES_BEFORE:])[1]
        os.getppid()
        return replies

    copies = () if len(names) == 1 else ("REPLICATE", len(names))
    measure([packed("PING") * core.BATCH] * rounds)
    measure([packed("ADDJOB", "q", core.BODY, 0, *copies) * core.BATCH] * rounds)
    jobs = measure([packed("GETJOB", "FROM", "q") * core.BATCH] * rounds)
    acks = [packed("ACKJOB", reply[0][1]) for reply in jobs]
    measure([b"".join(acks[at : at + core.BATCH]) for at in range(0, len(acks), core.BATCH)])


def totals(directory: Path) -> Iterator[int]:
    """Yield the instructions between the two marks of each command."""
    for number in range(2, 2 * len(COMMANDS) + 1, 2):
        for line in (directory / f"out.{number}").read_text().splitlines():
            if line.startswith("totals:"):
                yield int(line.split()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
