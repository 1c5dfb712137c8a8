"""The client library: asyncio, blocking, and a worker.

    async with AsyncDisque("127.0.0.1:7711") as client:
        await client.add_job("mail", b"...", retry=60)
        job = await client.get_job("mail")
        await client.ack(job)

It speaks RESP and imports nothing else of this project. docs/client.md describes its guarantees.

Each command is declared once, in the module of its family (`*_commands.py`). commands.py lists all of them, and
faces.py makes methods of them. There are two shells: aio*.py for asyncio, and blocking.py, pool.py and
socket_connection.py for threads. Both follow the pure rules in cluster.py, feed.py, retry.py, bulk.py, waiting.py and
spans.py. worker.py runs handlers, with settling.py, heartbeat.py, dialect.py, verdict.py and backoff.py. lock.py and
lock_lease.py keep locks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from disque_py.client.address import Address
from disque_py.client.errors import (
    AttemptsSpentError,
    AuthError,
    BadIdError,
    BatchClosedError,
    BatchError,
    ClientClosedError,
    ConnectionLostError,
    DisqueConnectionError,
    DisqueError,
    EmptyBatchError,
    EventsTrimmedError,
    FencedError,
    JobCanceledError,
    LeavingError,
    LimitError,
    LoadingError,
    LockDoneError,
    LockHeldError,
    LockLostError,
    LockSpentError,
    MaxLenError,
    MisconfError,
    NoEventLogError,
    NoJobError,
    NoKeyError,
    NoPermissionError,
    NoQuorumError,
    NoReplError,
    NoRouteError,
    NotConnectedError,
    OutOfMemoryError,
    PausedError,
    ProtocolError,
    ReplyError,
    ReplyTimeoutError,
    StaleError,
    TooBigError,
    TooLateError,
    UnreachableError,
)

if TYPE_CHECKING:
    from disque_py.client.aio import AsyncDisque
    from disque_py.client.backoff import Backoff
    from disque_py.client.batch import AsyncBatch, Batch
    from disque_py.client.blocking import Disque
    from disque_py.client.events import Event, EventLines, EventLog
    from disque_py.client.faces import Result
    from disque_py.client.flow_commands import BatchInfo, JobEnd
    from disque_py.client.job_stream import JobStream
    from disque_py.client.lock import AsyncLock, Lock
    from disque_py.client.options import ClientOptions, ClientSettings
    from disque_py.client.pipeline import AsyncPipeline, Pipeline
    from disque_py.client.results import (
        ClusterNode,
        Hello,
        Job,
        JobInfo,
        LockGrant,
        LockInfo,
        NodeInfo,
        Outcome,
        QueueSettings,
        QueueStat,
        Task,
        Voters,
    )
    from disque_py.client.schedule_commands import ScheduleInfo
    from disque_py.client.topic_commands import Binding
    from disque_py.client.verdict import Fail, Retry
    from disque_py.client.worker import Worker, WorkerHooks

__all__ = [
    "Address",
    "AsyncBatch",
    "AsyncDisque",
    "AsyncLock",
    "AsyncPipeline",
    "AttemptsSpentError",
    "AuthError",
    "Backoff",
    "BadIdError",
    "Batch",
    "BatchClosedError",
    "BatchError",
    "BatchInfo",
    "Binding",
    "ClientClosedError",
    "ClientOptions",
    "ClientSettings",
    "ClusterNode",
    "ConnectionLostError",
    "Disque",
    "DisqueConnectionError",
    "DisqueError",
    "EmptyBatchError",
    "Event",
    "EventLines",
    "EventLog",
    "EventsTrimmedError",
    "Fail",
    "FencedError",
    "Hello",
    "Job",
    "JobCanceledError",
    "JobEnd",
    "JobInfo",
    "JobStream",
    "LeavingError",
    "LimitError",
    "LoadingError",
    "Lock",
    "LockDoneError",
    "LockGrant",
    "LockHeldError",
    "LockInfo",
    "LockLostError",
    "LockSpentError",
    "MaxLenError",
    "MisconfError",
    "NoEventLogError",
    "NoJobError",
    "NoKeyError",
    "NoPermissionError",
    "NoQuorumError",
    "NoReplError",
    "NoRouteError",
    "NodeInfo",
    "NotConnectedError",
    "OutOfMemoryError",
    "Outcome",
    "PausedError",
    "Pipeline",
    "ProtocolError",
    "QueueSettings",
    "QueueStat",
    "ReplyError",
    "ReplyTimeoutError",
    "Result",
    "Retry",
    "ScheduleInfo",
    "StaleError",
    "Task",
    "TooBigError",
    "TooLateError",
    "UnreachableError",
    "Voters",
    "Worker",
    "WorkerHooks",
]

# Most programs need one of the two shells, and the command line tools need neither. So these names are loaded when
# first used.
_HOMES: Final = {
    "AsyncDisque": "aio",
    "AsyncLock": "lock",
    "AsyncPipeline": "pipeline",
    "Backoff": "backoff",
    "ClientOptions": "options",
    "ClientSettings": "options",
    "ClusterNode": "results",
    "Disque": "blocking",
    "Event": "events",
    "EventLines": "events",
    "EventLog": "events",
    "Fail": "verdict",
    "Hello": "results",
    "Job": "results",
    "JobInfo": "results",
    "JobStream": "job_stream",
    "Lock": "lock",
    "LockGrant": "results",
    "LockInfo": "results",
    "NodeInfo": "results",
    "Outcome": "results",
    "Pipeline": "pipeline",
    "QueueSettings": "results",
    "QueueStat": "results",
    "Result": "faces",
    "Retry": "verdict",
    "ScheduleInfo": "schedule_commands",
    "AsyncBatch": "batch",
    "Batch": "batch",
    "BatchInfo": "flow_commands",
    "JobEnd": "flow_commands",
    "Binding": "topic_commands",
    "Task": "results",
    "Voters": "results",
    "Worker": "worker",
    "WorkerHooks": "worker",
}


def _load(name: str) -> Any:
    """Return a public name of another module, or that module itself. AttributeError for any other name."""
    if name in _HOMES:
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    if name in _HOMES.values():
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# A type checker would take __getattr__ for a promise that every name exists.
if not TYPE_CHECKING:
    __getattr__ = _load
