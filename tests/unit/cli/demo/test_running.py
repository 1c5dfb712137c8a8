"""cli/demo/running.py: a demonstration always ends with a final line and an exit status."""

from __future__ import annotations

import asyncio
import io
import os
import signal

import pytest
from rich.console import Console

from disque_py.cli.demo.running import EXIT_INTERRUPTED, run


async def fine():
    return 3


async def failing():
    raise OSError("no such thing: " + "x" * 100)


async def interrupted():
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)
    return 0


@pytest.mark.parametrize(
    ("story", "status", "said"),
    [
        (fine, 3, ""),
        (failing, 1, f"bin/demo: no such thing: {'x' * 100}\n"),
        (interrupted, EXIT_INTERRUPTED, "interrupted; nothing is left running\n"),
    ],
)
def test_each_outcome_has_a_line_and_an_exit_status(story, status, said):
    out = io.StringIO()
    assert run(Console(file=out, width=60), story(), (OSError,)) == status
    assert out.getvalue() == said


def test_a_defect_of_the_program_is_not_hidden():
    with pytest.raises(OSError, match="no such thing"):
        run(Console(file=io.StringIO()), failing(), (ValueError,))
