"""Handles of tasks that were added: the result, the progress, and the end.

    handle = add.add(20, 22)
    handle.wait(timeout=10)              # 42, in programs with threads
    await handle.result(timeout=10)      # 42, with asyncio

The node reports the end as soon as the task is over (WAITJOB), so a handle need not poll. Only a dead letter is not an
end for the node, because the job goes on in another queue. So a long wait checks the job at intervals. A dead letter
that an operator has moved to a third queue (QREDRIVE with TO) is a waiting task again.

The type of the result is the return type of the task's function. A handle has no connection, and no state except its
id.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from disque_py.client.errors import ReplyError
from disque_py.client.flow_commands import JobEnd
from disque_py.client.results import JobInfo, QueueSettings
from disque_py.client.spans import Span, float_seconds
from disque_py.client.waiting import is_told
from disque_py.tasks.errors import TaskCanceledError, TaskError, TaskExpiredError, TaskFailedError, TaskGoneError
from disque_py.tasks.messages import ELSEWHERE, INLINE, read_failure
from disque_py.tasks.operations import Broker, Cancel, Ends, SettingsOf, Show
from disque_py.tasks.serializers import Serializer

R = TypeVar("R")

# A wait checks for a dead letter after so many seconds first, and then at growing intervals.
PIECE_S_MIN: Final = 2.0
PIECE_S_MAX: Final = 30.0

# The metadata of a job that moved to a dead-letter queue have this name.
DEAD_FROM: Final = "x-disque-from"
DEAD_ERROR: Final = "x-disque-error"
DEAD_ATTEMPTS: Final = "x-disque-attempts"


class Home(Protocol):
    """The parts of an app that a handle needs."""

    @property
    def broker(self) -> Broker:
        """The broker in use."""

    @property
    def serializer(self) -> Serializer:
        """The serializer of results."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a task.

    percent   0 to 100
    note      text of at most 256 bytes; may be empty
    """

    percent: int
    note: str = ""


class Handle(Generic[R]):
    """A task that was added.

    id   the id of its job
    """

    __slots__ = ("_always_kept", "_home", "id")

    def __init__(self, home: Home, job_id: str, *, always_kept: bool = False) -> None:
        self.id = job_id
        self._home = home
        # The task keeps None, too, so it was never done without a result.
        self._always_kept = always_kept

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def wait(self, timeout: Span | None = None) -> R:
        """Wait for the task, and return its result.

        timeout   seconds to wait, with a fraction, or a timedelta; None, the default: for ever

        Raises TimeoutError if it is not over in time, TaskFailedError, TaskCanceledError, TaskExpiredError,
        TaskGoneError, and the errors of the client library.
        """
        broker, status = self._home.broker, ""
        for piece_s in pieces(timeout, is_live=broker.is_live):
            end, is_told = self._end(piece_s)
            if is_told:
                elsewhere = _elsewhere(end)
                return self._value(end, None if elsewhere is None else broker.run(Show(elsewhere)))
            shown = broker.run(Show(self.id))
            if shown is not None and self._is_dead_letter(shown):
                raise _failure_of(shown)
            status = end.status
        raise TimeoutError(f"task {self.id} is not over: {status}")

    async def result(self, timeout: Span | None = None) -> R:
        """Wait for the task, and return its result, as `wait` does."""
        broker, status = self._home.broker, ""
        for piece_s in pieces(timeout, is_live=broker.is_live):
            end, is_told = await self._end_async(piece_s)
            if is_told:
                elsewhere = _elsewhere(end)
                return self._value(end, None if elsewhere is None else await broker.run_async(Show(elsewhere)))
            shown = await broker.run_async(Show(self.id))
            if shown is not None and await self._is_dead_letter_async(shown):
                raise _failure_of(shown)
            status = end.status
        raise TimeoutError(f"task {self.id} is not over: {status}")

    def _end(self, span_s: float) -> tuple[JobEnd, bool]:
        """Wait for a while → the end, or the current status; and whether it is an end."""
        until = time.monotonic() + span_s
        end = self._home.broker.run(Ends((self.id,), span_s))[0]
        return end, self._is_told(end, until)

    async def _end_async(self, span_s: float) -> tuple[JobEnd, bool]:
        """Wait for a while, as `_end` does."""
        until = time.monotonic() + span_s
        end = (await self._home.broker.run_async(Ends((self.id,), span_s)))[0]
        return end, self._is_told(end, until)

    def _is_told(self, end: JobEnd, until: float) -> bool:
        return is_told(end, until - time.monotonic() if self._home.broker.is_live else None)

    def _is_dead_letter(self, shown: JobInfo) -> bool:
        """Return whether the task is a dead letter. It is not over for the node, but it is for the program."""
        source = _dead_from(shown)
        if source is None:
            return False
        try:
            settings = self._home.broker.run(SettingsOf(source))
        except ReplyError:  # The program may not ask, or the node is of an older version.
            settings = None
        return _is_dead(shown, settings)

    async def _is_dead_letter_async(self, shown: JobInfo) -> bool:
        """Return whether the task is a dead letter, as `_is_dead_letter` does."""
        source = _dead_from(shown)
        if source is None:
            return False
        try:
            settings = await self._home.broker.run_async(SettingsOf(source))
        except ReplyError:
            settings = None
        return _is_dead(shown, settings)

    def status(self) -> str:
        """Return `invisible`, `pending`, `running`, `completed`, `canceled`, `errored`, `expired` or `unknown`."""
        return self._home.broker.run(Ends((self.id,), 0.001))[0].status

    async def status_async(self) -> str:
        """Return the status, as `status` does."""
        return (await self._home.broker.run_async(Ends((self.id,), 0.001)))[0].status

    def progress(self) -> Progress | None:
        """Return how far the task is; None before its first report, and after its end."""
        return progress_of(self._home.broker.run(Show(self.id)))

    async def progress_async(self) -> Progress | None:
        """Return how far the task is, as `progress` does."""
        return progress_of(await self._home.broker.run_async(Show(self.id)))

    def updates(self, every: Span = 1.0) -> Iterator[Progress]:
        """Return an iterator over the task's progress, until the task is over. It skips repeated reports.

        every   seconds between two queries, 1 by default, which is how often nodes exchange progress. The iterator
                ends as soon as the task is over, or with the next query if the task is a dead letter

        Raises the errors of the client library, but no error of the task. Call `wait` afterwards for the result.
        """
        broker, last, span_s = self._home.broker, None, float_seconds("every", every)
        while True:
            shown = broker.run(Show(self.id))
            if shown is not None and self._is_dead_letter(shown):
                return
            told = progress_of(shown)
            if told is not None and told != last:
                yield told
                last = told
            if self._end(span_s)[1] or not broker.is_live:
                return

    async def updates_async(self, every: Span = 1.0) -> AsyncIterator[Progress]:
        """Return an asynchronous iterator over the task's progress, as `updates` does."""
        broker, last, span_s = self._home.broker, None, float_seconds("every", every)
        while True:
            shown = await broker.run_async(Show(self.id))
            if shown is not None and await self._is_dead_letter_async(shown):
                return
            told = progress_of(shown)
            if told is not None and told != last:
                yield told
                last = told
            if (await self._end_async(span_s))[1] or not broker.is_live:
                return

    def cancel(self) -> bool:
        """Cancel the task → whether it was known and not over. A running task learns of it within some seconds."""
        return self._home.broker.run(Cancel(self.id)) > 0

    async def cancel_async(self) -> bool:
        """Cancel the task, as `cancel` does."""
        return await self._home.broker.run_async(Cancel(self.id)) > 0

    def _value(self, end: JobEnd, elsewhere: JobInfo | None) -> R:
        return cast("R", value_of(end, elsewhere, self._home.serializer, always_kept=self._always_kept))


def value_of(end: JobEnd, elsewhere: JobInfo | None, serializer: Serializer, *, always_kept: bool = False) -> Any:
    """Return the result of a task that is over. Raises its error.

    always_kept   a task without a result is one whose result the nodes have dropped. Otherwise it has returned None,
                  or the nodes have dropped its result
    """
    if end.status == "errored":
        raise read_failure(end.error)
    if end.status == "canceled":
        raise TaskCanceledError(f"task {end.id} was canceled")
    if end.status == "expired":
        raise TaskExpiredError(f"the TTL of task {end.id} was over before it was done")
    if end.status != "completed":
        raise TaskGoneError(f"no node knows task {end.id} or its result any more")
    if end.result is None:
        if always_kept:
            raise TaskGoneError(f"task {end.id} is done, and its result is not kept any more")
        return None
    if _elsewhere(end) is not None:
        if elsewhere is None or elsewhere.body is None:
            raise TaskGoneError(f"the result of task {end.id} is not kept any more")
        return serializer.loads(elsewhere.body)
    if not end.result.startswith(INLINE):
        raise TaskError(f"job {end.id} was acknowledged with a result that was not written by a task")
    return serializer.loads(end.result[1:])


def _elsewhere(end: JobEnd) -> str | None:
    """Return the id of the job that has the result; None if the result is here, or there is none."""
    if end.status == "completed" and end.result is not None and end.result.startswith(ELSEWHERE):
        return end.result[1:].decode("ascii", "replace")
    return None


def pieces(timeout: Span | None, *, is_live: bool) -> Iterator[float]:
    """Yield the pieces of a wait in seconds. Their sum is the time-out. Between them, look for a dead letter."""
    left_s = math.inf if timeout is None else float_seconds("timeout", timeout)
    piece_s = PIECE_S_MIN
    while True:
        yield max(0.001, min(piece_s, left_s))
        left_s -= piece_s
        if left_s <= 0 or not is_live:
            return
        piece_s = min(PIECE_S_MAX, 2 * piece_s)


def _dead_from(shown: JobInfo) -> str | None:
    """Return the queue in which a job has failed, if it is in another queue now; else None.

    A dead letter that was put back into its queue (QREDRIVE) runs again, and keeps its metadata.
    """
    source = (shown.meta or {}).get(DEAD_FROM)
    return source if source != shown.queue else None


def _is_dead(shown: JobInfo, settings: QueueSettings | None) -> bool:
    """Return whether a job that has failed in another queue is a dead letter in its present one.

    It is one in the dead-letter queue of the other one, and in a third queue it runs again. If the setting was changed
    after the failure, the present queue may be the former dead-letter queue. There a job has its last failure, and no
    delivery since.

    settings   the settings of the other queue; None: they are not known
    """
    if settings is None or settings.dead_letter in ("", shown.queue):
        return True
    meta = shown.meta or {}
    has_failure = bool(shown.error) and shown.error == meta.get(DEAD_ERROR)
    return has_failure and meta.get(DEAD_ATTEMPTS) == str(shown.attempt)


def _failure_of(shown: JobInfo) -> TaskFailedError:
    """Return the failure of a dead letter."""
    return read_failure((shown.meta or {}).get(DEAD_ERROR))


def progress_of(shown: JobInfo | None) -> Progress | None:
    """Return the progress in SHOW's answer; None without progress."""
    if shown is None or shown.progress is None:
        return None
    return Progress(shown.progress, shown.progress_text or "")
