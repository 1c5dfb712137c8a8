"""Running a demonstration: signals cancel it, an error is printed as one line, and its result is an exit status."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Final

import uvloop
from rich.console import Console

FAILURE: Final = 1
EXIT_INTERRUPTED: Final = 130


def run(console: Console, story: Coroutine[Any, Any, int], failures: tuple[type[Exception], ...]) -> int:
    """Run the story. Return its exit status, 1 after one of these failures, 130 after SIGINT, SIGTERM or SIGHUP."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_cancelled_by_signals(story))
    except failures as error:
        say_error(console, str(error))
        return FAILURE
    except asyncio.CancelledError:
        console.print("interrupted; nothing is left running")
        return EXIT_INTERRUPTED


async def _cancelled_by_signals(story: Coroutine[Any, Any, int]) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await story


def say_error(console: Console, text: str) -> None:
    """Print an error as one line of any length."""
    console.print(f"bin/demo: {text}", style="bold red", markup=False, soft_wrap=True)
