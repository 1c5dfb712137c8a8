"""Worker: fetch jobs, run a handler on each, acknowledge what worked.

    async def handle(job): ...
    Worker(AsyncDisque("127.0.0.1:7711"), ["mail"], handle, concurrency=50).run()

As many jobs are fetched as handlers are free, so none waits here while its lease runs. A handler
that returns has its job acknowledged, one that raises has it put back (NACK). Acks are collected
while the last ones are on their way: under load one command carries many. Handlers that are plain
functions run in threads, as many as `concurrency`.

The worker outlives its nodes: trouble is reported, and it goes on when a node is back. Stopping is
graceful: nothing new is fetched, what runs may finish within `grace_s`, the rest is put back.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

from disque_py.client.aio import AsyncDisque
from disque_py.client.errors import DisqueError
from disque_py.client.heartbeat import Heartbeat
from disque_py.client.results import Job

Handler: TypeAlias = "Callable[[Job], Awaitable[Any]] | Callable[[Job], Any]"

# After trouble: the client has been patient already, this only keeps a broken worker from spinning.
TROUBLE_PAUSE_S: Final = 1.0

# Jobs done but not acknowledged, from which the worker fetches no more.
UNACKED_MIN: Final = 1_000

# How long the last acks of a worker that stops may take.
LAST_ACKS_S: Final = 5.0

_log = logging.getLogger(__name__)


class WorkerHooks:
    """What a worker tells; override what is of interest. Called in the loop: to be quick, and not to raise.

    By default failures and trouble go to the logger `disque_py.client.worker`.
    """

    def on_start(self, job: Job) -> None:
        """A handler takes the job."""

    def on_success(self, job: Job, seconds: float) -> None:
        """The handler returned; the ack is on its way."""

    def on_failure(self, job: Job, error: BaseException, seconds: float) -> None:
        """The handler raised; the job is put back, or left to its RETRY."""
        _log.warning("job %s of %s failed: %r", job.id, job.queue, error)

    def on_lost(self, job: Job, error: DisqueError) -> None:
        """A job still runs, but its next delivery can't be put off any more: it may run elsewhere too."""
        _log.warning("job %s of %s may be delivered again while it runs: %s", job.id, job.queue, error)

    def on_trouble(self, error: DisqueError) -> None:
        """Fetching or acknowledging failed; it is tried again."""
        _log.warning("%s: %s", type(error).__name__, error)


class Worker:
    """Runs `handler` on the jobs of `queues`.

    concurrency   handlers at a time
    heartbeat_s   a job that runs longer gets WORKING, then at half of its RETRY; None: never
    grace_s       how long running handlers may go on after `stop`
    on_failure    "nack": back to the queue at once; "leave": again after the job's RETRY
    hooks         what is told (WorkerHooks)
    """

    def __init__(
        self,
        client: AsyncDisque,
        queues: Sequence[str | bytes],
        handler: Handler,
        *,
        concurrency: int = 10,
        heartbeat_s: float | None = 0.4,
        grace_s: float = 25.0,
        on_failure: Literal["nack", "leave"] = "nack",
        hooks: WorkerHooks | None = None,
    ) -> None:
        if isinstance(queues, (str, bytes)):
            raise TypeError("queues is a list of names, not one name")
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        self._client = client
        self._queues = tuple(queues)
        self._handler = handler
        self._concurrency = concurrency
        self._heartbeat_s = heartbeat_s
        self._grace_s = grace_s
        self._nacks_failures = on_failure == "nack"
        self._hooks = hooks or WorkerHooks()
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004  # An object whose __call__ is a coroutine function.
        )
        self._stop = asyncio.Event()
        self._free_count = concurrency
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_ended = False
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._running: dict[str, Job] = {}
        self._done: list[Job] = []
        self._failed: list[Job] = []
        self._to_settle = asyncio.Event()
        self._settling = asyncio.Lock()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._heartbeat: Heartbeat | None = None
        self._threads: ThreadPoolExecutor | None = None

    def run(self, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        """Serve in a loop of its own until SIGTERM or SIGINT; a second one ends the grace. Closes the client."""
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            await self.serve()
        finally:
            await self._client.close()

    def stop(self) -> None:
        """Fetch no more, let what runs finish within the grace; a second call ends the grace."""
        if self._stop.is_set():
            self._is_idle.set()
        self._stop.set()

    async def serve(self) -> None:
        """Work until `stop`, or until the task is cancelled (then without grace). The client stays open."""
        loop = asyncio.get_running_loop()
        if not self._is_async:
            self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="disque-worker")
        fetcher = loop.create_task(self._fetch_for_ever())
        runners = [loop.create_task(self._run_jobs()) for _ in range(self._concurrency)]
        helpers = [loop.create_task(self._settle_for_ever())]
        if self._heartbeat_s is not None:
            self._heartbeat = Heartbeat(self._client, self._heartbeat_s, self._hooks.on_lost)
            helpers.append(loop.create_task(self._heartbeat.beat_for_ever()))
        stopped = loop.create_task(self._wait_for_stop())
        grace_s = 0.0
        try:
            # Only `stopped` ends by itself; any other that does met a mistake of ours, or a hook that raised.
            await asyncio.wait([stopped, fetcher, *runners, *helpers], return_when=asyncio.FIRST_COMPLETED)
            grace_s = self._grace_s if stopped.done() else 0.0
        finally:
            await self._end(fetcher, runners, [*helpers, stopped], grace_s)

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()

    async def _end(
        self,
        fetcher: asyncio.Task[None],
        runners: list[asyncio.Task[None]],
        helpers: list[asyncio.Task[None]],
        grace_s: float,
    ) -> None:
        await _cancel([fetcher])
        if grace_s > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_idle.wait(), grace_s)
        self._is_ended = True
        await _cancel(runners)
        self._failed += self._running.values()  # Threads can't be ended; their jobs go back all the same.
        while not self._jobs.empty():
            self._failed.append(self._jobs.get_nowait())
        try:
            await asyncio.wait_for(self._settle(), LAST_ACKS_S)
        except (DisqueError, TimeoutError) as error:
            self._hooks.on_trouble(
                error if isinstance(error, DisqueError) else DisqueError("the last acks took too long")
            )
        await _cancel(helpers)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for task in (fetcher, *runners, *helpers):
            error_of_ours = None if task.cancelled() else task.exception()
            if error_of_ours is not None:
                raise error_of_ours

    async def _fetch_for_ever(self) -> None:
        unacked_max = max(UNACKED_MIN, 10 * self._concurrency)
        while True:
            await self._has_room.wait()
            if len(self._done) > unacked_max:  # No node takes acks; more jobs would only be done twice.
                await asyncio.sleep(TROUBLE_PAUSE_S)
                continue
            try:
                found = await self._client.get_jobs(*self._queues, count=self._free_count, withcounters=True)
            except DisqueError as error:
                self._hooks.on_trouble(error)
                await asyncio.sleep(TROUBLE_PAUSE_S)
                continue
            for job in found:
                self._jobs.put_nowait(job)
            self._free_count -= len(found)
            if found:
                self._is_idle.clear()
            if self._free_count <= 0:
                self._has_room.clear()

    async def _run_jobs(self) -> None:
        """One of `concurrency` places: takes job after job, for as long as the worker lives."""
        loop = asyncio.get_running_loop()
        hooks = self._hooks
        while not self._is_ended:
            job = await self._jobs.get()
            began = loop.time()
            self._running[job.id] = job
            if self._heartbeat is not None:
                self._heartbeat.started(job, began)
            hooks.on_start(job)
            try:
                await self._handle(job)
            except (Exception, asyncio.CancelledError) as error:
                # Whatever a handler raises is the job's failure, not the worker's: also the CancelledError of a task
                # that it waited for. Only when we are cancelled ourselves, it is ours.
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                hooks.on_failure(job, error, loop.time() - began)
                if self._nacks_failures:
                    self._failed.append(job)
            else:
                hooks.on_success(job, loop.time() - began)
                self._done.append(job)
            self._ended(job)

    async def _handle(self, job: Job) -> None:
        if self._is_async:
            await self._handler(job)
        else:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._handle_in_thread, job)
            if inspect.isawaitable(answer):  # A coroutine function in a plain wrapper: its work is still to be done.
                await answer

    def _handle_in_thread(self, job: Job) -> Any:
        try:
            return self._handler(job)
        except StopIteration as error:
            # No future takes it (before Python 3.12 the one of this call would never be done).
            raise RuntimeError("the handler raised StopIteration") from error

    def _ended(self, job: Job) -> None:
        self._running.pop(job.id, None)
        if self._heartbeat is not None:
            self._heartbeat.ended(job)
        self._to_settle.set()
        self._free_count += 1
        self._has_room.set()
        if self._free_count == self._concurrency:
            self._is_idle.set()

    async def _settle_for_ever(self) -> None:
        while True:
            await self._to_settle.wait()
            self._to_settle.clear()
            try:
                await self._settle()
            except DisqueError as error:
                self._hooks.on_trouble(error)
                await asyncio.sleep(TROUBLE_PAUSE_S)
                self._to_settle.set()

    async def _settle(self) -> None:
        """Acknowledge what is done and put back what failed. What could not be said is kept for the next time."""
        async with self._settling:  # The last call waits for the one that is under way: it must not be cut off.
            done, self._done = self._done, []
            try:
                if done:
                    await self._client.ack_jobs(done)
            except BaseException:
                self._done += done
                raise
            failed, self._failed = self._failed, []
            if failed:
                # Not kept on failure: a NACK said twice could hit the next delivery. RETRY brings these jobs back.
                await self._client.nack(*failed)


def _is_cancelled() -> bool:
    """Whether somebody wants the present task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
