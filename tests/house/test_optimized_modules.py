"""setup.py lets the C compiler optimize the modules that run for every job, and no others."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

import disque_py
from disque_py.simulator.clients.connection import words
from world import World

# The folder of the code under test: the checkout, or the installed package.
PACKAGES = Path(disque_py.__file__).resolve().parents[1]
FEW, MANY = 20, 60
# Modules with fewer calls than one per two further jobs may be slow, for example modules that run once per turn.
OFTEN = (MANY - FEW) // 2


@pytest.fixture(scope="module")
def build(root):
    """Return the names that setup.py defines."""
    return runpy.run_path(str(root / "setup.py"))


def calls_in_files(names, jobs):
    """Count the calls in each file while jobs are added on the first node, and fetched and acknowledged on the last."""
    world = World("", events=True, is_prompt=False)
    for name in names:
        world.add(name, journal="everysec")
    world.join()
    producer, consumer = world.client(names[0]), world.client(names[-1])
    count: Counter[str] = Counter()

    def note(frame, event, argument):
        if event == "call":
            count[frame.f_code.co_filename] += 1

    sys.setprofile(note)
    try:
        producer.send([words("ADDJOB", "q", "x" * 100, 0)] * jobs)
        consumer.send([words("GETJOB", "FROM", "q")] * jobs)
        world.until(lambda: len(consumer.replies) == jobs)
        consumer.send([words("ACKJOB", job[0][1]) for job in consumer.replies])
        world.until(lambda: len(consumer.replies) == 2 * jobs)
    finally:
        sys.setprofile(None)
    assert consumer.replies[jobs:] == [1] * jobs
    return count


@pytest.mark.plain
@pytest.mark.parametrize("names", ["abc", "ab"])
def test_modules_that_every_job_passes_are_optimized(build, names):
    """The jobs are added, copied or handed over, fetched and acknowledged, with a journal and a log of events."""
    further = calls_in_files(names, MANY) - calls_in_files(names, FEW)
    passed = {name for name in build["modules"]() if further[str(PACKAGES / name)] >= OFTEN}
    assert {"disque_py/core/acks.py", "disque_py/core/journaling.py"} <= passed
    assert passed - set(build["OFTEN"]) == set()
