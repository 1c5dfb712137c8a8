"""Tasks without a framework: functions that run in workers, on any machine.

    from disque_py.tasks import App

    app = App("disque://127.0.0.1:7711")

    @app.task
    def send_email(to: str) -> None: ...

    send_email.add("ada@example.com")

`disque-worker module:app` runs them. docs/tasks.md is the guide. The package uses only `disque_py.client`.

A program declares tasks with app.py, task.py and schedules.py, adds them one by one or with many.py, and waits for them
with handle.py and group.py. messages.py, serializers.py and options.py turn calls into jobs. operations.py defines the
operations of a broker. The broker is a cluster (cluster.py), or the memory of a test (memory.py). worker.py, runner.py
and middleware.py run tasks. The program disque-worker is in command.py, supervisor.py and source_watch.py.
"""

from disque_py.client.backoff import Backoff
from disque_py.client.verdict import Fail, Retry
from disque_py.tasks.app import App, TaskOptions
from disque_py.tasks.context import Context, current
from disque_py.tasks.errors import (
    SerializerError,
    TaskCanceledError,
    TaskError,
    TaskExpiredError,
    TaskFailedError,
    TaskGoneError,
    UnknownTaskError,
)
from disque_py.tasks.group import Group
from disque_py.tasks.handle import Handle, Progress
from disque_py.tasks.memory import Memory
from disque_py.tasks.messages import Message
from disque_py.tasks.middleware import Middleware, Proceed
from disque_py.tasks.options import AddOptions
from disque_py.tasks.schedules import tick_of
from disque_py.tasks.serializers import JSONSerializer, MsgPackSerializer, Serializer
from disque_py.tasks.task import AsyncTask, BaseTask, Call, Task
from disque_py.tasks.worker import AppWorker

__all__ = [
    "AddOptions",
    "App",
    "AppWorker",
    "AsyncTask",
    "Backoff",
    "BaseTask",
    "Call",
    "Context",
    "Fail",
    "Group",
    "Handle",
    "JSONSerializer",
    "Memory",
    "Message",
    "Middleware",
    "MsgPackSerializer",
    "Proceed",
    "Progress",
    "Retry",
    "Serializer",
    "SerializerError",
    "Task",
    "TaskCanceledError",
    "TaskError",
    "TaskExpiredError",
    "TaskFailedError",
    "TaskGoneError",
    "TaskOptions",
    "UnknownTaskError",
    "current",
    "tick_of",
]
