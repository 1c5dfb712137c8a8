"""Lanes: threads that work on files for an event loop, each with its own queue.

A lane is a daemon thread with a queue in front, so work in a lane is done in the order in which it was started. A disk
that hangs neither blocks the loop nor keeps the process from ending. Finished work goes through one more queue to the
loop's thread, which handles all that has finished in one call.

Own threads are cheaper than aiofiles. A write of 200 bytes, with the report of its end, takes 65 us of CPU here, and 90
us with aiofiles (150 with a seek before it). With an fdatasync after it, it takes 180 and 380 us. A hundred writes at
once take 22 us each here, because they wake the loop once. Most of the other time is two threads waking each other. And
a lane keeps its order by itself, whereas aiofiles takes any thread of a pool.

The loop may wait for a lane (`wait`). Then its thread and the lane's don't compete for the interpreter's lock, and the
loop is not woken for the result. That takes less of the processor than anything that goes on meanwhile, as long as the
disk is quick. A wait has a limit, and Patience says when there is none at all.
"""

# Stays Python: threads.
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from persistence.patience import Patience

T = TypeVar("T")
Task: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]
# A lane, what is to be called, and the result.
Ended: TypeAlias = tuple[int, Callable[[Any], None], Any]

CLOSE_LIMIT_S: Final = 10.0  # As long as service managers usually wait at least before they kill.


class Lanes:
    """A number of lanes for one event loop.

    count      how many lanes
    name       of their threads, with the number of each
    loop_call  makes the loop's thread call a function soon: `loop.call_soon_threadsafe`

    Everything but `_work` runs in the loop's thread.
    """

    def __init__(self, count: int, name: str, loop_call: Callable[[Callable[[], None]], object]) -> None:
        self._loop_call = loop_call
        self._lanes: list[SimpleQueue[Task | None]] = [SimpleQueue() for _ in range(count)]
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._is_called = False  # The loop has been asked to look at `_ended` and hasn't looked yet.
        self._is_closing = False
        self._in_flight = [0] * count  # Started, and not yet handed over.
        self._patience = Patience()
        self._threads = [
            threading.Thread(target=self._work, args=(number, lane), name=f"{name}-{number}", daemon=True)
            for number, lane in enumerate(self._lanes)
        ]
        for thread in self._threads:
            thread.start()

    def start(self, lane: int, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Do `work` in this lane. `done` gets its result, or its OSError, in the loop's thread.

        Any other exception is a mistake of this program: it is raised in the loop's thread, and `done` is not called.
        """
        assert self._threads, "the lanes are closed"
        self._in_flight[lane] += 1
        self._lanes[lane].put((work, done))

    def wait(self, lane: int) -> None:
        """Wait a moment for the work of this lane, and hand over what ends meanwhile. A slow disk is not waited for.

        This includes work that a `done` starts in this lane.
        """
        if not self._in_flight[lane] or self._is_called:
            return  # Or results are there already: the loop is about to look.
        began_s = time.perf_counter()
        limit_s = self._patience.limit_s(began_s)
        if not limit_s:
            return
        now_s = began_s
        self._is_called = True  # So the threads need not wake the loop.
        try:
            while self._in_flight[lane]:
                ended = self._ended.get(timeout=max(0.0, began_s + limit_s - now_s))
                now_s = time.perf_counter()
                self._hand_over(ended)
        except Empty:
            now_s = time.perf_counter()
        except Exception as error:
            self._loop_call(partial(_raise, error))  # A mistake must not break the caller's turn.
        finally:
            self._patience.waited(began_s, now_s)
            self._is_called = False
            if not self._ended.empty():
                self._is_called = True
                self._loop_call(self._look)

    def close(self, limit_s: float = CLOSE_LIMIT_S) -> bool:
        """Wait for all started work, also work that a `done` starts meanwhile, hand it over and end the threads.

        Nothing can be started afterwards. False if work had not ended after `limit_s` seconds; its `done` is skipped.
        """
        deadline_s = time.monotonic() + limit_s
        self._is_closing = True
        try:
            while any(self._in_flight):
                self._hand_over(self._ended.get(timeout=max(0.0, deadline_s - time.monotonic())))
        except Empty:
            pass
        finally:
            for lane in self._lanes:
                lane.put(None)
            threads, self._threads = self._threads, []
            for thread in threads:
                thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(self._in_flight)

    def _work(self, number: int, lane: SimpleQueue[Task | None]) -> None:
        """Run a lane; this is its thread's function."""
        put = self._ended.put
        while (task := lane.get()) is not None:
            work, done = task
            result: Any
            try:
                result = work()
            except Exception as error:  # The thread must live on, and the caller's turn raises it.
                # A traceback would keep the buffers of the work alive as long as the error.
                result = error.with_traceback(None) if isinstance(error, OSError) else Unexpected(error)
            put((number, done, result))
            # While this thread waits for more it must not keep the objects of this work alive.
            del task, work, done, result
            # The flag is set after `put`, and cleared before looking: so no result is missed.
            if not self._is_called and not self._is_closing:
                self._is_called = True
                try:
                    self._loop_call(self._look)
                except RuntimeError:
                    return  # The loop is closed: the process ends, and results have no receiver.

    def _look(self) -> None:
        """Hand over all finished work."""
        self._is_called = False
        if not self._threads:
            return
        ended = self._ended
        try:
            while not ended.empty():
                self._hand_over(ended.get())
        except Exception:
            self._loop_call(self._look)  # One mistake must not delay the other results.
            raise

    def _hand_over(self, ended: Ended) -> None:
        lane, done, result = ended
        self._in_flight[lane] -= 1
        if type(result) is Unexpected:
            raise result.error
        done(result)


def _raise(error: Exception) -> None:
    raise error


class Unexpected:
    """An exception other than OSError that work raised."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error
