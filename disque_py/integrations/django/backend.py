"""The backend of Django's tasks: a task is a job, and its id is the result's id.

* `run_after` is the job's delay. Tasks with a larger `priority` run first, and tasks of equal priority by creation
  time.
* When a task succeeds, its job is acknowledged with RESULT, the record of its end.
* When a task fails, its job gets NACK FINAL. The job is errored, and stays for the retention of its queue. The record
  with the traceback, which is too long for a reason, is a slot (result_slots.py) under the job's id and the attempt.
* `aenqueue` and `aget_result` are those of Django, which call these methods in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from django.core import checks
from django.utils import timezone

from disque_py.client import BadIdError, Disque, Job, ReplyError
from disque_py.client.options import settings_of_url
from disque_py.client.processes import ProcessClient
from disque_py.integrations.django.framework import (
    BaseTaskBackend,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from disque_py.integrations.django.records import body_of, change, record_of, result_of
from disque_py.integrations.leases import LEASE_S
from disque_py.integrations.patience import once, persist
from disque_py.integrations.result_slots import ELSEWHERE, INLINE, INLINE_BYTES, ResultSlots, pack, unpack

URL: Final = "disque://127.0.0.1:7711"
OPTIONS: Final = ("url", "namespace", "lease", "replicate", "publish_once", "result_ttl")
# The TTL of a task without `run_after`. Its lease can be extended for half of this time.
TTL_S: Final = 30 * 86_400
RESULT_TTL_S: Final = 86_400
# One step of `priority` weighs more than any creation time in milliseconds.
PRIORITY_STEP: Final = 10**13
# The time-out of a question about the current state, which does not wait.
AT_ONCE_S: Final = 0.001


# Django makes a backend for each thread. They share clients, because connections are more expensive than objects.
_clients: Final[dict[str, ProcessClient]] = {}


class DisqueBackend(BaseTaskBackend):
    """A backend of Django's tasks. Its OPTIONS:

    url          the client's URL, `disque://host:port,host:port/?option=value`; by default disque://127.0.0.1:7711
    namespace    prefix of the names of queues, "django" by default
    lease        seconds after which the tasks of a dead worker run again, 60 by default. Tasks may take longer
    replicate    number of copies of each task; by default the node chooses
    publish_once   True: send a task again if its answer is lost, without making a second job. It costs a round trip
                   between the nodes. False by default: the error is raised
    result_ttl   seconds for which results are kept, a day by default
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = self.options
        self.namespace: str = options.get("namespace", "django")
        self.lease_s = float(options.get("lease", LEASE_S))
        self.result_ttl_s = int(options.get("result_ttl", RESULT_TTL_S))
        url = options.get("url", URL)
        self.client = _clients.setdefault(url, ProcessClient(url, "django"))

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """Return the problems of OPTIONS, for `manage.py check`."""
        found = [
            checks.Error(f"TASKS[{self.alias!r}]: unknown option {name!r}", id="disque.E001")
            for name in sorted(set(self.options) - set(OPTIONS))
        ]
        try:
            settings_of_url(self.options.get("url", URL))
        except ValueError as error:
            found.append(checks.Error(f"TASKS[{self.alias!r}]: {error}", id="disque.E002"))
        return found

    def queue_of(self, queue_name: str) -> str:
        """Return the name of a Django queue on the nodes."""
        return f"{self.namespace}.{queue_name}"

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Add a task → its result, whose id is that of the job.

        Raises InvalidTask, and the client library's errors: a ConnectionLostError means that the task may exist.
        """
        self.validate_task(task)
        now = timezone.now()
        result = TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=now,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        delay_s = 0.0
        if task.run_after is not None:
            delay_s = max(0.0, task.run_after.timestamp() - time.time())
        delay = timedelta(milliseconds=-(-delay_s * 1000 // 1)) if delay_s else None
        words: dict[str, Any] = {
            "delay": delay,
            "retry": timedelta(seconds=self.lease_s),
            "ttl": TTL_S + 2 * int(delay_s),  # A lease can be extended in the first half of a TTL only.
            "replicate": self.options.get("replicate"),
            "priority": int(1000 * time.time()) - int(task.priority) * PRIORITY_STEP if task.priority else None,
        }
        if self.options.get("publish_once"):
            words |= once()
        queue, body = self.queue_of(task.queue_name), body_of(task, result.args, result.kwargs, now)
        job_id = persist(lambda: self.client().add_job(queue, body, **words))
        change(result, id=job_id)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a task by its id. Raises TaskResultDoesNotExist, also if it was canceled."""
        return self._result(result_id, AT_ONCE_S)

    def wait_result(self, result_id: str, timeout: float | None = None) -> TaskResult:
        """Return the result of a task as soon as it has ended, or after `timeout` seconds. It does not poll."""
        return self._result(result_id, timeout)

    def _result(self, result_id: str, timeout: float | None) -> TaskResult:
        client = self.client()
        try:
            end = client.wait_jobs(result_id, timeout=timeout)[0]
        except BadIdError:
            raise TaskResultDoesNotExist(result_id) from None
        has_failed = end.status == "errored"
        if end.result is not None:
            record = self._unpacked(client, end.result)
            if record is not None:
                return result_of(record, result_id, self.alias)
        elif has_failed or not end.is_over:
            info = client.show(result_id, cluster=True)
            if info is not None and info.body is not None:
                if has_failed:
                    record = self._failures(client).get(f"{result_id}:{info.attempt}")
                    if record is not None:
                        return result_of(record, result_id, self.alias)
                result = result_of(info.body, result_id, self.alias)
                if end.status == "running":
                    change(result, status=TaskResultStatus.RUNNING)
                elif has_failed:
                    errors = [TaskError(exception_class_path="builtins.Exception", traceback=end.error or "")]
                    change(result, status=TaskResultStatus.FAILED, errors=errors)
                return result
        raise TaskResultDoesNotExist(result_id)

    @staticmethod
    def _unpacked(client: Disque, packed: bytes) -> bytes | None:
        found = unpack(packed, int(1000 * time.time()))
        if found is None or found[0] == INLINE:
            return None if found is None else found[1]
        info = client.show(found[1], cluster=True)
        return None if info is None else info.body

    def _failures(self, client: Disque) -> ResultSlots:
        return ResultSlots(client, f"{self.namespace}-failures")

    # For workers.

    def succeeded(self, job: Job, result: TaskResult) -> None:
        """Acknowledge the job of a task that succeeded, with the record of its end."""
        client, record = self.client(), record_of(result, job.body)
        until_ms = int(1000 * (time.time() + self.result_ttl_s))
        if len(record) <= INLINE_BYTES:
            try:
                client.ack(job, result=pack(INLINE, record, until_ms))
                return
            except ReplyError as error:
                if error.code != "ERR":
                    raise
        seconds = max(2, self.result_ttl_s)
        queue = f"{self.namespace}-results"
        job_id = persist(lambda: client.add_job(queue, record, ttl=seconds, delay=seconds - 1, retry_unsafe=True))
        client.ack(job, result=pack(ELSEWHERE, job_id.encode(), until_ms))

    def failed(self, job: Job, result: TaskResult) -> None:
        """Make the job of a failed task errored, and keep the record of its end."""
        client = self.client()
        self._failures(client).put(f"{job.id}:{job.attempt}", record_of(result, job.body), 1000 * self.result_ttl_s)
        lines = result.errors[-1].traceback.strip().splitlines()
        client.nack(job, final=True, reason=lines[-1] if lines else "", attempt=job.attempt)

    def keep_results(self, queue: str) -> None:
        """Make the nodes keep the results of one of their queues for longer, if necessary."""
        client = self.client()
        settings = client.queue_settings(queue)
        kept = settings.result_retention if settings is not None else None
        if (kept or timedelta(hours=1)) < timedelta(seconds=self.result_ttl_s):
            client.set_queue(queue, result_retention=self.result_ttl_s)
