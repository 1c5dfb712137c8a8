"""The commands as methods: one class per kind of client, all derived from the commands.

A method is a function of a module of commands (commands.py lists them) with `self` in front. Its name, parameters and
documentation are written there once, and type checkers see them through `ParamSpec`. For jobs that several nodes have
delivered, an ack sends one command to each of these nodes, and adds up the answers. Methods that wait are written here.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeAlias, TypeVar

from disque_py.client import (
    commands,
    events,
    flow_commands,
    scans,
    schedule_commands,
    templates,
    topic_commands,
)
from disque_py.client.arguments import JobRef
from disque_py.client.batch import AsyncBatch, Batch, Callback
from disque_py.client.errors import ReplyError
from disque_py.client.job_stream import JobStream
from disque_py.client.protocol import text, word
from disque_py.client.request import Request
from disque_py.client.results import Job, Outcome
from disque_py.client.scans import Scan
from disque_py.client.several_nodes import ack_jobs, fast_ack_jobs, nack_jobs, spread
from disque_py.client.spans import Span
from disque_py.client.templates import Adding
from disque_py.client.waiting import Waiting, is_older, outcome_of

# The end of each method's documentation.
EVERY_COMMAND: Final = """
    Like every command: DisqueConnectionError when no node answers, AuthError for a wrong password, another ReplyError
    when the node refuses the command.
"""

P = ParamSpec("P")
T = TypeVar("T")

Jobs: TypeAlias = "Generator[Job, None, None]"


class Result(Generic[T]):
    """The answer to a command of a pipeline. It is available once the pipeline has been executed."""

    __slots__ = ("_outcome",)

    def __init__(self) -> None:
        self._outcome: T | Exception = RuntimeError("the pipeline was not executed")

    def settle(self, outcome: T | Exception) -> None:
        """Set the value, or the error in its place, when the pipeline was executed."""
        self._outcome = outcome

    @property
    def value(self) -> T:
        """The command's answer. Raises its error; RuntimeError before the pipeline was executed."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def _dress(method: Callable[..., Any], build: Callable[..., Any], answer: str = "") -> None:
    """Give a derived method the signature and the documentation that users and tools see."""
    signature = inspect.signature(build)
    parameters = [shown for each in signature.parameters.values() for shown in _shown(each, build)]
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    answer = answer or str(signature.return_annotation).removeprefix("Request[").removesuffix("]")
    method.__doc__ = f"{(build.__doc__ or '').rstrip()}\n{EVERY_COMMAND}"
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]  # functions accept attributes
        parameters=[me, *parameters], return_annotation=answer
    )


def _shown(parameter: inspect.Parameter, build: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """Yield a parameter; if it unpacks a typed dictionary, yield the options of the dictionary instead."""
    if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
        yield parameter
        return
    options = build.__globals__[parameter.annotation.removeprefix("Unpack[").removesuffix("]")]
    for name, annotation in options.__annotations__.items():
        kind = annotation.__forward_arg__
        default = False if kind == "bool" else None
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _id_of(job: JobRef) -> str:
    return job.id if isinstance(job, Job) else text(word(job))


def _awaited(build: Callable[P, Request[T]]) -> Callable[Concatenate[AsyncCommands, P], Coroutine[Any, Any, T]]:
    @wraps(build)
    def method(self: AsyncCommands, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return self.run(build(*args, **kwargs))

    _dress(method, build)
    return method


def _called(build: Callable[P, Request[T]]) -> Callable[Concatenate[BlockingCommands, P], T]:
    @wraps(build)
    def method(self: BlockingCommands, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(build(*args, **kwargs))

    _dress(method, build)
    return method


def _queued(build: Callable[P, Request[T]]) -> Callable[Concatenate[PipelineCommands, P], Result[T]]:
    @wraps(build)
    def method(self: PipelineCommands, /, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        return self.add(build(*args, **kwargs))

    _dress(method, build)
    return method


def _awaited_many(
    build: Callable[P, Adding],
) -> Callable[Concatenate[AsyncCommands, P], Coroutine[Any, Any, list[str]]]:
    @wraps(build)
    def method(self: AsyncCommands, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, list[str]]:
        return self.run_adding(build(*args, **kwargs))

    _dress(method, build, "list[str]")
    return method


def _called_many(build: Callable[P, Adding]) -> Callable[Concatenate[BlockingCommands, P], list[str]]:
    @wraps(build)
    def method(self: BlockingCommands, /, *args: P.args, **kwargs: P.kwargs) -> list[str]:
        return self.run_adding(build(*args, **kwargs))

    _dress(method, build, "list[str]")
    return method


def _awaited_sum(
    build: Callable[P, list[Request[int]]],
) -> Callable[Concatenate[AsyncCommands, P], Coroutine[Any, Any, int]]:
    @wraps(build)
    def method(self: AsyncCommands, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, int]:
        return self._run_each(build(*args, **kwargs))

    _dress(method, build, "int")
    return method


def _called_sum(build: Callable[P, list[Request[int]]]) -> Callable[Concatenate[BlockingCommands, P], int]:
    @wraps(build)
    def method(self: BlockingCommands, /, *args: P.args, **kwargs: P.kwargs) -> int:
        return self._run_each(build(*args, **kwargs))

    _dress(method, build, "int")
    return method


def _async_iterated(
    build: Callable[P, Request[list[Job]]],
) -> Callable[Concatenate[AsyncCommands, P], JobStream]:
    @wraps(build)
    def method(self: AsyncCommands, /, *args: P.args, **kwargs: P.kwargs) -> JobStream:
        return self.iterate(build(*args, **kwargs))

    _dress(method, build, "JobStream")
    return method


def _iterated(build: Callable[P, Request[list[Job]]]) -> Callable[Concatenate[BlockingCommands, P], Jobs]:
    @wraps(build)
    def method(self: BlockingCommands, /, *args: P.args, **kwargs: P.kwargs) -> Jobs:
        return self.iterate(build(*args, **kwargs))

    _dress(method, build, "Generator[Job, None, None]")
    return method


def _async_scanned(
    build: Callable[P, Scan[T]], answer: str
) -> Callable[Concatenate[AsyncCommands, P], AsyncIterator[T]]:
    @wraps(build)
    def method(self: AsyncCommands, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self.scan(build(*args, **kwargs))

    _dress(method, build, answer)
    return method


def _scanned(build: Callable[P, Scan[T]], answer: str) -> Callable[Concatenate[BlockingCommands, P], Iterator[T]]:
    @wraps(build)
    def method(self: BlockingCommands, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.scan(build(*args, **kwargs))

    _dress(method, build, answer)
    return method


class AsyncCommands(ABC):
    """Every command as a coroutine."""

    @abstractmethod
    async def run(self, request: Request[T]) -> T:
        """Execute one command. Raises the errors of that command (errors.py)."""

    @abstractmethod
    async def run_adding(self, adding: Adding) -> list[str]:
        """Execute the ADDJOBs of `add_jobs`. Raises BatchError."""

    @abstractmethod
    def iterate(self, request: Request[list[Job]]) -> JobStream:
        """Return an iterator that repeats a GETJOB as long as it returns jobs."""

    @abstractmethod
    def scan(self, page: Scan[T]) -> AsyncIterator[T]:
        """Return an iterator over all pages of a scan. Raises DisqueConnectionError if its node is lost."""

    def _run_each(self, requests: list[Request[int]]) -> Coroutine[Any, Any, int]:
        return self.run(requests[0]) if len(requests) == 1 else self._sum_of(requests)

    async def _sum_of(self, requests: list[Request[int]]) -> int:
        return sum(await asyncio.gather(*map(self.run, requests)))

    def batch(self, name: str | bytes, callback: Callback | None = None) -> AsyncBatch:
        """Return a batch, for use in a `with` block. The batch is closed at the end of the block.

        name       name of the batch
        callback   queue and body of the job that is added when the batch is done; None, the default: none

        Raises nothing; its `add_job` and the end of the block raise the errors of every command.

        Example: `async with client.batch("upload-77") as batch: await batch.add_job("resize", photo)`
        """
        return AsyncBatch(self, name, callback)

    async def wait(self, job: JobRef, timeout: Span | None = None) -> Outcome:
        """Wait until a job is over: completed, canceled, errored, expired, or gone.

        job       a job, or its id
        timeout   seconds to wait, with a fraction, or a timedelta; None, the default: for ever

        The node replies as soon as the job is over (WAITJOB), with its result or its error. "gone" means that no node
        knows the job; then `Outcome.job` is None. If a node does not support WAITJOB, the client repeats SHOW CLUSTER,
        with pauses of 20 ms to a second. A dead letter is not over: it is in another queue.

        Raises TimeoutError if the job is not over in time, or if it is unknown when the time is over. Also raises
        BadIdError, ReplyError if the node supports neither command, ValueError for a time-out that is not finite, and
        the errors of every command.

        Example: `client.wait(job_id, timeout=30).result`
        """
        loop = asyncio.get_running_loop()
        waiting = Waiting(_id_of(job), timeout, loop.time())
        try:
            ends = await self.run(flow_commands.wait_jobs(_id_of(job), timeout=timeout))
            return outcome_of(ends[0], waiting.left_s(loop.time()))
        except ReplyError as error:
            if not is_older(error):
                raise
        while True:
            found = waiting.outcome(await self.run(commands.show(_id_of(job), cluster=True)))
            if found is not None:
                return found
            await asyncio.sleep(waiting.pause_s(loop.time()))

    add_job = _awaited(commands.add_job)
    add_jobs = _awaited_many(templates.add_jobs)
    get_job = _awaited(commands.get_job)
    get_jobs = _awaited(commands.get_jobs)
    jobs = _async_iterated(commands.jobs)
    ack = _awaited_sum(spread(commands.ack))
    ack_jobs = _awaited_sum(ack_jobs)
    fast_ack = _awaited_sum(spread(commands.fast_ack))
    fast_ack_jobs = _awaited_sum(fast_ack_jobs)
    nack = _awaited_sum(spread(commands.nack))
    nack_jobs = _awaited_sum(nack_jobs)
    ack_token = _awaited(commands.ack_token)
    nack_token = _awaited(commands.nack_token)
    extend_token = _awaited(commands.extend_token)
    working = _awaited(commands.working)
    cancel = _awaited(commands.cancel)
    wait_jobs = _awaited(flow_commands.wait_jobs)
    progress = _awaited(flow_commands.progress)
    batch_info = _awaited(flow_commands.batch_info)
    wait_batch = _awaited(flow_commands.wait_batch)
    close_batch = _awaited(flow_commands.close_batch)
    delete_batch = _awaited(flow_commands.delete_batch)
    batches = _awaited(flow_commands.batches)
    enqueue = _awaited(commands.enqueue)
    dequeue = _awaited(commands.dequeue)
    promote = _awaited(commands.promote)
    move_jobs = _awaited(commands.move_jobs)
    reschedule = _awaited(commands.reschedule)
    delete = _awaited(commands.delete)
    show = _awaited(commands.show)
    qlen = _awaited(commands.qlen)
    qpeek = _awaited(commands.qpeek)
    queue_depths = _awaited(commands.queue_depths)
    qstat = _awaited(commands.qstat)
    job_ids = _awaited(commands.job_ids)
    purge = _awaited(commands.purge)
    move = _awaited(commands.move)
    redrive = _awaited(commands.redrive)
    rebalance = _awaited(commands.rebalance)
    tasks = _awaited(commands.tasks)
    task = _awaited(commands.task)
    cancel_task = _awaited(commands.cancel_task)
    pause = _awaited(commands.pause)
    queue_settings = _awaited(commands.queue_settings)
    set_queue = _awaited(commands.set_queue)
    queues_with_settings = _awaited(commands.queues_with_settings)
    reset_queue = _awaited(commands.reset_queue)
    schedule = _awaited(schedule_commands.schedule)
    schedule_info = _awaited(schedule_commands.schedule_info)
    schedules = _awaited(schedule_commands.schedules)
    pause_schedule = _awaited(schedule_commands.pause_schedule)
    resume_schedule = _awaited(schedule_commands.resume_schedule)
    delete_schedule = _awaited(schedule_commands.delete_schedule)
    run_schedule = _awaited(schedule_commands.run_schedule)
    next_ticks = _awaited(schedule_commands.next_ticks)
    bind = _awaited(topic_commands.bind)
    unbind = _awaited(topic_commands.unbind)
    topics = _awaited(topic_commands.topics)
    publish = _awaited(topic_commands.publish)
    acquire_lock = _awaited(commands.acquire_lock)
    extend_lock = _awaited(commands.extend_lock)
    release_lock = _awaited(commands.release_lock)
    show_lock = _awaited(commands.show_lock)
    locks = _awaited(commands.locks)
    hello = _awaited(commands.hello)
    ping = _awaited(commands.ping)
    time = _awaited(commands.time)
    info = _awaited(commands.info)
    config_get = _awaited(commands.config_get)
    config_set = _awaited(commands.config_set)
    cluster_info = _awaited(commands.cluster_info)
    cluster_nodes = _awaited(commands.cluster_nodes)
    cluster_myid = _awaited(commands.cluster_myid)
    cluster_meet = _awaited(commands.cluster_meet)
    cluster_forget = _awaited(commands.cluster_forget)
    cluster_reset = _awaited(commands.cluster_reset)
    cluster_leaving = _awaited(commands.cluster_leaving)
    cluster_voters = _awaited(commands.cluster_voters)
    cluster_voters_init = _awaited(commands.cluster_voters_init)
    cluster_saveconfig = _awaited(commands.cluster_saveconfig)
    events_info = _awaited(events.events_info)
    events_read = _awaited(events.events_read)
    events_seek = _awaited(events.events_seek)
    execute = _awaited(commands.execute)
    qscan = _async_scanned(scans.qscan, "AsyncIterator[str]")
    jscan = _async_scanned(scans.jscan, "AsyncIterator[str]")
    jscan_info = _async_scanned(scans.jscan_info, "AsyncIterator[JobInfo]")


class BlockingCommands(ABC):
    """Every command as a call."""

    @abstractmethod
    def run(self, request: Request[T]) -> T:
        """Execute one command. Raises the errors of that command (errors.py)."""

    @abstractmethod
    def run_adding(self, adding: Adding) -> list[str]:
        """Execute the ADDJOBs of `add_jobs`. Raises BatchError."""

    @abstractmethod
    def iterate(self, request: Request[list[Job]]) -> Jobs:
        """Return an iterator that repeats a GETJOB as long as it returns jobs."""

    @abstractmethod
    def scan(self, page: Scan[T]) -> Iterator[T]:
        """Return an iterator over all pages of a scan. Raises DisqueConnectionError if its node is lost."""

    def _run_each(self, requests: list[Request[int]]) -> int:
        return sum(map(self.run, requests))

    def batch(self, name: str | bytes, callback: Callback | None = None) -> Batch:
        """Return a batch, for use in a `with` block. The batch is closed at the end of the block.

        name       name of the batch
        callback   queue and body of the job that is added when the batch is done; None, the default: none

        Raises nothing; its `add_job` and the end of the block raise the errors of every command.

        Example: `with client.batch("upload-77") as batch: batch.add_job("resize", photo)`
        """
        return Batch(self, name, callback)

    def wait(self, job: JobRef, timeout: Span | None = None) -> Outcome:
        """Wait until a job is over: completed, canceled, errored, expired, or gone.

        job       a job, or its id
        timeout   seconds to wait, with a fraction, or a timedelta; None, the default: for ever

        The node replies as soon as the job is over (WAITJOB), with its result or its error. "gone" means that no node
        knows the job; then `Outcome.job` is None. If a node does not support WAITJOB, the client repeats SHOW CLUSTER,
        with pauses of 20 ms to a second. A dead letter is not over: it is in another queue.

        Raises TimeoutError if the job is not over in time, or if it is unknown when the time is over. Also raises
        BadIdError, ReplyError if the node supports neither command, ValueError for a time-out that is not finite, and
        the errors of every command.

        Example: `client.wait(job_id, timeout=30).result`
        """
        waiting = Waiting(_id_of(job), timeout, time.monotonic())
        try:
            ends = self.run(flow_commands.wait_jobs(_id_of(job), timeout=timeout))
            return outcome_of(ends[0], waiting.left_s(time.monotonic()))
        except ReplyError as error:
            if not is_older(error):
                raise
        while True:
            found = waiting.outcome(self.run(commands.show(_id_of(job), cluster=True)))
            if found is not None:
                return found
            time.sleep(waiting.pause_s(time.monotonic()))

    add_job = _called(commands.add_job)
    add_jobs = _called_many(templates.add_jobs)
    get_job = _called(commands.get_job)
    get_jobs = _called(commands.get_jobs)
    jobs = _iterated(commands.jobs)
    ack = _called_sum(spread(commands.ack))
    ack_jobs = _called_sum(ack_jobs)
    fast_ack = _called_sum(spread(commands.fast_ack))
    fast_ack_jobs = _called_sum(fast_ack_jobs)
    nack = _called_sum(spread(commands.nack))
    nack_jobs = _called_sum(nack_jobs)
    ack_token = _called(commands.ack_token)
    nack_token = _called(commands.nack_token)
    extend_token = _called(commands.extend_token)
    working = _called(commands.working)
    cancel = _called(commands.cancel)
    wait_jobs = _called(flow_commands.wait_jobs)
    progress = _called(flow_commands.progress)
    batch_info = _called(flow_commands.batch_info)
    wait_batch = _called(flow_commands.wait_batch)
    close_batch = _called(flow_commands.close_batch)
    delete_batch = _called(flow_commands.delete_batch)
    batches = _called(flow_commands.batches)
    enqueue = _called(commands.enqueue)
    dequeue = _called(commands.dequeue)
    promote = _called(commands.promote)
    move_jobs = _called(commands.move_jobs)
    reschedule = _called(commands.reschedule)
    delete = _called(commands.delete)
    show = _called(commands.show)
    qlen = _called(commands.qlen)
    qpeek = _called(commands.qpeek)
    queue_depths = _called(commands.queue_depths)
    qstat = _called(commands.qstat)
    job_ids = _called(commands.job_ids)
    purge = _called(commands.purge)
    move = _called(commands.move)
    redrive = _called(commands.redrive)
    rebalance = _called(commands.rebalance)
    tasks = _called(commands.tasks)
    task = _called(commands.task)
    cancel_task = _called(commands.cancel_task)
    pause = _called(commands.pause)
    queue_settings = _called(commands.queue_settings)
    set_queue = _called(commands.set_queue)
    queues_with_settings = _called(commands.queues_with_settings)
    reset_queue = _called(commands.reset_queue)
    schedule = _called(schedule_commands.schedule)
    schedule_info = _called(schedule_commands.schedule_info)
    schedules = _called(schedule_commands.schedules)
    pause_schedule = _called(schedule_commands.pause_schedule)
    resume_schedule = _called(schedule_commands.resume_schedule)
    delete_schedule = _called(schedule_commands.delete_schedule)
    run_schedule = _called(schedule_commands.run_schedule)
    next_ticks = _called(schedule_commands.next_ticks)
    bind = _called(topic_commands.bind)
    unbind = _called(topic_commands.unbind)
    topics = _called(topic_commands.topics)
    publish = _called(topic_commands.publish)
    acquire_lock = _called(commands.acquire_lock)
    extend_lock = _called(commands.extend_lock)
    release_lock = _called(commands.release_lock)
    show_lock = _called(commands.show_lock)
    locks = _called(commands.locks)
    hello = _called(commands.hello)
    ping = _called(commands.ping)
    time = _called(commands.time)
    info = _called(commands.info)
    config_get = _called(commands.config_get)
    config_set = _called(commands.config_set)
    cluster_info = _called(commands.cluster_info)
    cluster_nodes = _called(commands.cluster_nodes)
    cluster_myid = _called(commands.cluster_myid)
    cluster_meet = _called(commands.cluster_meet)
    cluster_forget = _called(commands.cluster_forget)
    cluster_reset = _called(commands.cluster_reset)
    cluster_leaving = _called(commands.cluster_leaving)
    cluster_voters = _called(commands.cluster_voters)
    cluster_voters_init = _called(commands.cluster_voters_init)
    cluster_saveconfig = _called(commands.cluster_saveconfig)
    events_info = _called(events.events_info)
    events_read = _called(events.events_read)
    events_seek = _called(events.events_seek)
    execute = _called(commands.execute)
    qscan = _scanned(scans.qscan, "Iterator[str]")
    jscan = _scanned(scans.jscan, "Iterator[str]")
    jscan_info = _scanned(scans.jscan_info, "Iterator[JobInfo]")


class PipelineCommands(ABC):
    """Every command as a method that returns a Result. The Result has its value once the pipeline has been executed."""

    @abstractmethod
    def add(self, request: Request[T]) -> Result[T]:
        """Add one command to the pipeline."""

    add_job = _queued(commands.add_job)
    get_job = _queued(commands.get_job)
    get_jobs = _queued(commands.get_jobs)
    ack = _queued(commands.ack)
    fast_ack = _queued(commands.fast_ack)
    nack = _queued(commands.nack)
    ack_token = _queued(commands.ack_token)
    nack_token = _queued(commands.nack_token)
    extend_token = _queued(commands.extend_token)
    working = _queued(commands.working)
    cancel = _queued(commands.cancel)
    wait_jobs = _queued(flow_commands.wait_jobs)
    progress = _queued(flow_commands.progress)
    batch_info = _queued(flow_commands.batch_info)
    wait_batch = _queued(flow_commands.wait_batch)
    close_batch = _queued(flow_commands.close_batch)
    delete_batch = _queued(flow_commands.delete_batch)
    batches = _queued(flow_commands.batches)
    enqueue = _queued(commands.enqueue)
    dequeue = _queued(commands.dequeue)
    promote = _queued(commands.promote)
    move_jobs = _queued(commands.move_jobs)
    reschedule = _queued(commands.reschedule)
    delete = _queued(commands.delete)
    show = _queued(commands.show)
    qlen = _queued(commands.qlen)
    qpeek = _queued(commands.qpeek)
    queue_depths = _queued(commands.queue_depths)
    qstat = _queued(commands.qstat)
    job_ids = _queued(commands.job_ids)
    pause = _queued(commands.pause)
    queue_settings = _queued(commands.queue_settings)
    set_queue = _queued(commands.set_queue)
    queues_with_settings = _queued(commands.queues_with_settings)
    reset_queue = _queued(commands.reset_queue)
    schedule = _queued(schedule_commands.schedule)
    schedule_info = _queued(schedule_commands.schedule_info)
    schedules = _queued(schedule_commands.schedules)
    pause_schedule = _queued(schedule_commands.pause_schedule)
    resume_schedule = _queued(schedule_commands.resume_schedule)
    delete_schedule = _queued(schedule_commands.delete_schedule)
    run_schedule = _queued(schedule_commands.run_schedule)
    next_ticks = _queued(schedule_commands.next_ticks)
    bind = _queued(topic_commands.bind)
    unbind = _queued(topic_commands.unbind)
    topics = _queued(topic_commands.topics)
    publish = _queued(topic_commands.publish)
    ping = _queued(commands.ping)
    time = _queued(commands.time)
    info = _queued(commands.info)
    config_get = _queued(commands.config_get)
    config_set = _queued(commands.config_set)
    hello = _queued(commands.hello)
    cluster_info = _queued(commands.cluster_info)
    cluster_nodes = _queued(commands.cluster_nodes)
    cluster_myid = _queued(commands.cluster_myid)
    command = _queued(commands.execute)
