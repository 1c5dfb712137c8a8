"""The worker: it fetches jobs, runs a handler on each, and acknowledges those that succeed.

    async def handle(job): ...
    Worker(AsyncDisque("127.0.0.1:7711"), ["mail"], handle, concurrency=50).run()

The worker fetches as many jobs as handlers are free, so no job waits here while its lease runs. When a handler returns,
its job is acknowledged. Acks are collected while the last ones are in flight, so under load one write carries many
(settling.py). Handlers that are plain functions run in threads, as many as `concurrency`.

When a handler raises, the worker sends a NACK: the job goes back to the cluster with the reason and a delay, and the
worker forgets it. The cluster counts deliveries and ends a job without attempts left: errored, or in the dead letter
queue. A handler, or `on_error`, may decide instead: Retry and Fail (verdict.py).

A node that does not support these options (dialect.py) can't delay a job. Then the job *rests* in the worker
(backoff.py): no handler runs, and the worker extends the lease with WORKING. At the end of the rest it puts the job
back with a plain NACK.

A canceled job ends its handler: a coroutine gets a CancelledError, and a function in a thread sees `job.is_canceled`.

The worker survives the loss of its nodes: it reports the error, and continues when a node is back. Two errors stop it,
because waiting does not help: a login that every node refuses, and a GETJOB that the node does not understand. Stopping
is graceful: the worker fetches no more jobs, running handlers may finish within `grace_s`, and all other jobs are put
back immediately.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from random import Random
from typing import Any, Final, Literal, TypeAlias, TypeVar

from disque_py.client.aio import AsyncDisque
from disque_py.client.arguments import Where
from disque_py.client.backoff import Backoff
from disque_py.client.dialect import Dialect, is_misunderstood
from disque_py.client.errors import AttemptsSpentError, DisqueError
from disque_py.client.heartbeat import Delivery, Heartbeat, delivery_of
from disque_py.client.protocol import word
from disque_py.client.results import Job, is_at_most_once
from disque_py.client.retry import refuses_login
from disque_py.client.settling import Settler
from disque_py.client.spans import Seconds, Span, float_seconds, time_words, whole
from disque_py.client.verdict import Fail, GivenBack, Retry, message_of, reason_of

Handler: TypeAlias = "Callable[[Job], Awaitable[Any]] | Callable[[Job], Any]"
Decision: TypeAlias = "Retry | Fail | None"
OnError: TypeAlias = "Callable[[Job, BaseException], Awaitable[Decision]] | Callable[[Job, BaseException], Decision]"
OnErrorT = TypeVar("OnErrorT", bound="OnError")
GiveUp: TypeAlias = "Callable[[Job, BaseException], Awaitable[Any]] | Callable[[Job, BaseException], Any]"

# The pause after an error. The client has used its patience already; this only keeps a broken worker from spinning.
ERROR_PAUSE_S: Final = 1.0

# The worker fetches no more jobs while more than this many are done but not acknowledged.
UNACKED_MIN: Final = 1_000

# The wait of jobs that failed, where neither the job nor its queue has a back-off.
BACKOFF_DEFAULT: Final = Backoff()

# Jobs that rest at a time. Beyond it a failed job is left to its RETRY, so it costs no memory and no WORKING here.
RESTING_MAX: Final = 1_000

# The default of `heartbeat_s`. Jobs that rest get WORKING after this time even if running jobs get none.
HEARTBEAT_S: Final = 0.4

# A person who cancels a job waits for its worker. An interval of ten seconds costs a node one command per long job in
# that time.
CANCEL_POLL_S: Final = 10.0

# The reason of jobs that a worker had when it stopped.
STOPPED: Final = "the worker stopped"

# The time limit for the last acks of a worker that stops. A silent node costs a client's time-out, 5 s by default. Then
# another node gets them.
LAST_ACKS_S: Final = 7.5

# The time limit for coroutines to end after their cancellation. Together with the last acks it is shorter than the time
# that the supervisor of `disque-worker` gives a process after the grace.
CANCEL_S: Final = 2.0

_log = logging.getLogger(__name__)


class WorkerHooks:
    """The notifications of a worker. Override the ones that you need.

    They are called in the event loop, so they must be quick and must not raise. By default failures and errors are
    logged to `disque_py.client.worker`.

    In all of them `job` is the job that the handler got. `error` is the exception of the handler or of the client, and
    `seconds` (a float) is how long the handler ran.

        class Counts(WorkerHooks):
            def on_success(self, job: Job, seconds: float) -> None:
                print(job.queue, seconds)
    """

    def on_start(self, job: Job) -> None:
        """Note that a handler takes the job."""

    def on_success(self, job: Job, seconds: float) -> None:
        """Note that the handler of the job returned after `seconds`. The ack follows."""

    def on_failure(self, job: Job, error: BaseException, seconds: float) -> None:
        """Note that the handler raised an `error` other than Retry and Fail, after `seconds`.

        The job is given back, left to its RETRY, or given up. By default the error is logged with a traceback.
        """
        _log.warning("job %s of %s failed, delivery %s", job.id, job.queue, job.delivery_count, exc_info=error)

    def on_retry(self, job: Job, retry: Retry) -> None:
        """Note that the handler raised or returned `retry`, or that `on_error` chose it."""
        _log.info("job %s of %s comes again, delivery %s: %s", job.id, job.queue, job.delivery_count, retry)

    def on_cancel(self, job: Job) -> None:
        """Note that the job was canceled while its handler ran, and the handler has ended. It is not acknowledged."""
        _log.info("job %s of %s was canceled", job.id, job.queue)

    def on_give_up(self, job: Job, error: BaseException) -> None:
        """Note that the job gets no more attempts, because of the last `error`.

        The worker's `on_give_up` takes the job. Without it the job is errored, or a dead letter.
        """
        _log.error("job %s of %s is given up, delivery %s: %r", job.id, job.queue, job.delivery_count, error)

    def on_lost(self, job: Job, error: DisqueError) -> None:
        """Note that WORKING failed with `error` while the handler still runs. The job may run elsewhere, too."""
        _log.warning("job %s of %s may be delivered again while it runs: %s", job.id, job.queue, error)

    def on_trouble(self, error: DisqueError) -> None:
        """Note that fetching or acknowledging failed with `error`. The worker tries again."""
        _log.warning("%s: %s", type(error).__name__, error)


class Worker:
    """A worker, which runs `handler` on the jobs of `queues`.

    client         the client that fetches and acknowledges; workers may share one
    queues         names of queues; jobs of the first queue are served before those of the next
    handler        a coroutine function of a job, or a plain function, which then runs in threads. It may raise or
                   return `Retry` and `Fail`
    concurrency    handlers at a time, 10 by default
    heartbeat_s    seconds after which a running job gets its first WORKING, which extends its lease; further ones
                   follow at half of its lease. 0.4 by default, None: never
    cancel_poll_s  seconds within which the handler of a canceled job learns of it, 10 by default; None: with the next
                   WORKING that the lease needs
    grace_s        seconds that running handlers may go on after `stop`, 25 by default
    on_failure     "nack", the default: a job whose handler raised is given back; "leave": it comes again after its
                   RETRY
    on_error       a function of a job and the exception of its handler, or a coroutine function. It returns `Retry`,
                   `Fail`, or None, and then the other settings decide. None by default
    backoff        the wait of a failed job until its next attempt. By default the job's own back-off, else that of its
                   queue, else `Backoff()`, which doubles from one second up to five minutes. Another `Backoff` replaces
                   all of these. None: the job is put back without a delay
    max_attempts   number of deliveries after which a job is given up, in addition to the job's own ATTEMPTS; None by
                   default: only ATTEMPTS limits them. A job of RETRY 0 has one delivery
    on_give_up     takes a job that is given up, and the last error. It is a coroutine function, or a plain function,
                   which then runs in threads. Afterwards the job is acknowledged. If it raises, the job is given up
                   again later. None, the default: the job is errored, or a dead letter
    withmeta       True: handlers see `Job.meta`. False by default
    withlease      True: handlers always see `Job.lease_ms` and `Job.attempt`, and the worker stops if a node does not
                   support them. False, the default: handlers see them if the node supports them
    lease          seconds for which deliveries last; by default each job's RETRY. With a lease, jobs of RETRY 0 are
                   skipped
    where          names and values: only jobs whose metadata have all these pairs. None, the default: any job
    results        True: the handler's return value (bytes, text or a number) is the job's result; None means no result.
                   A job whose result is longer than the node's `result-max-bytes` is errored. False, the default:
                   return values are ignored
    match          patterns instead of `queues`, such as `["mail.*"]`, 16 at most: jobs of every queue whose name
                   matches. `queues` must be empty then. None by default
    hooks          the notifications (WorkerHooks); by default failures and errors are logged

    Spans may be numbers of seconds or a `timedelta`. Handlers always see `Job.nacks`, `Job.additional_deliveries` and
    `Job.delivery_count`.

    Raises ValueError or TypeError for invalid arguments.

        async def send(job: Job) -> None:
            print("sending", job.body)

        Worker(AsyncDisque("10.0.0.1:7711"), ["mail"], send, concurrency=50, max_attempts=5).run()
    """

    def __init__(
        self,
        client: AsyncDisque,
        queues: Sequence[str | bytes],
        handler: Handler,
        *,
        concurrency: int = 10,
        heartbeat_s: Span | None = HEARTBEAT_S,
        cancel_poll_s: Span | None = CANCEL_POLL_S,
        grace_s: Span = 25.0,
        on_failure: Literal["nack", "leave"] = "nack",
        on_error: OnError | None = None,
        backoff: Backoff | None = BACKOFF_DEFAULT,
        max_attempts: int | None = None,
        on_give_up: GiveUp | None = None,
        withmeta: bool = False,
        withlease: bool = False,
        lease: Seconds | None = None,
        where: Where | None = None,
        results: bool = False,
        match: Sequence[str | bytes] | None = None,
        hooks: WorkerHooks | None = None,
    ) -> None:
        if not isinstance(client, AsyncDisque):
            raise TypeError(f"a Worker needs an AsyncDisque, not a {type(client).__name__}")
        if isinstance(queues, (str, bytes)):
            raise TypeError("queues is a list of names, not one name")
        if whole("concurrency", concurrency) < 1:
            raise ValueError("concurrency must be at least 1")
        if on_failure not in ("nack", "leave"):
            raise ValueError(f"on_failure must be 'nack' or 'leave', not {on_failure!r}")
        if max_attempts is not None and whole("max_attempts", max_attempts) < 1:
            raise ValueError("max_attempts must be at least 1")
        if lease is not None:
            time_words("lease", lease)
        self._client = client
        # The event loop handles SIGINT, as in `run`. Then a KeyboardInterrupt in a coroutine is no Ctrl-C.
        self.loop_has_sigint = False
        if isinstance(match, (str, bytes)):
            raise TypeError("match is a list of patterns, not one pattern")
        if match is not None and bool(queues) == bool(match):
            raise ValueError("a worker has either queues or patterns")
        self._queues = tuple(queues)
        self._match = None if match is None else tuple(match)
        self._handler = handler
        self._concurrency = whole("concurrency", concurrency)
        self._heartbeat_s = None if heartbeat_s is None else float_seconds("heartbeat_s", heartbeat_s)
        self._check_s = math.inf if cancel_poll_s is None else float_seconds("cancel_poll_s", cancel_poll_s)
        self._grace_s = float_seconds("grace_s", grace_s)
        self._nacks_failures = on_failure == "nack"
        self._error_handler = on_error
        self._backoff = backoff
        self._max_attempts = max_attempts
        self._give_up_handler = on_give_up
        self._withmeta = withmeta
        self._withlease = withlease
        self._lease = lease
        self._where = where
        self._keeps_results = results
        self._hooks = hooks or WorkerHooks()
        # The newest progress of running jobs, and whether one of each is on its way.
        self._progress: dict[Delivery, tuple[Job, int, str]] = {}
        self._telling: dict[Delivery, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rng = Random()
        self._is_async = _is_coroutine_function(handler)
        self._dialect = Dialect()
        policy = backoff if backoff is BACKOFF_DEFAULT else None
        self._settler = Settler(client, self._dialect, policy, self._on_refused, self._rng)
        self._stop = asyncio.Event()
        self._free_count = self._concurrency
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_ended = False
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._running: dict[Delivery, Job] = {}
        self._resting: dict[str, tuple[Job, asyncio.TimerHandle]] = {}
        # The jobs whose handlers run, and the task of each that is a coroutine.
        self._handling: dict[Delivery, asyncio.Task[Any] | None] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._heartbeat: Heartbeat | None = None
        self._threads: ThreadPoolExecutor | None = None

    def on_error(self, function: OnErrorT) -> OnErrorT:
        """Set the function that decides about errors, as a decorator.

        function   a function of a job and the exception of its handler, or a coroutine function. It returns `Retry`,
                   `Fail`, or None, and then the worker's settings decide

        Returns the function itself. Raises nothing.

            @worker.on_error
            def decide(job: Job, error: BaseException) -> Retry | Fail | None:
                return Fail(str(error)) if isinstance(error, ValueError) else None
        """
        self._error_handler = function
        return function

    def run(self, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        """Serve in a new event loop until SIGTERM or SIGINT, then close the client. A second signal ends the grace.

        loop_factory   makes the loop, such as `uvloop.new_event_loop`; by default asyncio's own

        Raises AuthError if every known node refuses the login, ReplyError if the node does not understand the worker's
        GETJOB, and any error that a hook raises.
        """
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            if os.name == "nt":  # Its loops take no handlers. This one runs between two steps of the loop's thread.
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self.stop))
            else:
                loop.add_signal_handler(number, self.stop)
        self.loop_has_sigint = True
        try:
            await self.serve()
        finally:
            await self._client.close()
            if os.name != "nt":
                # The end of the loop waits for functions in its threads (asyncio.to_thread), which can't be ended.
                # Meanwhile a further signal must end the program.
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Fetch no more jobs, and let running handlers finish within the grace. A second call ends the grace."""
        if self._stop.is_set():
            self._is_idle.set()
        self._stop.set()

    async def serve(self) -> None:
        """Work until `stop`, or until the task is cancelled (then without grace). The client stays open.

        Raises the same errors as `run`.
        """
        loop = self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="disque-worker")
        fetcher = loop.create_task(self._fetch_for_ever())
        runners = [loop.create_task(self._run_jobs()) for _ in range(self._concurrency)]
        settlers = [
            loop.create_task(self._settle_for_ever(self._settler.has_done, self._settler.acknowledge)),
            loop.create_task(self._settle_for_ever(self._settler.has_given_back, self._settler.give_back)),
        ]
        helpers = [loop.create_task(self._wait_for_stop())]
        stopped = helpers[0]
        if self._heartbeat_s is not None or self._may_rest:
            first_s = HEARTBEAT_S if self._heartbeat_s is None else self._heartbeat_s
            self._heartbeat = Heartbeat(
                self._client,
                first_s,
                self._on_lost,
                lease=self._lease,
                check_s=self._check_s,
                on_canceled=self._on_canceled,
                dialect=self._dialect,
            )
            helpers.append(loop.create_task(self._heartbeat.beat_for_ever()))
        grace_s = 0.0
        try:
            # Only `stopped` ends by itself. The fetcher and the settlers end if all nodes refuse the login. Another
            # task ends because of a bug here, or of a hook that raised. Then there is no grace: its job would never
            # end.
            await asyncio.wait([fetcher, *runners, *helpers, *settlers], return_when=asyncio.FIRST_COMPLETED)
            if stopped.done() or not any(task.done() for task in (*runners, *helpers)):
                grace_s = self._grace_s
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
        await _cancel(runners, CANCEL_S)  # A handler may ignore its cancellation. Its job is put back, too.
        await _cancel(helpers)  # A WORKING behind a job's NACK would keep the job from others for its RETRY.
        for job in self._running.values():  # Threads can't be ended, but their jobs are put back too.
            self._release(job)
        for job, timer in self._resting.values():
            timer.cancel()
            self._release(job)
        self._resting.clear()
        while not self._jobs.empty():
            self._release(self._jobs.get_nowait())
        settler = self._settler
        last_words = [asyncio.create_task(settler.acknowledge()), asyncio.create_task(settler.give_back())]
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
            error_of_ours = None if not task.done() or task.cancelled() else task.exception()
            if error_of_ours is not None:
                raise error_of_ours

    async def _fetch_for_ever(self) -> None:
        unacked_max = max(UNACKED_MIN, 10 * self._concurrency)
        while True:
            await self._has_room.wait()
            if len(self._settler.done) > unacked_max:  # No node takes acks, so more jobs would only be done twice.
                await asyncio.sleep(ERROR_PAUSE_S)
                continue
            try:
                found = await self._client.get_jobs(
                    *self._queues,
                    count=self._free_count,
                    withcounters=True,
                    withmeta=self._withmeta,
                    withlease=self._withlease or self._dialect.fetches_attempts,
                    where=self._where,
                    match=self._match,
                    lease=self._lease,
                )
            except DisqueError as error:
                if not self._withlease and self._dialect.fetch_is_refused(error):
                    continue
                if self._is_login_wrong(error) or is_misunderstood(error):
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
        """Run one job after the other, until the worker ends. There are `concurrency` such tasks."""
        loop = asyncio.get_running_loop()
        while not self._is_ended:
            job = await self._jobs.get()
            self._end_rest(job)  # If the job rested here, that delivery is over: this is a new one.
            self._running[delivery_of(job)] = job
            if self._heartbeat is not None and self._heartbeat_s is not None:
                self._heartbeat.started(job, loop.time())
            back = await self._attempt(job)
            self._ended(job)
            if back is not None:
                self._give_back(back)

    async def _attempt(self, job: Job) -> GivenBack | None:
        """Run the handler, or give the job up. Return the job if it must go back to the cluster."""
        loop, hooks = asyncio.get_running_loop(), self._hooks
        began = loop.time()
        if self._max_attempts is not None and (job.delivery_count or 1) > self._max_attempts:
            return await self._give_up(job, AttemptsSpentError(f"{self._max_attempts} attempts are over"))
        hooks.on_start(job)
        try:
            answer = await self._handle(job)
        except (Exception, asyncio.CancelledError) as error:
            # Any exception of a handler is the job's failure, not the worker's. That includes the CancelledError of a
            # task that it waited for. Only if this task itself is cancelled, the CancelledError is the worker's own.
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            if job.is_canceled:
                hooks.on_cancel(job)
                return None
            return await self._failed(job, error, loop.time() - began)
        if job.is_canceled:
            hooks.on_cancel(job)
            return None
        if isinstance(answer, (Retry, Fail)):
            return await self._failed(job, answer, loop.time() - began)
        took_s = loop.time() - began
        result: bytes | None = None
        if self._keeps_results and answer is not None:
            try:
                result = word(answer)
            except (TypeError, ValueError) as error:  # No text, or text that UTF-8 can't express.
                return await self._failed(job, error, took_s)
        hooks.on_success(job, took_s)
        self._settler.add_done(job, took_s, result)
        return None

    async def _handle(self, job: Job) -> Any:
        """Run the handler. A cancellation of the job interrupts it, and not the worker."""
        delivery = delivery_of(job)
        self._handling[delivery] = None
        job.tell = self._tell
        tracing = self._client.tracing
        try:
            if tracing is None:
                return await self._call(self._handler, self._is_async, job, delivery=delivery)
            with tracing.processing(job) as processing:
                answer = await self._call(self._handler, self._is_async, job, delivery=delivery)
                if isinstance(answer, (Retry, Fail)):
                    processing.failed(answer)
                return answer
        finally:
            self._handling.pop(delivery, None)

    def _tell(self, job: Job, percent: int, note: str) -> None:
        """Send the progress of a job soon, the newest only. A thread may call it."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._tell_soon, job, percent, note)

    def _tell_soon(self, job: Job, percent: int, note: str) -> None:
        delivery = delivery_of(job)
        if delivery not in self._handling:
            return  # A thread that the handler has left behind reports it.
        self._progress[delivery] = (job, percent, note)
        if delivery not in self._telling:
            self._telling[delivery] = asyncio.get_running_loop().create_task(self._tell_all(delivery))

    async def _tell_all(self, delivery: Delivery) -> None:
        """Send progress until the newest is sent. Ignore a refusal: the job is over, or the node is older."""
        try:
            while delivery in self._progress and delivery in self._handling:
                job, percent, note = self._progress.pop(delivery)
                with suppress(DisqueError):
                    await self._client.progress(job, percent, note or None, attempt=self._dialect.attempt_of(job))
        finally:
            self._progress.pop(delivery, None)
            del self._telling[delivery]

    def _on_canceled(self, job: Job) -> None:
        """Tell the handler that its job was canceled. A thread can't be interrupted; it may look."""
        is_new, job.is_canceled = not job.is_canceled, True
        if job.id in self._resting:
            self._end_rest(job)
        task = self._handling.get(delivery_of(job))
        if task is not None and is_new:
            task.cancel()

    async def _failed(self, job: Job, error: BaseException, took_s: float) -> GivenBack | None:
        """Decide about a job whose handler raised, or asked for another attempt."""
        if not isinstance(error, (Retry, Fail)):
            self._hooks.on_failure(job, error, took_s)
        decision: Decision = error if isinstance(error, (Retry, Fail)) else await self._decide(job, error)
        if self._is_last(job) or isinstance(decision, Fail):
            return await self._give_up(job, error if decision is None else decision, took_s)
        if decision is not None:
            self._hooks.on_retry(job, decision)
            return GivenBack(job, decision.reason or reason_of(error), self._delay_ms(job, decision))
        return GivenBack(job, reason_of(error), self._delay_ms(job)) if self._nacks_failures else None

    async def _decide(self, job: Job, error: BaseException) -> Decision:
        """Ask `on_error`. If it raises, the error is logged, and nothing is decided."""
        if self._error_handler is None:
            return None
        try:
            found = await self._call(self._error_handler, _is_coroutine_function(self._error_handler), job, error)
        except (Exception, asyncio.CancelledError) as failure:
            if isinstance(failure, asyncio.CancelledError) and _is_cancelled():
                raise
            self._hooks.on_failure(job, failure, 0.0)
            return None
        return found if isinstance(found, (Retry, Fail)) else None

    def _delay_ms(self, job: Job, retry: Retry | None = None) -> int | None:
        """Return the milliseconds until the next attempt; None: the job, its queue or the default policy decides."""
        if retry is not None and retry.delay_ms is not None:
            return retry.delay_ms
        if self._backoff is None:
            return 0
        if self._backoff is BACKOFF_DEFAULT:
            return None
        return round(1000 * self._backoff.wait_s(job.delivery_count or 1, self._rng))

    def _is_last(self, job: Job) -> bool:
        if self._max_attempts is None:
            return False
        return (job.delivery_count or 1) >= self._max_attempts or is_at_most_once(job.id)

    async def _give_up(self, job: Job, error: BaseException, took_s: float = 0.0) -> GivenBack | None:
        self._hooks.on_give_up(job, error)
        if self._give_up_handler is None:
            return GivenBack(job, reason_of(error), is_final=True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        is_async = _is_coroutine_function(self._give_up_handler)
        try:
            await self._call(self._give_up_handler, is_async, job, error)
        except (Exception, asyncio.CancelledError) as failure:
            if isinstance(failure, asyncio.CancelledError) and _is_cancelled():
                raise
            self._hooks.on_failure(job, failure, loop.time() - began)
            return GivenBack(job, reason_of(failure), self._delay_ms(job)) if self._nacks_failures else None
        self._settler.add_done(job, took_s + loop.time() - began)
        return None

    async def _call(
        self, function: Callable[..., Any], is_async: bool, *args: Any, delivery: Delivery | None = None
    ) -> Any:
        """Call a function of the program. `delivery` is given for the handler, which a cancellation interrupts."""
        loop = asyncio.get_running_loop()
        if is_async:
            answer = function(*args)
        else:
            context = copy_context()  # As asyncio.to_thread does: the span of a trace is a variable of the context.
            answer = await loop.run_in_executor(self._threads, context.run, _called_in_thread, function, *args)
            if not inspect.isawaitable(answer):  # A plain function may wrap a coroutine function.
                return answer
        # In its own task, a function leaves neither context variables nor a cancellation behind for the next one.
        task = loop.create_task(_contained(answer, passes_interrupt=not self.loop_has_sigint))
        if delivery is not None:
            self._handling[delivery] = task
        return await task  # A cancellation of this task reaches the other one.

    # Jobs that go back.

    def _give_back(self, back: GivenBack) -> None:
        """Give a job back to its node, if that supports delays and reasons. A job of RETRY 0 is only reported."""
        if is_at_most_once(back.job.id):
            self._settler.add_put_back(back.job)
        elif self._dialect.attempt_of(back.job) is None:
            self._rest(back)
        else:
            self._settler.add_given_back(back)

    def _on_refused(self, back: GivenBack) -> None:
        self._rest(back)

    def _release(self, job: Job) -> None:
        """Give a job back that the worker does not finish because it stops."""
        if is_at_most_once(job.id) or self._dialect.attempt_of(job) is None:
            self._settler.add_put_back(job)
        else:
            self._settler.add_given_back(GivenBack(job, STOPPED, 0))

    # Jobs that rest, because their node can't delay them.

    def _rest(self, back: GivenBack) -> None:
        """Let the job wait here for its next attempt."""
        job, wait_s = back.job, 0.0
        if back.delay_ms is not None:
            wait_s = back.delay_ms / 1000
        elif self._backoff is not None:
            wait_s = self._backoff.wait_s(job.delivery_count or 1, self._rng)
        if not wait_s or self._heartbeat is None or self._is_ended:
            self._settler.add_put_back(job)
        elif len(self._resting) < RESTING_MAX:
            loop = asyncio.get_running_loop()
            self._resting[job.id] = (job, loop.call_later(wait_s, self._rested, job))
            self._heartbeat.rests(job, loop.time())

    def _rested(self, job: Job) -> None:
        self._end_rest(job)
        self._settler.add_put_back(job)

    def _end_rest(self, job: Job) -> None:
        resting = self._resting.pop(job.id, None)
        if resting is not None:
            resting[1].cancel()
            if self._heartbeat is not None:
                self._heartbeat.ended(resting[0])

    def _on_lost(self, job: Job, error: DisqueError) -> None:
        """Handle a lease that can't be extended. A resting job comes again anyway; a NACK would hit that delivery."""
        if job.id in self._resting:
            self._end_rest(job)
        else:
            self._hooks.on_lost(job, error)

    def _ended(self, job: Job) -> None:
        self._running.pop(delivery_of(job), None)
        if self._heartbeat is not None:
            self._heartbeat.ended(job)
        self._free_count += 1
        self._has_room.set()
        if self._free_count == self._concurrency:
            self._is_idle.set()

    def _is_login_wrong(self, error: DisqueError) -> bool:
        """Return whether no node accepts the login. While one can't be reached, the worker waits for it."""
        return refuses_login(error) and self._client.pool.cluster.all_refuse_login

    async def _settle_for_ever(self, is_due: asyncio.Event, settle: Callable[[], Awaitable[None]]) -> None:
        while True:
            await is_due.wait()
            is_due.clear()
            try:
                await settle()
            except DisqueError as error:
                if self._is_login_wrong(error):
                    raise
                self._hooks.on_trouble(error)
                await asyncio.sleep(ERROR_PAUSE_S)
                is_due.set()


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether a call makes a coroutine, also for an object whose __call__ is a coroutine function."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def _contained(answer: Awaitable[Any], *, passes_interrupt: bool) -> Any:
    """Await an answer. Replace SystemExit and the like, which would end the worker, and with it all other handlers.

    passes_interrupt   a KeyboardInterrupt may be a Ctrl-C, which has to end the program
    """
    task = asyncio.current_task()
    try:
        return await answer
    except BaseException as error:
        if isinstance(error, (Exception, asyncio.CancelledError)):
            raise
        if passes_interrupt and isinstance(error, KeyboardInterrupt):
            raise
        if isinstance(error, GeneratorExit) and not _runs(task):
            raise  # Python closes this coroutine, which was not finished. Otherwise the handler itself raised it.
        raise _failure(error) from error


def _runs(task: asyncio.Task[Any] | None) -> bool:
    """Return whether the event loop runs this task now."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # There is no loop.
        return False


def _failure(error: BaseException) -> RuntimeError:
    if isinstance(error, SystemExit):
        return RuntimeError(f"the handler called sys.exit({error.code!r})")
    return RuntimeError(f"the handler raised {type(error).__name__}: {message_of(error)}".removesuffix(": "))


def _called_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except StopIteration as error:
        # A future can't hold StopIteration (before Python 3.12 the future of this call would never be done).
        raise RuntimeError("the handler raised StopIteration") from error
    except BaseException as error:
        if isinstance(error, (Exception, asyncio.CancelledError)):
            raise
        raise _failure(error) from error  # SystemExit, or an error of an extension. It would end the worker.


def _is_cancelled() -> bool:
    """Return whether the current task was asked to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _cancel(tasks: Sequence[asyncio.Task[Any]], limit_s: float | None = None) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=limit_s)
