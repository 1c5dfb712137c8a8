"""Stalling: make an incremental command wait for answers of other nodes, for a decision or for a moment.

While a command waits, no part of its work is done (incremental.py): its client is in `broker.waits.stalled`. The
conversation that it waits for resumes it, or a moment does. The command then checks whether its wait is over.

`resume_client` is for handlers that run before the incremental commands of the same turn. `resume_client_now` also
makes the next tick due immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client


def until(broker: Broker, client: Client, is_over: Callable[[], bool]) -> Generator[None, None, None]:
    """Wait, as steps of an incremental command, until `is_over`, which is checked first and after each resume."""
    while not is_over():
        broker.waits.stalled[client] = None
        yield


def until_ms(
    broker: Broker, client: Client, moment_ms: int, is_over: Callable[[], bool]
) -> Generator[None, None, None]:
    """Wait until `is_over`, or until a moment."""
    broker.schedule.call_at(moment_ms, partial(resume_client_now, broker, client))
    return until(broker, client, lambda: is_over() or broker.now_ms >= moment_ms)


def pause(broker: Broker, client: Client, span_ms: int) -> Generator[None, None, None]:
    """Wait for this span."""
    return until_ms(broker, client, broker.now_ms + span_ms, lambda: False)


def resume_client(broker: Broker, client: Client) -> None:
    """Resume a command with the next tick, which is due for another reason."""
    broker.waits.stalled.pop(client, None)


def resume_client_now(broker: Broker, client: Client) -> None:
    """Resume a command with the next tick, and make that tick due."""
    if client in broker.waits.stalled:
        del broker.waits.stalled[client]
        broker.schedule.call_at(broker.now_ms, _tick)


def _tick() -> None:
    """Do nothing, because the tick that calls this also does the next part of incremental commands."""
