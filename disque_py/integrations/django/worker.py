"""The worker of Django's tasks: threads that each run one task at a time.

A thread fetches a job only when it is free, so no task waits behind a long one while another worker is idle. One more
thread extends the leases of running tasks (leases.py). A worker that is stopped finishes its running tasks first.

A job that is not a task of this site becomes errored. A failed task is not tried again, as Django's documentation says.
But a task whose worker died runs again, so tasks must be idempotent.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from asyncio import CancelledError
from collections.abc import Sequence
from traceback import format_exception
from typing import Final

from django.db import close_old_connections
from django.utils import timezone

from disque_py.client import DisqueError, Job
from disque_py.integrations.django.backend import DisqueBackend
from disque_py.integrations.django.framework import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from disque_py.integrations.django.records import change, result_of
from disque_py.integrations.leases import LeaseKeeper
from disque_py.integrations.patience import is_outage

# The time that a thread waits for a job before it checks whether it has to stop.
WAIT_MS: Final = 1_000
# The pause after a connection error. The client has used its own patience before.
PAUSE_S: Final = 1.0

_log = logging.getLogger(__name__)


class DisqueWorker:
    """Threads that run the tasks of a backend.

    backend   the backend
    queues    Django's names of the queues; the first queue is served before the next. By default all queues of the
              backend
    threads   number of tasks that run at a time, 4 by default
    burst     True: stop when no task comes for a second. False by default: run until `stop`
    """

    def __init__(
        self, backend: DisqueBackend, *, queues: Sequence[str] = (), threads: int = 4, burst: bool = False
    ) -> None:
        self.id = f"{socket.gethostname()}-{os.getpid()}"
        self._backend = backend
        names = queues or sorted(backend.queues)
        self._queues = [backend.queue_of(name) for name in names]
        # A backend with `QUEUES: []` takes tasks of any queue.
        self._patterns = None if names else [backend.queue_of("*")]
        self._count = threads
        self._burst = burst
        self._stopping = threading.Event()
        self._kept: set[str] = set()
        self.leases = LeaseKeeper(backend.client, backend.lease_s)

    def stop(self) -> None:
        """Fetch no more tasks. `run` returns when the running tasks have ended."""
        self._stopping.set()

    def run(self) -> None:
        """Run tasks until the worker is stopped."""
        threads = [threading.Thread(target=self._work, name=f"disque-task-{at}") for at in range(self._count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.leases.close()

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                job = self._backend.client().get_job(
                    *self._queues,
                    match=self._patterns,
                    timeout_ms=WAIT_MS,  # Without a wait, no node would be asked for tasks that only it has.
                    withlease=True,
                    lease=self.leases.lease,
                )
                if job is not None:
                    self._handle(job)
                elif self._burst:
                    return
            except DisqueError:
                _log.exception("the nodes can't be used; the worker tries again")
                self._stopping.wait(PAUSE_S)
            except (Exception, CancelledError):  # One task must not end the thread. It comes again after its lease.
                _log.exception("a task could not be handled")
                self._stopping.wait(PAUSE_S)

    def _handle(self, job: Job) -> None:
        self.leases.add(job)
        try:
            try:
                self._keep_results(job.queue)
                result = result_of(job.body, job.id, self._backend.alias)
            except Exception as error:
                _log.exception("job %s is not a task of this site", job.id)
                reason = f"{type(error).__name__}: {error}"
                self._backend.client().nack(job, final=True, reason=reason, attempt=job.attempt)
                return
            close_old_connections()
            try:
                self.execute(job, result)
            finally:
                close_old_connections()
            self._settle(job, result)
        finally:
            self.leases.remove(job)

    def _keep_results(self, queue: str) -> None:
        if queue not in self._kept:
            try:
                self._backend.keep_results(queue)
                self._kept.add(queue)
            except DisqueError:
                _log.warning("results may be kept for a shorter time than result_ttl", exc_info=True)

    def _settle(self, job: Job, result: TaskResult) -> None:
        """Report the end of a task as soon as a node can be used. Until then the lease is extended."""
        is_told = False
        while True:
            try:
                if result.status == TaskResultStatus.SUCCESSFUL:
                    self._backend.succeeded(job, result)
                else:
                    self._backend.failed(job, result)
                return
            except DisqueError as error:
                if self._stopping.is_set() or not is_outage(error):
                    raise
                if not is_told:
                    _log.warning("the end of task %s can't be reported yet: %s", job.id, error)
                is_told = True
            self._stopping.wait(PAUSE_S)

    def execute(self, job: Job, result: TaskResult) -> None:
        """Run a task, and write its end into the result."""
        task, now = result.task, timezone.now()
        # Only the number of earlier deliveries is known.
        workers = ["unknown"] * ((job.attempt or 1) - 1) + [self.id]
        change(result, status=TaskResultStatus.RUNNING, started_at=now, last_attempted_at=now, worker_ids=workers)
        task_started.send_robust(type(self._backend), task_result=result)
        try:
            context = (TaskContext(task_result=result),) if task.takes_context else ()
            value = normalize_json(task.call(*context, *result.args, **result.kwargs))
        except BaseException as error:  # every error: a thread gets no Ctrl-C, and an extension may raise its own kind
            path = f"{type(error).__module__}.{type(error).__qualname__}"
            found = TaskError(exception_class_path=path, traceback="".join(format_exception(error)))
            result.errors.append(found)
            change(result, finished_at=timezone.now(), status=TaskResultStatus.FAILED)
            task_finished.send_robust(type(self._backend), task_result=result)
        else:
            change(result, finished_at=timezone.now(), status=TaskResultStatus.SUCCESSFUL, _return_value=value)
            task_finished.send_robust(type(self._backend), task_result=result)
