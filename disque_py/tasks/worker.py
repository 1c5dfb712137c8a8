"""The worker of an app: the client library's Worker, with the runner as its handler.

It fetches as many jobs as there are free calls, extends their leases while they run, acknowledges them with their
results, and gives failed jobs back (disque_py/client/worker.py). It also installs the schedules of the app, and tries
again until a node accepts them. The app's `lifespan` is open while it works.

When the worker stops, running calls get a grace period, and all other jobs go back immediately. A function in a thread
can't be interrupted. Its job goes back after the grace period, too, and `busy_threads` tells the program that threads
are left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Final

from disque_py.client.aio import AsyncDisque
from disque_py.client.errors import DisqueError, ReplyError
from disque_py.client.results import Job
from disque_py.client.spans import Span
from disque_py.client.verdict import Retry
from disque_py.client.worker import Worker, WorkerHooks
from disque_py.tasks.app import App
from disque_py.tasks.runner import Runner
from disque_py.tasks.schedules import install, is_final

# The default number of calls that run at a time.
CONCURRENCY: Final = 10
# The default number of seconds for which running calls may go on after a signal.
GRACE_S: Final = 25.0
# The pause before schedules are tried again.
AGAIN_S: Final = 2.0

_log: Final = logging.getLogger("disque_py.tasks")


class Hooks(WorkerHooks):
    """The notifications of the client's worker. Failures are not logged here, because the runner has logged them."""

    def on_retry(self, job: Job, retry: Retry) -> None:
        """Log a `Retry` that the task itself raised."""
        if retry.__cause__ is None:
            super().on_retry(job, retry)

    def on_give_up(self, job: Job, error: BaseException) -> None:
        """Log a task that gets no more attempts."""
        _log.error("task %s of %s is given up: %s", job.id, job.queue, str(error).partition("\n")[0])


class AppWorker:
    """A worker of an app.

    app           the app
    queues        queues in the order in which they are served; None, the default: those of the app's tasks
    concurrency   calls at a time, 10 by default: coroutines, and threads for plain functions
    grace_s       seconds that running calls may go on after `stop`, 25 by default
    schedules     True, the default: install the app's schedules
    prune         True: remove schedules of the app that it no longer declares. False by default

    Raises ValueError for an app without tasks, and for invalid arguments.
    """

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = CONCURRENCY,
        grace_s: Span = GRACE_S,
        schedules: bool = True,
        prune: bool = False,
    ) -> None:
        self.queues = list(queues) if queues else app.queues
        if not self.queues:
            raise ValueError("the app has no tasks")
        self._app = app
        self._concurrency = concurrency
        self._grace_s = grace_s
        self._installs = schedules
        self._prunes = prune
        self._worker: Worker | None = None
        self._runner: Runner | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_has_sigint = False
        # The task of `serve` while the app's lifespan begins or ends.
        self._in_lifespan: asyncio.Task[None] | None = None
        self._is_stopped = False

    @property
    def busy_threads(self) -> int:
        """The number of functions that still run in threads. After `serve` it is 0 unless the grace was too short."""
        return 0 if self._runner is None else self._runner.busy_threads

    def run(self) -> None:
        """Serve in a new event loop until SIGTERM or SIGINT. A second signal ends the grace period.

        Raises the errors of `serve`.
        """
        with suppress(asyncio.CancelledError):  # A second signal, while the lifespan began or ended.
            asyncio.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            if os.name == "nt":
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self.stop))
            else:
                loop.add_signal_handler(number, self.stop)
        self._loop_has_sigint = True
        try:
            await self.serve()
        finally:
            if os.name != "nt":
                # The end of the loop waits for functions in its threads (asyncio.to_thread), which can't be ended.
                # Meanwhile a further signal must end the program.
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Fetch no more jobs, and let running calls finish within the grace period. A second call ends that period.

        While the app's `lifespan` begins or ends, a second call cancels it.
        """
        if self._is_stopped and self._in_lifespan is not None:
            self._in_lifespan.cancel()
        self._is_stopped = True
        if self._worker is not None:
            self._worker.stop()

    def stop_from_thread(self) -> None:
        """Call `stop` in the event loop of the worker. Any thread may call this."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.stop)
        else:
            self._is_stopped = True

    async def serve(self) -> None:
        """Work until `stop`, or until the task is cancelled; then there is no grace period.

        Raises AuthError for a wrong password, ReplyError if a node does not support a worker's GETJOB, and the errors
        of the app's `lifespan`.
        """
        app = self._app
        self._loop = asyncio.get_running_loop()
        threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="disque-task")
        runner = self._runner = Runner(app, app.broker, threads)
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(app.close_async)
                self._in_lifespan = asyncio.current_task()
                if app.lifespan is not None:
                    await stack.enter_async_context(app.lifespan(app))
                client = app.async_client()
                self._worker = Worker(
                    client,
                    self.queues,
                    runner.handle,
                    concurrency=self._concurrency,
                    grace_s=self._grace_s,
                    withmeta=True,
                    results=True,
                    hooks=Hooks(),
                )
                self._worker.loop_has_sigint = self._loop_has_sigint
                if self._is_stopped:
                    return
                installing = asyncio.create_task(self._install(client))
                serving, self._in_lifespan = self._in_lifespan, None
                try:
                    await self._worker.serve()
                finally:
                    installing.cancel()
                    await asyncio.wait([installing])
                    self._in_lifespan = serving
        finally:
            self._in_lifespan = None
            threads.shutdown(wait=False, cancel_futures=True)

    async def _install(self, client: AsyncDisque) -> None:
        """Install the schedules, as soon as a node answers."""
        if not self._installs or not (self._app.schedules or self._prunes):
            return
        told = ""
        while True:
            try:
                outcome = await install(client, self._app.name, self._app.schedules, prune=self._prunes)
            except DisqueError as error:
                if isinstance(error, ReplyError) and is_final(error):
                    _log.error("the schedules can't be installed: %s", error)
                    return
                if str(error) != told:
                    told = str(error)
                    _log.warning("the schedules are not installed yet: %s", error)
                await asyncio.sleep(AGAIN_S)
                continue
            for name, reason in outcome.refused.items():
                _log.error("schedule %s can't be installed: %s", name, reason)
            for name in outcome.changed:
                _log.info("schedule %s is installed", name)
            for name in outcome.leftover:
                _log.warning("schedule %s is no longer declared: --prune removes it", name)
            for name in outcome.removed:
                _log.info("schedule %s is removed", name)
            return
