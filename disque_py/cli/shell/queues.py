"""--queues: the queues of the whole cluster, refreshed at intervals.

On a terminal it is one table, which is refreshed in place until Ctrl-C. In a pipe each look is a separate table; with
`--json`, one object per queue and look. If the node goes away, the program waits for it.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from disque_py.cli.address import Target
from disque_py.cli.connection import ConnectError
from disque_py.cli.queue_display import FRAME_LINES, console_for, footer, queue_table, screen
from disque_py.cli.queue_view import Look, OldServerError, QueueWatch
from disque_py.client import DisqueError

EVERY_S_DEFAULT: Final = 2.0


def watch(target: Target, pattern: str, every_s: float | None, looks: int, *, as_json: bool) -> bool:
    """Show `looks` looks (negative: for ever). Return False if the node does not support this.

    Raises ConnectError if the first connection can't be made.
    """
    pause_s = every_s or EVERY_S_DEFAULT
    console = console_for()
    if console.is_terminal and not as_json and looks != 1:
        return _live(target, pattern, pause_s, looks, console)
    with QueueWatch(target) as watching:
        for number in _counted(looks):
            if number:
                time.sleep(pause_s)
            try:
                look = watching.look(pattern)
            except (OldServerError, DisqueError) as error:
                return _refused(error, as_json=as_json)
            if as_json:
                for row in look.rows:
                    print(json.dumps({"time": look.time_ms, **row.as_object()}), flush=True)
            else:
                console.print(queue_table(look))
                print(footer(look), flush=True)
    return True


def _counted(looks: int) -> Any:
    number = 0
    while number != looks:
        yield number
        number += 1


def _refused(error: Exception, *, as_json: bool) -> bool:
    text = _advice(error)
    print(json.dumps({"error": text}) if as_json else text, file=sys.stdout if as_json else sys.stderr, flush=True)
    return False


def _advice(error: Exception) -> str:
    if isinstance(error, OldServerError):
        return f"{error}. This server can't report figures of a whole cluster; --bigqueues shows those of one node"
    return str(error)


def _live(target: Target, pattern: str, pause_s: float, looks: int, console: Console) -> bool:
    title = f"{target.address}   every {pause_s:g} s, Ctrl-C ends"
    watching: QueueWatch | None = QueueWatch(target)
    last: Look | None = None
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for number in _counted(looks):
                if number:
                    time.sleep(pause_s)
                rows_max = max(1, console.size.height - FRAME_LINES)
                try:
                    watching = watching or QueueWatch(target)
                    last = watching.look(pattern)
                    live.update(screen(last, rows_max, console.size.width, title), refresh=True)
                except OldServerError as error:
                    live.stop()
                    return _refused(error, as_json=False)
                except (ConnectError, DisqueError) as error:
                    if watching is not None:
                        watching.__exit__()
                    watching = None
                    live.update(Text(f"{title}\n\n{error}", style="yellow"), refresh=True)
    except KeyboardInterrupt:
        pass
    finally:
        if watching is not None:
            with suppress(DisqueError):
                watching.__exit__()
    if last is not None:  # The last table stays on the screen.
        console.print(queue_table(last, width=console.size.width))
        console.print(footer(last))
    return True
