"""The formats of tasks and their ends, as JSON.

The body of a job has the task's path and arguments. The record of an end also has the times, and the value or the
errors, so that a result is complete without the job.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.utils.module_loading import import_string

from disque_py.integrations.django.framework import Task, TaskError, TaskResult, TaskResultStatus

TIMES = ("enqueued_at", "started_at", "finished_at", "last_attempted_at")


def body_of(task: Task, args: Any, kwargs: Any, enqueued_at: datetime) -> bytes:
    """Return the body of a task's job. Raises TypeError for arguments that JSON can't express."""
    return json.dumps(
        {
            "task": task.module_path,
            "priority": task.priority,
            "queue_name": task.queue_name,
            "run_after": None if task.run_after is None else task.run_after.isoformat(),
            "args": args,
            "kwargs": kwargs,
            "enqueued_at": enqueued_at.isoformat(),
        }
    ).encode()


def record_of(result: TaskResult, body: bytes) -> bytes:
    """Return the record of a task's end."""
    record = json.loads(body)
    for name in TIMES:
        moment = getattr(result, name)
        record[name] = None if moment is None else moment.isoformat()
    record["status"] = result.status.value
    record["worker_ids"] = result.worker_ids
    record["errors"] = [[error.exception_class_path, error.traceback] for error in result.errors]
    record["value"] = result.return_value if result.status == TaskResultStatus.SUCCESSFUL else None
    return json.dumps(record).encode()


def result_of(data: bytes, job_id: str, backend: str) -> TaskResult:
    """Return the result that a body or a record describes.

    Raises ImportError for a task that no longer exists, and ValueError for a path that does not name a task.
    """
    record = json.loads(data)
    found = import_string(record["task"])
    if not isinstance(found, Task):
        raise ValueError(f"{record['task']} is not a task")
    run_after = record["run_after"]
    task = found.using(
        priority=record["priority"],
        queue_name=record["queue_name"],
        run_after=None if run_after is None else datetime.fromisoformat(run_after),
        backend=backend,
    )
    moments = {name: record.get(name) for name in TIMES}
    result = TaskResult(
        task=task,
        id=job_id,
        status=TaskResultStatus(record.get("status", "READY")),
        args=record["args"],
        kwargs=record["kwargs"],
        backend=backend,
        errors=[TaskError(exception_class_path=path, traceback=text) for path, text in record.get("errors", ())],
        worker_ids=record.get("worker_ids", []),
        **{name: None if moment is None else datetime.fromisoformat(moment) for name, moment in moments.items()},
    )
    change(result, _return_value=record.get("value"))
    return result


def change(result: TaskResult, **fields: Any) -> None:
    """Change fields of a result, although Django freezes them."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)
