"""The result backend of Celery for `disque://` and `disques://` URLs.

    app = Celery("shop", broker="disque://10.0.0.1:7711", backend="disque://10.0.0.1:7711")

Each result belongs to a separate job in the queue `celery-results`, which no consumer reads. Its KEY is the id of the
task, so the worker and each waiting program find the same job without an index. The worker acknowledges the job with
the result (ACKJOB … RESULT). Programs wait for it (WAITJOB) and need not poll.

* A result that is longer than LONG_BYTES is the body of a second job, and the first one names it.
* States before the end of a task (STARTED, RETRY, your own states) are jobs of the queue `celery-state:<task id>`. The
  newest one counts. The worker cancels them when the task ends.
* Results expire `result_expires` after they were stored, a day by default. A result can't be removed before: `forget`
  only makes this program forget it.
* If a task runs twice, its first end counts.
* A chord uses the task `celery.chord_unlock`, which checks the results of its header every second.

A program needs no thread for this, and a forked child opens its own connections.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Final

from celery import states
from celery.backends.base import Backend, SyncBackendMixin
from celery.exceptions import TimeoutError as CeleryTimeoutError
from kombu.utils.encoding import bytes_to_str, str_to_bytes

from disque_py.client import Disque, DisqueConnectionError, JobEnd, ReplyError
from disque_py.client.waiting import is_told
from disque_py.integrations.kombu.urls import DAY_S, masked, read_options, split_urls
from disque_py.integrations.patience import persist

RESULTS: Final = "celery-results"
STATE: Final = "celery-state:"
# Below the default of the nodes' limit for results, `result-max-bytes`.
LONG_BYTES: Final = 60_000
SHORT: Final = b"0"
LONG: Final = b"1"
WAIT_MAX: Final = 1_000


class DisqueBackend(SyncBackendMixin, Backend):
    """Results in the broker. Celery makes this object for the setting `result_backend`."""

    supports_native_join = True
    supports_autoexpire = True
    persistent = True

    def __init__(self, app: Any, url: str | None = None, **options: Any) -> None:
        super().__init__(app, url=url, **options)
        self.urls = split_urls(url or "disque://")
        found = read_options(self.urls, app.conf.result_backend_transport_options)
        self.client = Disque(*found.nodes, **found.settings)
        weakref.finalize(self, self.client.close)  # Celery closes no backend.
        self.ttl_s = int(self.expires) if self.expires else DAY_S
        self._has_settings = False

    def __reduce__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})

    def as_uri(self, include_password: bool = False) -> str:
        """Return the URLs for a log, without passwords."""
        return ";".join(self.urls) if include_password else masked(self.urls)

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """Return whether an operation may be repeated. After a lost connection, all of them may."""
        return isinstance(exc, DisqueConnectionError)

    # The job of a result.

    def _job(self, key: str) -> str:
        """Return the id of the job that has, or will have, the result of this key."""
        if not self._has_settings:
            self._keep_results()
            self._has_settings = True
        return persist(lambda: self.client.add_job(RESULTS, key, key=key, ttl=self.ttl_s, retry=self.ttl_s))

    def _keep_results(self) -> None:
        """Make the nodes keep results for `result_expires`, or for longer if another program has asked for that."""
        settings = self.client.queue_settings(RESULTS)
        kept = settings.result_retention if settings is not None else None
        if kept is None or kept < timedelta(seconds=self.ttl_s):
            self.client.set_queue(RESULTS, result_retention=self.ttl_s)

    def _store(self, key: str, payload: bytes) -> None:
        job = self._job(key)
        if len(payload) <= LONG_BYTES:
            try:
                self.client.ack(job, result=SHORT + payload)
                return
            except ReplyError as error:
                if error.code != "ERR":  # The limit of the nodes is lower than its default.
                    raise
        added = persist(lambda: self.client.add_job(RESULTS, payload, ttl=self.ttl_s, retry_unsafe=True))
        self.client.ack(job, result=LONG + added.encode())

    def _payload(self, end: JobEnd) -> bytes | None:
        """Return the stored bytes; None if there are none yet."""
        if end.result is None:
            return None
        if end.result[:1] == SHORT:
            return end.result[1:]
        found = self.client.show(end.result[1:].decode(), cluster=True)
        return None if found is None else found.body

    def _find(self, key: str) -> bytes | None:
        # An existing result is returned immediately, so the time-out only limits the wait for a missing one.
        return self._payload(self.client.wait_jobs(self._job(key), timeout=0.001)[0])

    # The methods that Celery calls.

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **options: Any
    ) -> Any:
        meta = self._get_result_meta(result=result, state=state, traceback=traceback, request=request)
        meta["task_id"] = bytes_to_str(task_id)
        payload = str_to_bytes(self.encode(meta))
        queue = f"{STATE}{task_id}"
        if state in states.READY_STATES:
            self._store(task_id, payload)
            if self.client.qlen(queue, cluster=_has_run_before(request)):
                self.client.purge(queue, wait=False)
        else:
            ttl_s = self.ttl_s
            persist(lambda: self.client.add_job(queue, payload, ttl=ttl_s, retry=ttl_s, retry_unsafe=True))
        return result

    def _get_task_meta_for(self, task_id: str) -> dict[str, Any]:
        payload = self._find(task_id)
        if payload is None:
            newest = self.client.qpeek(f"{STATE}{task_id}", -1, cluster=True)
            if not newest:
                return {"status": states.PENDING, "result": None}
            payload = newest[0].body
        return self._meta(payload)

    def _meta(self, payload: bytes) -> dict[str, Any]:
        return dict(self.decode_result(payload))

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_interval: Callable[[], object] | None = None,
    ) -> dict[str, Any]:
        """Wait until a task is over, and return its meta. Raises celery.exceptions.TimeoutError."""
        self._ensure_not_eager()
        for _, meta in self.get_many([task_id], timeout, interval, on_interval=on_interval):
            return meta
        raise CeleryTimeoutError("The operation timed out.")

    def get_many(
        self,
        task_ids: Iterable[str],
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_message: Callable[[dict[str, Any]], object] | None = None,
        on_interval: Callable[[], object] | None = None,
        max_iterations: int | None = None,
        READY_STATES: Any = states.READY_STATES,  # noqa: N803
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Iterate over ids and metas of tasks, in the order in which they end. Raises TimeoutError of Celery."""
        waiting = {self._job(task_id): task_id for task_id in map(bytes_to_str, task_ids)}
        until = None if timeout is None else time.monotonic() + timeout
        rounds = 0
        while waiting:
            left = None if until is None else until - time.monotonic()
            slices = [each for each in (left, interval if on_interval else None) if each is not None]
            span = max(0.001, min(slices)) if slices else None
            began = time.monotonic()
            ends = self.client.wait_jobs(*list(waiting)[:WAIT_MAX], first=True, timeout=span)
            left_s = None if span is None else span - (time.monotonic() - began)
            found = [(end.id, payload) for end in ends if (payload := self._payload(end)) is not None]
            for job_id, payload in found:
                meta = self._meta(payload)
                if on_message is not None:
                    on_message(meta)
                yield waiting.pop(job_id), meta
            gone = [end for end in ends if end.id in waiting and is_told(end, left_s)]
            if gone and not found:
                raise CeleryTimeoutError("The results have expired.")
            if on_interval is not None:
                on_interval()
            rounds += 1
            if max_iterations is not None and rounds >= max_iterations:
                return
            if waiting and until is not None and time.monotonic() >= until:
                raise CeleryTimeoutError("The operation timed out.")

    def _save_group(self, group_id: str, result: Any) -> Any:
        self._store(f"group:{group_id}", str_to_bytes(self.encode({"result": result.as_tuple()})))
        return result

    def _restore_group(self, group_id: str) -> dict[str, Any] | None:
        from celery.result import result_from_tuple

        payload = self._find(f"group:{group_id}")
        if payload is None:
            return None
        meta = self.decode(payload)
        return {"result": result_from_tuple(meta["result"], self.app)}

    def _delete_group(self, group_id: str) -> None:
        """Do nothing, because the result expires by itself."""

    def _forget(self, task_id: str) -> None:
        """Do nothing, because the result expires by itself."""


def _has_run_before(request: Any) -> bool:
    """Return whether another worker, which may use another node, may have stored states of this task."""
    return bool(request is not None and (request.retries or (request.delivery_info or {}).get("redelivered")))
