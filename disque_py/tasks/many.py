"""Many calls that are added together, in pipelines of a limited length.

`App.add_many` and `Group.add_many` share it, in their blocking and asyncio forms. They send the parts, and this module
keeps the outcome of each call. A call that fails stops no other one. If no node can be reached, the calls that are left
are not tried, because each part would wait for the client's patience.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from disque_py.client.errors import BatchError, DisqueError, NotConnectedError
from disque_py.tasks.messages import Message
from disque_py.tasks.operations import Add
from disque_py.tasks.task import Call

# The most tasks that one pipeline adds. A longer pipeline would only use more memory.
MANY: Final = 500


class ManyAdds:
    """The calls, and the outcome of each so far: the id of its job, or its error.

    message   makes the message of a call
    """

    def __init__(self, calls: Sequence[Call[Any]], message: Callable[[Call[Any]], Message]) -> None:
        self._calls = calls
        self._message = message
        self._outcomes: list[str | DisqueError] = []

    def parts(self) -> Iterator[list[Add]]:
        """Yield the operations of one pipeline after the other. The caller passes their outcomes to `add_outcomes`."""
        while (at := len(self._outcomes)) < len(self._calls):
            last = self._outcomes[-1] if self._outcomes else None
            if isinstance(last, NotConnectedError):
                self._outcomes += [NotConnectedError(f"not tried: {last}") for _ in self._calls[at:]]
                return
            yield [Add(self._message(call)) for call in self._calls[at : at + MANY]]

    def add_outcomes(self, outcomes: Sequence[Any]) -> None:
        """Note the outcomes of the newest part."""
        self._outcomes += outcomes

    @property
    def added(self) -> list[tuple[Call[Any], str]]:
        """The calls that were added, each with the id of its job."""
        pairs = zip(self._calls, self._outcomes, strict=False)
        return [(call, outcome) for call, outcome in pairs if not isinstance(outcome, DisqueError)]

    def check(self) -> None:
        """Raise BatchError if a call failed. It has the outcomes of all calls, in order."""
        if any(isinstance(outcome, DisqueError) for outcome in self._outcomes):
            raise BatchError(self._outcomes)
