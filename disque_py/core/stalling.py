"""A long command that waits: for answers of other nodes, for a decision, for a moment.

A command that waits does no part of its work (incremental.py): its client is in `broker.waits.stalled`. It goes on when
the conversation that it waits for lets it, or when a moment has come, and looks for itself whether its wait is over.

`go_on` is for handlers that run before the long commands of the same turn. `go_on_now` makes the next tick due at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client


def until(broker: Broker, client: Client, is_over: Callable[[], bool]) -> Generator[None, None, None]:
    """Wait, as steps of the client's long command. `is_over` is asked at once, and whenever the command may go on."""
    while not is_over():
        broker.waits.stalled[client] = None
        yield


def until_ms(
    broker: Broker, client: Client, moment_ms: int, is_over: Callable[[], bool]
) -> Generator[None, None, None]:
    """Wait until `is_over`, or until a moment."""
    broker.schedule.call_at(moment_ms, partial(go_on_now, broker, client))
    return until(broker, client, lambda: is_over() or broker.now_ms >= moment_ms)


def pause(broker: Broker, client: Client, span_ms: int) -> Generator[None, None, None]:
    """Wait for this span."""
    return until_ms(broker, client, broker.now_ms + span_ms, lambda: False)


def go_on(broker: Broker, client: Client) -> None:
    """Let a command go on with the next tick, which is due for another reason."""
    broker.waits.stalled.pop(client, None)


def go_on_now(broker: Broker, client: Client) -> None:
    """Let a command go on with the next tick, and make that due."""
    if client in broker.waits.stalled:
        del broker.waits.stalled[client]
        broker.schedule.call_at(broker.now_ms, _tick)


def _tick() -> None:
    """Do nothing: the tick that calls this does the next part of long commands."""
