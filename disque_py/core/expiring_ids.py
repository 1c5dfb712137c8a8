"""Ids that are forgotten some time after a given moment: keys of finished jobs, and results.

There may be millions of ids, so they have no timers of their own. Moments that are close together form a *span*, with
one timer at its end. Then the ids of the span are passed to their owner, one part at a time. The owner must check
whether the time of an id is really over, because the id may have been entered again with another moment, or forgotten
before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

PART_EVERY_MS: Final = 10


class ExpiringIds:
    """Ids by the span of their moment.

    span_shift   a span is two to this power milliseconds, which is also the longest delay after the moment of an id
    part_max     the most ids that are passed on at a time
    end          is called with ids whose moment may be over
    """

    __slots__ = ("_broker", "_end", "_part_max", "_span_shift", "_spans")

    def __init__(self, broker: Broker, span_shift: int, part_max: int, end: Callable[[list[bytes]], None]) -> None:
        self._broker = broker
        self._span_shift = span_shift
        self._part_max = part_max
        self._end = end
        self._spans: dict[int, list[bytes]] = {}

    def add(self, job_id: bytes, moment_ms: int) -> None:
        """Enter an id."""
        number = moment_ms >> self._span_shift
        span = self._spans.get(number)
        if span is None:
            span = self._spans[number] = []
            self._broker.schedule.call_at(number + 1 << self._span_shift, partial(self._end_part, number))
        span.append(job_id)

    def _end_part(self, number: int) -> None:
        """Pass the last ids of a span to the owner."""
        broker = self._broker
        span = self._spans[number]
        self._end(span[-self._part_max :])
        del span[-self._part_max :]
        if span:
            broker.schedule.call_at(broker.now_ms + PART_EVERY_MS, partial(self._end_part, number))
        else:
            del self._spans[number]
