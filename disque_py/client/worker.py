"""The worker: it fetches jobs, runs a handler on each, and acknowledges those that succeed.

    async def handle(job): ...
    Worker(AsyncDisque("127.0.0.1:7711"), ["mail"], handle, concurrency=50).run()

The worker fetches as many jobs as handlers are free, so no job waits here while its lease runs. When a handler returns,
its job is acknowledged. Acks are collected while the last ones are in flight, so under load one command carries many.
Handlers that are plain functions run in threads, as many as `concurrency`.

When a handler raises, its job *rests* (backoff.py). The worker extends the lease with WORKING while no handler runs. At
the end of the rest it puts the job back with NACK. Other jobs are served meanwhile. After `max_attempts` deliveries the
job goes to `on_give_up` instead, and is then acknowledged. The cluster counts deliveries, so attempts add up over all
workers.

The worker survives the loss of its nodes: it reports the error, and continues when a node is back. An error that no
waiting can end stops it: a wrong password, or a GETJOB that the node does not understand. Stopping is graceful: the
worker fetches no more jobs, running handlers may finish within `grace_s`, and all other jobs are put back at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any, Final, Literal, TypeAlias

from disque_py.client.aio import AsyncDisque
from disque_py.client.backoff import Backoff
from disque_py.client.commands import Where
from disque_py.client.errors import AttemptsSpentError, DisqueError, ReplyError
from disque_py.client.heartbeat import Heartbeat
from disque_py.client.results import Job, is_at_most_once
from disque_py.client.retry import is_hopeless
from disque_py.client.spans import Seconds, Span, float_seconds, seconds, whole

Handler: TypeAlias = "Callable[[Job], Awaitable[Any]] | Callable[[Job], Any]"
GiveUp: TypeAlias = "Callable[[Job, BaseException], Awaitable[Any]] | Callable[[Job, BaseException], Any]"

# The pause after an error. The client has used its patience already; this only keeps a broken worker from spinning.
ERROR_PAUSE_S: Final = 1.0

# The worker fetches no more jobs while more than this many are done but not acknowledged.
UNACKED_MIN: Final = 1_000

# Jobs that rest at a time. Beyond it a failed job is left to its RETRY, so it costs no memory and no WORKING here.
RESTING_MAX: Final = 1_000

# A job that rests needs WORKING even if running jobs get none.
HEARTBEAT_S: Final = 0.4

# The time limit for the last acks of a worker that stops.
LAST_ACKS_S: Final = 5.0

_log = logging.getLogger(__name__)


class WorkerHooks:
    """The notifications of a worker. Override those of interest.

    They are called in the loop, so they must be quick and must not raise. By default failures and errors are logged to
    `disque_py.client.worker`.
    """

    def on_start(self, job: Job) -> None:
        """A handler takes the job."""

    def on_success(self, job: Job, seconds: float) -> None:
        """The handler returned. The ack follows."""

    def on_failure(self, job: Job, error: BaseException, seconds: float) -> None:
        """The handler raised. The job rests, is put back, left to its RETRY, or given up. Logged with a traceback."""
        _log.warning("job %s of %s failed, delivery %s", job.id, job.queue, job.delivery_count, exc_info=error)

    def on_give_up(self, job: Job, error: BaseException) -> None:
        """The job has no attempts left. The worker's `on_give_up` takes it."""
        _log.error("job %s of %s is given up, delivery %s: %r", job.id, job.queue, job.delivery_count, error)

    def on_lost(self, job: Job, error: DisqueError) -> None:
        """A job still runs, but its next delivery can't be postponed any more. It may run elsewhere too."""
        _log.warning("job %s of %s may be delivered again while it runs: %s", job.id, job.queue, error)

    def on_trouble(self, error: DisqueError) -> None:
        """Fetching or acknowledging failed. The worker tries again."""
        _log.warning("%s: %s", type(error).__name__, error)


class Worker:
    """A worker, which runs `handler` on the jobs of `queues`.

    client         the client that fetches and acknowledges; workers may share one
    queues         names of queues; jobs of the first are served before those of the next
    handler        a coroutine function of a job, or a plain function, which then runs in threads
    concurrency    handlers at a time, 10 by default
    heartbeat_s    a job that runs for more seconds gets WORKING, then at half of its RETRY; 0.4 by default, None: never
    grace_s        seconds that running handlers may go on after `stop`, 25 by default
    on_failure     "nack", the default: a job whose handler raised rests, then it is put back; "leave": it comes again
                   after its RETRY
    backoff        the rest of such a job; by default `Backoff()`, from one second, doubling up to five minutes. None:
                   the job is put back at once
    max_attempts   deliveries after which a job is given up; by default it is never. A job of RETRY 0 has one
    on_give_up     takes a job that is given up, and the last error; none by default. It is a coroutine function, or a
                   plain function, which then runs in threads. Afterwards the job is acknowledged. If it raises, the
                   job rests and is given up again later
    withmeta       handlers see `Job.meta`
    withlease      handlers see `Job.lease_ms` and `Job.attempt`
    lease          seconds for which deliveries last; by default each job's RETRY. With a lease, jobs of RETRY 0 are
                   skipped
    where          pairs of names and values; only jobs whose metadata have all of them. None, the default, takes any
                   job
    hooks          the notifications (WorkerHooks); by default failures and errors are logged

    Spans may be numbers of seconds or a `timedelta`. Handlers always see `Job.nacks`, `Job.additional_deliveries` and
    `Job.delivery_count`.

    Raises ValueError or TypeError for arguments that make no sense.
    """

    def __init__(
        self,
        client: AsyncDisque,
        queues: Sequence[str | bytes],
        handler: Handler,
        *,
        concurrency: int = 10,
        heartbeat_s: Span | None = HEARTBEAT_S,
        grace_s: Span = 25.0,
        on_failure: Literal["nack", "leave"] = "nack",
        backoff: Backoff | None = Backoff(),  # noqa: B008  # Immutable.
        max_attempts: int | None = None,
        on_give_up: GiveUp | None = None,
        withmeta: bool = False,
        withlease: bool = False,
        lease: Seconds | None = None,
        where: Where | None = None,
        hooks: WorkerHooks | None = None,
    ) -> None:
        if isinstance(queues, (str, bytes)):
            raise TypeError("queues is a list of names, not one name")
        if whole("concurrency", concurrency) < 1:
            raise ValueError("concurrency must be at least 1")
        if on_failure not in ("nack", "leave"):
            raise ValueError(f"on_failure must be 'nack' or 'leave', not {on_failure!r}")
        if (max_attempts is None) != (on_give_up is None):
            raise ValueError("max_attempts and on_give_up need each other: a job that is given up is acknowledged")
        if max_attempts is not None and whole("max_attempts", max_attempts) < 1:
            raise ValueError("max_attempts must be at least 1")
        self._client = client
        self._queues = tuple(queues)
        self._handler = handler
        self._concurrency = whole("concurrency", concurrency)
        self._heartbeat_s = None if heartbeat_s is None else float_seconds("heartbeat_s", heartbeat_s)
        self._grace_s = float_seconds("grace_s", grace_s)
        self._nacks_failures = on_failure == "nack"
        self._backoff = backoff
        self._max_attempts = max_attempts
        self._give_up_handler = on_give_up
        self._withmeta = withmeta
        self._withlease = withlease
        self._lease = None if lease is None else seconds("lease", lease)
        self._where = where
        self._hooks = hooks or WorkerHooks()
        self._rng = Random()
        self._is_async = _is_coroutine_function(handler)
        self._gives_up_async = on_give_up is not None and _is_coroutine_function(on_give_up)
        self._stop = asyncio.Event()
        self._free_count = self._concurrency
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_ended = False
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._running: dict[str, Job] = {}
        self._resting: dict[str, tuple[Job, asyncio.TimerHandle]] = {}
        self._done: list[Job] = []
        self._failed: list[Job] = []
        self._has_done = asyncio.Event()
        self._has_failed = asyncio.Event()
        self._acknowledging = asyncio.Lock()
        self._putting_back = asyncio.Lock()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._heartbeat: Heartbeat | None = None
        self._threads: ThreadPoolExecutor | None = None

    def run(self, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        """Serve in a loop of its own until SIGTERM or SIGINT, then close the client. A second signal ends the grace.

        loop_factory   makes the loop, such as `uvloop.new_event_loop`; by default asyncio's own

        Raises AuthError for a wrong password, ReplyError if the node does not understand the worker's GETJOB, and any
        error that a hook raises.
        """
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
        """Fetch no more jobs, and let running handlers finish within the grace. A second call ends the grace."""
        if self._stop.is_set():
            self._is_idle.set()
        self._stop.set()

    async def serve(self) -> None:
        """Work until `stop`, or until the task is cancelled (then without grace). The client stays open.

        Raises the same errors as `run`.
        """
        loop = asyncio.get_running_loop()
        if not self._is_async or (self._give_up_handler is not None and not self._gives_up_async):
            self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="disque-worker")
        fetcher = loop.create_task(self._fetch_for_ever())
        runners = [loop.create_task(self._run_jobs()) for _ in range(self._concurrency)]
        settlers = [
            loop.create_task(self._settle_for_ever(self._has_done, self._acknowledge)),
            loop.create_task(self._settle_for_ever(self._has_failed, self._nack_failed)),
        ]
        helpers = [loop.create_task(self._wait_for_stop())]
        stopped = helpers[0]
        if self._heartbeat_s is not None or self._may_rest:
            first_s = HEARTBEAT_S if self._heartbeat_s is None else self._heartbeat_s
            self._heartbeat = Heartbeat(self._client, first_s, self._on_lost, lease=self._lease)
            helpers.append(loop.create_task(self._heartbeat.beat_for_ever()))
        grace_s = 0.0
        try:
            # Only `stopped` ends by itself. Any other task ends because of a bug here, or of a hook that raised.
            await asyncio.wait([fetcher, *runners, *helpers, *settlers], return_when=asyncio.FIRST_COMPLETED)
            grace_s = self._grace_s if stopped.done() else 0.0
        finally:
            await self._end(fetcher, runners, helpers, settlers, grace_s)

    @property
    def _may_rest(self) -> bool:
        return self._nacks_failures and self._backoff is not None

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()

    async def _end(
        self,
        fetcher: asyncio.Task[None],
        runners: list[asyncio.Task[None]],
        helpers: list[asyncio.Task[None]],
        settlers: list[asyncio.Task[None]],
        grace_s: float,
    ) -> None:
        await _cancel([fetcher])
        if grace_s > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_idle.wait(), grace_s)
        self._is_ended = True
        await _cancel(runners)
        await _cancel(helpers)  # A WORKING behind a job's NACK would keep the job from others for its RETRY.
        self._failed += self._running.values()  # Threads can't be ended, but their jobs are put back too.
        for job, timer in self._resting.values():
            timer.cancel()
            self._failed.append(job)
        self._resting.clear()
        while not self._jobs.empty():
            self._failed.append(self._jobs.get_nowait())
        last_words = [asyncio.create_task(self._acknowledge()), asyncio.create_task(self._nack_failed())]
        try:
            await asyncio.wait(last_words, timeout=LAST_ACKS_S)
        finally:
            await _cancel([*last_words, *settlers])
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for last in last_words:
            trouble = DisqueError("the last acks took too long") if last.cancelled() else last.exception()
            if isinstance(trouble, DisqueError):
                self._hooks.on_trouble(trouble)
            elif trouble is not None:
                raise trouble
        for task in (fetcher, *runners, *helpers, *settlers):
            error_of_ours = None if task.cancelled() else task.exception()
            if error_of_ours is not None:
                raise error_of_ours

    async def _fetch_for_ever(self) -> None:
        unacked_max = max(UNACKED_MIN, 10 * self._concurrency)
        while True:
            await self._has_room.wait()
            if len(self._done) > unacked_max:  # No node takes acks, so more jobs would only be done twice.
                await asyncio.sleep(ERROR_PAUSE_S)
                continue
            try:
                found = await self._client.get_jobs(
                    *self._queues,
                    count=self._free_count,
                    withcounters=True,
                    withmeta=self._withmeta,
                    withlease=self._withlease,
                    where=self._where,
                    lease=self._lease,
                )
            except DisqueError as error:
                if is_hopeless(error) or _is_misunderstood(error):
                    raise
                self._hooks.on_trouble(error)
                await asyncio.sleep(ERROR_PAUSE_S)
                continue
            for job in found:
                self._jobs.put_nowait(job)
            self._free_count -= len(found)
            if found:
                self._is_idle.clear()
            if self._free_count <= 0:
                self._has_room.clear()

    async def _run_jobs(self) -> None:
        """Run one job after the other, as long as the worker lives. There are `concurrency` such tasks."""
        loop = asyncio.get_running_loop()
        while not self._is_ended:
            job = await self._jobs.get()
            self._end_rest(job)  # The job came again although it rested here, so that delivery is over.
            self._running[job.id] = job
            if self._heartbeat is not None and self._heartbeat_s is not None:
                self._heartbeat.started(job, loop.time())
            is_done, must_rest = await self._attempt(job)
            if is_done:
                self._done.append(job)
                self._has_done.set()
            self._ended(job)
            if must_rest:
                self._rest(job)

    async def _attempt(self, job: Job) -> tuple[bool, bool]:
        """Run the handler, or give the job up. Return whether to acknowledge it, and else whether to put it back."""
        loop, hooks = asyncio.get_running_loop(), self._hooks
        began = loop.time()
        spent = self._max_attempts is not None and (job.delivery_count or 1) > self._max_attempts
        if spent:
            return await self._give_up(job, AttemptsSpentError(f"{self._max_attempts} attempts are over"))
        hooks.on_start(job)
        try:
            await self._call(self._handler, self._is_async, job)
        except (Exception, asyncio.CancelledError) as error:
            # Any exception of a handler is the job's failure, not the worker's. That includes the CancelledError of a
            # task that it waited for. Only if this task itself is cancelled, the CancelledError is the worker's own.
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            hooks.on_failure(job, error, loop.time() - began)
            if self._is_last(job):
                return await self._give_up(job, error)
            return False, self._nacks_failures
        hooks.on_success(job, loop.time() - began)
        return True, False

    def _is_last(self, job: Job) -> bool:
        if self._max_attempts is None:
            return False
        return (job.delivery_count or 1) >= self._max_attempts or is_at_most_once(job.id)

    async def _give_up(self, job: Job, error: BaseException) -> tuple[bool, bool]:
        assert self._give_up_handler is not None
        began = asyncio.get_running_loop().time()
        self._hooks.on_give_up(job, error)
        try:
            await self._call(self._give_up_handler, self._gives_up_async, job, error)
        except (Exception, asyncio.CancelledError) as failure:
            if isinstance(failure, asyncio.CancelledError) and _is_cancelled():
                raise
            self._hooks.on_failure(job, failure, asyncio.get_running_loop().time() - began)
            return False, self._nacks_failures
        return True, False

    async def _call(self, function: Callable[..., Any], is_async: bool, *args: Any) -> None:
        if is_async:
            await function(*args)
        else:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._threads, _called_in_thread, function, *args)
            if inspect.isawaitable(answer):  # A plain wrapper around a coroutine function, whose work is still to do.
                await answer

    # Jobs that rest.

    def _rest(self, job: Job) -> None:
        """Let the job wait for its next attempt. A job of RETRY 0 has none, and NACK tells the node so."""
        if self._backoff is None or self._heartbeat is None or self._is_ended or is_at_most_once(job.id):
            self._put_back(job)
        elif len(self._resting) < RESTING_MAX:
            loop = asyncio.get_running_loop()
            wait_s = self._backoff.wait_s(job.delivery_count or 1, self._rng)
            self._resting[job.id] = (job, loop.call_later(wait_s, self._rested, job))
            self._heartbeat.rests(job, loop.time())

    def _rested(self, job: Job) -> None:
        self._end_rest(job)
        self._put_back(job)

    def _put_back(self, job: Job) -> None:
        self._failed.append(job)
        self._has_failed.set()

    def _end_rest(self, job: Job) -> None:
        resting = self._resting.pop(job.id, None)
        if resting is not None:
            resting[1].cancel()
            if self._heartbeat is not None:
                self._heartbeat.ended(job)

    def _on_lost(self, job: Job, error: DisqueError) -> None:
        """Handle a lease that can't be extended. A resting job comes again anyway; a NACK would hit that delivery."""
        if job.id in self._resting:
            self._end_rest(job)
        else:
            self._hooks.on_lost(job, error)

    def _ended(self, job: Job) -> None:
        self._running.pop(job.id, None)
        if self._heartbeat is not None:
            self._heartbeat.ended(job)
        self._free_count += 1
        self._has_room.set()
        if self._free_count == self._concurrency:
            self._is_idle.set()

    async def _settle_for_ever(self, is_due: asyncio.Event, settle: Callable[[], Awaitable[None]]) -> None:
        while True:
            await is_due.wait()
            is_due.clear()
            try:
                await settle()
            except DisqueError as error:
                if is_hopeless(error):
                    raise
                self._hooks.on_trouble(error)
                await asyncio.sleep(ERROR_PAUSE_S)
                is_due.set()

    # Acks and NACKs don't wait for each other. The last call of each waits for the one in progress, which must not be
    # cut off.

    async def _acknowledge(self) -> None:
        """Acknowledge the done jobs. Acks that could not be sent are kept."""
        async with self._acknowledging:
            done, self._done = self._done, []
            try:
                if done:
                    await self._client.ack_jobs(done)
            except BaseException:  # Also when this task is cancelled: the jobs are acknowledged later.
                self._done += done
                raise

    async def _nack_failed(self) -> None:
        """Put back the failed jobs. None is kept: a second NACK could hit the next delivery, and RETRY brings them."""
        async with self._putting_back:
            failed, self._failed = self._failed, []
            if failed:
                await self._client.nack(*failed)


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether a call makes a coroutine, also for an object whose __call__ is a coroutine function."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _called_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except StopIteration as error:
        # A future can't hold StopIteration (before Python 3.12 the future of this call would never be done).
        raise RuntimeError("the handler raised StopIteration") from error


def _is_misunderstood(error: DisqueError) -> bool:
    """Return whether a node can't parse this GETJOB, because it is older or lacks an option. Waiting won't help."""
    return type(error) is ReplyError and error.code == "ERR"


def _is_cancelled() -> bool:
    """Return whether the current task was asked to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
