"""Tasks as jobs: the body of a job, its result, and the reason of a failure.

* The **body** is a dictionary in the app's serializer: `{"task": name, "args": […], "kwargs": {…}}`. An empty list or
  dictionary is left out. So a program in any language can add a task.
* The **result** is `=` and the value in the app's serializer. A value that is too long for a result
  (`result-max-bytes`) becomes the body of another job, and the result is `@` and the id of that job.
* The **reason** of a failure is text, because people read it in SHOW and in the console. Type and message are on the
  first lines. A line for each call follows, the innermost first. A reason has 1024 bytes, so the outermost calls may be
  missing.

Pure.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Final

from disque_py.client.arguments import REASON_BYTES_MAX
from disque_py.client.verdict import message_of
from disque_py.tasks.errors import SerializerError, TaskFailedError
from disque_py.tasks.serializers import Serializer

# Results up to this size travel with the acknowledgement. It is the default of `result-max-bytes` without the first
# byte.
INLINE_BYTES: Final = 65_536 - 1
INLINE: Final = b"="
ELSEWHERE: Final = b"@"

# The message of a long error is cut here, so that its traceback has room.
MESSAGE_BYTES_MAX: Final = 512
# The beginning of a line of the traceback.
CALL: Final = "  at "


@dataclass(slots=True)
class Message:
    """A task on its way to the broker. Middleware may change `queue` and `options`.

    task      its name
    queue     name of the queue
    body      the job's body
    options   other arguments of the client's `add_job`, by name
    """

    task: str
    queue: str
    body: bytes
    options: dict[str, Any] = field(default_factory=dict)


def write_body(serializer: Serializer, task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return the body of a job. Raises SerializerError for an unsupported argument."""
    body: dict[str, Any] = {"task": task}
    if args:
        body["args"] = list(args)
    if kwargs:
        body["kwargs"] = dict(kwargs)
    return serializer.dumps(body)


def read_body(serializer: Serializer, body: bytes) -> tuple[str, list[Any], dict[str, Any]]:
    """Return name and arguments of a task. Raises SerializerError for a body that is not a task."""
    found = serializer.loads(body)
    if not isinstance(found, dict):
        raise SerializerError("the body of this job is not a task")
    name, args, kwargs = found.get("task"), found.get("args", []), found.get("kwargs", {})
    if not (isinstance(name, str) and isinstance(args, list) and isinstance(kwargs, dict)):
        raise SerializerError("the body of this job is not a task")
    return name, args, kwargs


def failure_text(error: BaseException) -> str:
    """Return an error as the reason of a NACK, of 1024 bytes at most."""
    kind = type(error)
    is_builtin = kind.__module__ == "builtins"
    name = kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"
    message = _cut(message_of(error), MESSAGE_BYTES_MAX)
    lines = [f"{name}: {message}" if message else name]
    room = REASON_BYTES_MAX - len(lines[0].encode("utf-8", "replace"))
    for frame, number in reversed(list(traceback.walk_tb(own_calls(error)))):
        line = f"{CALL}{_module(frame)}:{number} in {frame.f_code.co_qualname}"
        room -= 1 + len(line.encode("utf-8", "replace"))
        if room < 0:
            break
        lines.append(line)
    return "\n".join(lines)


def own_calls(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error without the calls in this package that led to the task's function."""
    own = step = error.__traceback__
    while step is not None:
        if _module(step.tb_frame).startswith("disque_py.tasks.") and step.tb_next is not None:
            own = step.tb_next
        step = step.tb_next
    return own


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))


def read_failure(reason: str | None) -> TaskFailedError:
    """Return the reason of an errored job as an exception."""
    if not reason:
        return TaskFailedError("", "the attempts are spent, and no worker gave a reason")
    head, _, calls = reason.partition(f"\n{CALL}")
    name, colon, message = head.partition(": ")
    if not all(part.isidentifier() for part in name.replace("<locals>", "_").split(".")):
        name, colon, message = "", "", head  # The text was not written by a worker of this API.
    return TaskFailedError(name, message if colon else "" if name else head, CALL + calls if calls else "")


def _cut(text: str, size: int) -> str:
    data = text.encode("utf-8", "replace")
    return text if len(data) <= size else data[: size - 3].decode("utf-8", "ignore") + "…"
