"""The interface of dyno-queues (Netflix) on plain commands: messages in shards, with ids that the caller chooses.

    with Disque("10.0.0.1:7711") as client:
        queue = DynoQueue(client, "encode", shards=["a", "b"], shard="a")
        queue.push([Message("title-17", b"...", priority=10)])
        for message in queue.pop(5, wait=2):
            queue.ack(message)

A shard is a queue of the cluster, named `<name>.<shard>`; a queue without shards is one queue of that name. A message
is a job. Its id is the META pair `dyno-id`, by which it is found in any state. The unack time is RETRY: the nodes
deliver a message again by themselves, so no process has to move expired messages back.

Each operation is a generator of requests. `DynoQueue` and `AsyncDynoQueue` run it over the blocking and the asyncio
client. Differences from the original are in docs/dyno.md.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack

from disque_py.client import commands
from disque_py.client.address import Address
from disque_py.client.arguments import JobRef
from disque_py.client.commands import by_node
from disque_py.client.errors import (
    DisqueError,
    FencedError,
    JobCanceledError,
    NoJobError,
    StaleError,
    TooLateError,
)
from disque_py.client.request import Request
from disque_py.client.results import Hello, Job, JobInfo, QueueStat
from disque_py.client.spans import Milliseconds, Seconds, float_seconds, time_words

if TYPE_CHECKING:
    from disque_py.client.aio import AsyncDisque
    from disque_py.client.blocking import Disque

# The META pair that carries a message's id.
ID: Final = "dyno-id"
PRIORITY_MAX: Final = 99
UNACK_S: Final = 60
TTL_S: Final = 365 * 86_400
# The states of messages that are not over.
STATUSES: Final = ("pending", "running", "invisible", "errored")
# The most deliveries that a queue object remembers, so that acks and leases go to the node with the lease.
DELIVERIES_MAX: Final = 100_000
PEEK_MAX: Final = 10_000
# A message on another node arrives within this time, if a client waits for it.
LOOK_MS: Final = 50
# It arrives within this time even if it has just moved, because a node keeps a job for a moment (spec I7).
COME_MS: Final = 1_000
# The seconds for which a cancelled operation tries to put back the messages that it has taken.
PUT_BACK_S: Final = 2.0

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
Q = TypeVar("Q", bound="Face[Any]")
Steps: TypeAlias = "Generator[Request[Any], Any, T]"


@dataclass(slots=True)
class Message:
    """A message.

    id         the id that the caller chooses; messages with the same id are one message
    payload    the content; text becomes UTF-8
    priority   0 to 99, a lower number is served first; 0 by default
    timeout    seconds until it can be popped; 0 by default
    shard      the shard that it is in; None: the queue chooses
    job        the job of a message that a queue returned, None for a new one
    """

    id: str
    payload: bytes | str = b""
    priority: int = 0
    timeout: Seconds = 0
    shard: str | None = None
    job: Job | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= PRIORITY_MAX:
            raise ValueError(f"priority must be between 0 and {PRIORITY_MAX}")


Strategy: TypeAlias = "Callable[[Sequence[str], Message], str]"


def round_robin() -> Strategy:
    """Return a strategy that takes the shards in turn, beginning with a random one."""
    turn = random.randrange(1 << 16)

    def next_shard(shards: Sequence[str], message: Message) -> str:
        nonlocal turn
        turn += 1
        return shards[turn % len(shards)]

    return next_shard


class DynoOptions(TypedDict, total=False):
    """The options of a queue; see DynoQueue."""

    shards: Sequence[str]
    shard: str | None
    unack_time: Seconds
    ttl: Seconds
    strategy: Strategy | None
    overwrite: bool


def _priority_of(meta: dict[str, str]) -> int:
    """Return a message's priority. Other programs may add jobs to the queue, with any META."""
    text = meta.get("dyno-priority", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else 0


class Layout:
    """The shards of a queue, its options, and the deliveries of this object."""

    def __init__(
        self,
        name: str,
        *,
        shards: Sequence[str] = (),
        shard: str | None = None,
        unack_time: Seconds = UNACK_S,
        ttl: Seconds = TTL_S,
        strategy: Strategy | None = None,
        overwrite: bool = True,
    ) -> None:
        self.name = name
        self.shards: tuple[str, ...] = tuple(shards) or ("",)
        self.shard = self.shards[0] if shard is None else shard
        if self.shard not in self.shards:
            raise ValueError(f"{shard!r} is not one of the shards {list(self.shards)}")
        for option, span in (("unack_time", unack_time), ("ttl", ttl)):
            time_words(option, span)  # It refuses fractions of what a command takes.
            if float_seconds(option, span) <= 0:  # RETRY 0 would deliver each message at most once.
                raise ValueError(f"{option} must be above 0, not {span}")
        self.unack_time = unack_time
        self.ttl = ttl
        self.strategy = strategy or round_robin()
        self.overwrite = overwrite
        self.deliveries: OrderedDict[str, Job] = OrderedDict()

    def queue_of(self, shard: str) -> str:
        """Return the name of a shard's queue."""
        return f"{self.name}.{shard}" if shard else self.name

    def queues(self, *, is_local: bool = False) -> list[str]:
        """Return the names of all queues, that of this shard first; with `is_local`, only that one."""
        others = [] if is_local else [self.queue_of(shard) for shard in self.shards if shard != self.shard]
        return [self.queue_of(self.shard), *others]

    def message(self, job: Job) -> Message:
        """Return a job as a message."""
        meta = job.meta or {}
        shard = next((shard for shard in self.shards if self.queue_of(shard) == job.queue), None)
        return Message(meta.get(ID, job.id), job.body, _priority_of(meta), 0, shard, job)

    def delivered(self, jobs: Iterable[Job]) -> list[Message]:
        """Remember deliveries; return their messages."""
        found = [self.message(job) for job in jobs]
        for message in found:
            assert message.job is not None
            self.deliveries[message.id] = message.job
            self.deliveries.move_to_end(message.id)
        while len(self.deliveries) > DELIVERIES_MAX:
            self.deliveries.popitem(last=False)
        return found


# -- operations ---------------------------------------------------------------------------------------


def _add(layout: Layout, message: Message, *, delay: Seconds) -> Steps[str]:
    shard = message.shard if message.shard is not None else layout.strategy(layout.shards, message)
    if shard not in layout.shards:
        raise ValueError(f"{shard!r} is not one of the shards {list(layout.shards)}")
    meta = {ID: message.id}
    if message.priority:
        meta["dyno-priority"] = str(message.priority)
    found: str = yield commands.add_job(
        layout.queue_of(shard),
        message.payload,
        delay=delay or None,
        retry=layout.unack_time,
        ttl=layout.ttl,
        priority=message.priority,
        meta=meta,
    )
    return found


def _find(
    layout: Layout, message_id: str, statuses: Sequence[str] = STATUSES, *, is_local: bool = False, count: int = 1
) -> Steps[list[Job]]:
    """Look for the jobs of a message, in the order of shards and statuses."""
    found: list[Job] = []
    for queue in layout.queues(is_local=is_local):
        for status in statuses:
            found += yield commands.qpeek(
                queue,
                count,
                where={ID: message_id},
                status=status,  # type: ignore[arg-type]  # each of STATUSES is one
                withmeta=True,
                cluster=not is_local,
            )
            if len(found) >= count:
                return found
    return found


def push(layout: Layout, messages: Iterable[Message]) -> Steps[list[str]]:
    """Add messages. Return their ids.

    messages   the messages; a message replaces an older one with the same id

    With `overwrite=False` there is no search for older messages, which is much faster. Then ids must be new.
    """
    added: list[str] = []
    for message in messages:
        older: list[Job] = []
        if layout.overwrite:
            older = yield from _find(layout, message.id, count=PEEK_MAX)
        yield from _add(layout, message, delay=message.timeout)
        if older:
            layout.deliveries.pop(message.id, None)
            yield commands.cancel(*older)
        added.append(message.id)
    return added


def ensure(layout: Layout, message: Message) -> Steps[bool]:
    """Add a message only if no shard has one with its id, in any state. Return whether it was added.

    If several callers do this at the same time, each adds a job and then searches, and the job with the lowest id
    stays. So one message stays, but a message that is popped at that time may be delivered twice.
    """
    if (yield from _find(layout, message.id)):
        return False
    mine: str = yield from _add(layout, message, delay=message.timeout)
    others = [job for job in (yield from _find(layout, message.id, count=PEEK_MAX)) if job.id != mine]
    if any(job.id < mine for job in others):
        yield commands.cancel(mine)
        return False
    if others:
        yield commands.cancel(*others)
    return True


def pop(layout: Layout, count: int, wait: Milliseconds = LOOK_MS) -> Steps[list[Message]]:
    """Take up to `count` messages of this shard, in the order of priority, then age.

    count   the most messages
    wait    milliseconds to wait for the first message, 50 by default, because messages on other nodes need a moment

    A message that is not acknowledged within the unack time comes again.
    """
    return (yield from _take(layout, layout.queues(is_local=True), count, wait))


def bulk_pop(layout: Layout, count: int, wait: Milliseconds = LOOK_MS) -> Steps[list[Message]]:
    """Take up to `count` messages of this shard, as `pop` does. One command takes all messages on the node."""
    return (yield from pop(layout, count, wait))


def unsafe_pop_all_shards(layout: Layout, count: int, wait: Milliseconds = LOOK_MS) -> Steps[list[Message]]:
    """Take up to `count` messages of all shards, this one first. Unlike in the original, it makes no duplicates."""
    return (yield from _take(layout, layout.queues(), count, wait))


def unsafe_bulk_pop(layout: Layout, count: int, wait: Milliseconds = LOOK_MS) -> Steps[list[Message]]:
    """Take up to `count` messages of all shards, as `unsafe_pop_all_shards` does."""
    return (yield from unsafe_pop_all_shards(layout, count, wait))


def pop_with_msg_id(layout: Layout, message_id: str) -> Steps[Message | None]:
    """Take this message out of this shard. None if it is not there, or not ready."""
    return (yield from _take_one(layout, layout.queues(is_local=True), message_id))


def unsafe_pop_with_msg_id_all_shards(layout: Layout, message_id: str) -> Steps[Message | None]:
    """Take this message from the shard that has it. None if no shard has it, or if it is not ready."""
    return (yield from _take_one(layout, layout.queues(), message_id))


def _take_one(layout: Layout, queues: Sequence[str], message_id: str) -> Steps[Message | None]:
    """Take a message by its id. If it is ready on another node, wait until it comes, or another consumer has it."""
    where = {ID: message_id}
    found = yield from _take(layout, queues, 1, LOOK_MS, where)
    if not found:
        for queue in queues:
            if (yield commands.qpeek(queue, 1, where=where, cluster=True)):
                found = yield from _take(layout, queues, 1, COME_MS, where)
                break
    return found[0] if found else None


def _take(
    layout: Layout, queues: Sequence[str], count: int, wait: Milliseconds, where: dict[str, str] | None = None
) -> Steps[list[Message]]:
    """Take the messages on the node. If there are none, wait for one, and take the messages that came with it."""
    span_ms = wait // timedelta(milliseconds=1) if isinstance(wait, timedelta) else wait
    jobs: list[Job] = yield _get(queues, count, 0, where)
    if not jobs and span_ms:
        jobs = yield _get(queues, count, span_ms, where)
        if 0 < len(jobs) < count:
            with suppress(DisqueError):  # The caller gets the messages that were taken before.
                jobs += yield _get(queues, count - len(jobs), 0, where)
    return layout.delivered(jobs)


def _get(queues: Sequence[str], count: int, wait_ms: int, where: dict[str, str] | None) -> Request[list[Job]]:
    return commands.get_jobs(
        *queues, count=count, timeout_ms=wait_ms, nohang=not wait_ms, withmeta=True, withlease=True, where=where
    )


def peek(layout: Layout, count: int) -> Steps[list[Message]]:
    """Return the first messages of this shard that are ready, without taking them."""
    found = yield commands.qpeek(layout.queue_of(layout.shard), count, withmeta=True, cluster=True)
    return [layout.message(job) for job in found]


def unsafe_peek_all_shards(layout: Layout, count: int) -> Steps[list[Message]]:
    """Return the first messages of all shards that are ready, without taking them."""
    found: list[Message] = []
    for queue in layout.queues():
        jobs = yield commands.qpeek(queue, count - len(found), withmeta=True, cluster=True)
        found += [layout.message(job) for job in jobs]
        if len(found) >= count:
            break
    return found


def _id_of(message: Message | str) -> str:
    return message.id if isinstance(message, Message) else message


def _delivery_of(layout: Layout, message: Message | str) -> Job | None:
    """Return the job of a message that was popped, by this object or by the one that returned the message.

    Messages that were only looked at have jobs without a lease.
    """
    job = message.job if isinstance(message, Message) else None
    return job if job is not None and job.lease_ms is not None else layout.deliveries.get(_id_of(message))


def _forget(layout: Layout, message: Message | str, job: Job | None) -> None:
    """Forget a delivery that is over. A later delivery of the same message is kept."""
    message_id = _id_of(message)
    known = layout.deliveries.get(message_id)
    if known is not None and (job is None or known.id == job.id):
        del layout.deliveries[message_id]


def _find_running(layout: Layout, message: Message | str) -> Steps[Job | None]:
    found = yield from _find(layout, _id_of(message), ("running",))
    return found[0] if found else None


def ack(layout: Layout, message: Message | str) -> Steps[bool]:
    """Acknowledge a popped message, named by itself or by its id. Return False if it was done before, or is not popped.

    A message that was popped is acknowledged even if its unack time is over.
    """
    job = _delivery_of(layout, message)
    _forget(layout, message, job)
    if job is not None:
        return (yield from _ack_deliveries(job)) > 0
    job = yield from _find_running(layout, message)
    if job is None:
        return False
    yield commands.ack(job)  # A node without a copy passes the ack on, and counts nothing.
    return True


def ack_all(layout: Layout, messages: Iterable[Message]) -> Steps[int]:
    """Acknowledge many messages, with one command for each node that delivered some. Return how many were known."""
    jobs: list[Job] = []
    total = 0
    for message in messages:
        job = _delivery_of(layout, message)
        if job is not None:
            _forget(layout, message, job)
            jobs.append(job)
        elif (yield from ack(layout, message)):
            total += 1
    for group in by_node(jobs).values():
        total += yield from _ack_deliveries(*group)
    return total


def _ack_deliveries(*jobs: JobRef) -> Steps[int]:
    with suppress(FencedError):  # A single job of an exclusive queue, which another consumer has by now.
        count: int = yield commands.ack(*jobs)
        return count
    return 0


def set_unack_timeout(layout: Layout, message: Message | str, seconds: Seconds) -> Steps[bool]:
    """Let the lease of a popped message end in `seconds` from now. Return False if it is no longer popped.

    The lease of a message whose unack time is over begins again, if the message was not popped again meanwhile.
    """
    job = _delivery_of(layout, message)
    if job is None:
        job = yield from _find_running(layout, message)
        if job is None:
            return False
        yield from _go_to_holder(job)
    try:
        yield commands.working(job, seconds, attempt=job.attempt)
    except (NoJobError, TooLateError, StaleError, JobCanceledError, FencedError):
        return False
    return True


def _go_to_holder(job: Job) -> Steps[None]:
    """Let the next commands about a job go to a node that has a copy of it."""
    info: JobInfo | None = yield commands.show(job, cluster=True)
    if info is None:
        return
    hello: Hello = yield commands.hello()
    holders = [node for node in hello.nodes if node.id in info.nodes_delivered]
    if holders:
        best = min(holders, key=lambda node: (node.priority, node.id != hello.id))
        job.node = Address(best.host, best.port)


def set_timeout(layout: Layout, message: Message | str, seconds: Seconds) -> Steps[bool]:
    """Make a waiting message ready in `seconds` from now; 0: immediately. Return False if it is not waiting."""
    found = yield from _find(layout, _id_of(message), ("pending", "invisible"))
    if not found:
        return False
    (job,) = found
    changed: bool = yield commands.reschedule(job, delay=seconds)
    return changed


def remove(layout: Layout, message: Message | str) -> Steps[bool]:
    """Remove a message, popped or not. Return whether it existed. It is not delivered again."""
    message_id = _id_of(message)
    layout.deliveries.pop(message_id, None)
    found = yield from _find(layout, message_id, count=PEEK_MAX)
    count = (yield commands.cancel(*found)) if found else 0
    return bool(count)


def atomic_remove(layout: Layout, message: Message | str) -> Steps[bool]:
    """Remove a message, as `remove` does. A single command ends it on all nodes."""
    return (yield from remove(layout, message))


def get(layout: Layout, message_id: str) -> Steps[Message | None]:
    """Return a message that is not done, in any shard, state and node. None if there is none."""
    found = yield from _find(layout, message_id)
    return layout.message(found[0]) if found else None


def local_get(layout: Layout, message_id: str) -> Steps[Message | None]:
    """Return a message of this shard on the node that answers. None if there is none."""
    found = yield from _find(layout, message_id, is_local=True)
    return layout.message(found[0]) if found else None


def get_all_messages(layout: Layout) -> Steps[list[Message]]:
    """Return all messages of all shards that are not done, at most 10000 per shard and state."""
    return (yield from _all(layout))


def _all(layout: Layout, statuses: Sequence[str] = STATUSES, *, is_local: bool = False) -> Steps[list[Message]]:
    found: list[Message] = []
    for queue in layout.queues(is_local=is_local):
        for status in statuses:
            jobs = yield commands.qpeek(
                queue,
                PEEK_MAX,
                status=status,  # type: ignore[arg-type]  # each of STATUSES is one
                withmeta=True,
                cluster=True,
            )
            found += [layout.message(job) for job in jobs]
    return found


Predicate: TypeAlias = "Callable[[Message], bool]"


def get_msg_with_predicate(layout: Layout, predicate: Predicate, *, local_only: bool = False) -> Steps[Message | None]:
    """Return the first waiting message for which `predicate` is true. None if there is none.

    predicate    a function of a message
    local_only   look in this shard only; False by default
    """
    for message in (yield from _all(layout, ("pending", "invisible"), is_local=local_only)):
        if predicate(message):
            return message
    return None


def contains_predicate(layout: Layout, predicate: Predicate, *, local_only: bool = False) -> Steps[bool]:
    """Return whether there is a waiting message for which `predicate` is true; see `get_msg_with_predicate`."""
    found = yield from get_msg_with_predicate(layout, predicate, local_only=local_only)
    return found is not None


def pop_msg_with_predicate(layout: Layout, predicate: Predicate, *, local_only: bool = False) -> Steps[Message | None]:
    """Take the first ready message for which `predicate` is true; see `get_msg_with_predicate`."""
    for message in (yield from _all(layout, ("pending",), is_local=local_only)):
        if predicate(message):
            found = yield from unsafe_pop_with_msg_id_all_shards(layout, message.id)
            if found is not None:
                return found
    return None


def size(layout: Layout) -> Steps[int]:
    """Return the number of waiting messages in all shards. Popped messages are not counted."""
    total = 0
    for sizes in (yield from shard_sizes(layout)).values():
        total += sizes["size"]
    return total


def shard_sizes(layout: Layout) -> Steps[dict[str, dict[str, int]]]:
    """Return for each shard its `size` (waiting messages) and `uacked` (popped and not acknowledged)."""
    found: dict[str, dict[str, int]] = {}
    for shard in layout.shards:
        stat: QueueStat | None = yield commands.qstat(layout.queue_of(shard), cluster=True)
        waiting = 0 if stat is None else stat.len + stat.invisible
        found[shard] = {"size": waiting, "uacked": 0 if stat is None else stat.running}
    return found


def clear(layout: Layout) -> Steps[int]:
    """Remove all waiting messages of all shards. Return their number. Popped messages are not affected."""
    total = 0
    for queue in layout.queues():
        for status in ("pending", "invisible", "errored"):
            task = yield commands.purge(queue, status=status)
            total += task.jobs
    return total


def process_unacks(layout: Layout) -> Steps[int]:
    """Return the number of messages of this shard that are popped and not acknowledged.

    The original moves messages back whose unack time is over. Here the nodes do that by themselves.
    """
    stat = yield commands.qstat(layout.queue_of(layout.shard), cluster=True)
    return 0 if stat is None else stat.running


def atomic_process_unacks(layout: Layout) -> Steps[int]:
    """Return the same as `process_unacks`."""
    return (yield from process_unacks(layout))


def find_stale_messages(layout: Layout) -> Steps[list[Message]]:
    """Return messages without a payload: a node names them, and no node can show them.

    In the original an id may stay without its payload. Here both are one job, so the answer is empty unless nodes are
    missing.
    """
    found: list[Message] = []
    for message in (yield from _all(layout)):
        if message.job is not None and (yield commands.show(message.job)) is None:
            again = yield from _find(layout, message.id)
            found += [] if again else [message]
    return found


# -- faces ----------------------------------------------------------------------------------------------


class Run(Generic[T]):
    """A running operation: the request to send next, until the operation is over and has a result.

    taken   the jobs that it has fetched so far
    """

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.taken: list[Job] = []
        self.request: Request[Any] | None = None
        self._go_on(lambda: next(steps))

    def answer(self, reply: Any) -> None:
        """Give the operation the answer to its request."""
        if self.request is not None and self.request.takes_jobs:
            self.taken += reply
        self._go_on(lambda: self._steps.send(reply))

    def fail(self, error: Exception) -> None:
        """Give the operation the error of its request. This raises the error if the operation does not handle it."""
        self._go_on(lambda: self._steps.throw(error))

    def _go_on(self, step: Callable[[], Request[Any]]) -> None:
        try:
            self.request = step()
        except StopIteration as end:
            self.request = None
            self.result: T = end.value


def _run(client: Disque, steps: Steps[T]) -> T:
    run = Run(steps)
    while run.request is not None:
        try:
            reply = client.run(run.request)
        except Exception as error:
            run.fail(error)
        else:
            run.answer(reply)
    return run.result


async def _run_async(client: AsyncDisque, steps: Steps[T]) -> T:
    run = Run(steps)
    while run.request is not None:
        try:
            reply = await client.run(run.request)
        except Exception as error:
            run.fail(error)
        except asyncio.CancelledError:
            with suppress(DisqueError, TimeoutError):
                async with asyncio.timeout(PUT_BACK_S):
                    await client.put_back(run.taken)
            raise
        else:
            run.answer(reply)
    return run.result


def _called(operation: Callable[Concatenate[Layout, P], Steps[T]]) -> Callable[Concatenate[DynoQueue, P], T]:
    @wraps(operation)
    def method(self: DynoQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _run(self.client, operation(self.layout, *args, **kwargs))

    return method


def _awaited(
    operation: Callable[Concatenate[Layout, P], Steps[T]],
) -> Callable[Concatenate[AsyncDynoQueue, P], Coroutine[Any, Any, T]]:
    @wraps(operation)
    def method(self: AsyncDynoQueue, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return _run_async(self.client, operation(self.layout, *args, **kwargs))

    return method


class Face(Generic[C]):
    """A queue's layout, and the client that its operations run over."""

    def __init__(self, client: C, name: str, **options: Unpack[DynoOptions]) -> None:
        self.client = client
        self.layout = Layout(name, **options)

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.layout.name

    @property
    def unack_time(self) -> Seconds:
        """The seconds after which a popped message comes again."""
        return self.layout.unack_time

    def close(self) -> None:
        """Forget the deliveries of this object. The client stays open."""
        self.layout.deliveries.clear()


class DynoQueue(Face["Disque"]):
    """A queue of messages over a blocking client; see the module and docs/dyno.md.

    client       a `Disque`
    name         name of the queue
    shards       names of the shards, for example of zones; none by default: the queue is one shard
    shard        the shard that this object pops from; the first one by default
    unack_time   seconds after which a popped message comes again, 60 by default
    ttl          seconds after which a message is dropped, a year by default
    strategy     a function of (shards, message) that chooses a shard; by default the shards are taken in turn
    overwrite    True, the default: a pushed message replaces an older one with its id. False: ids must be new

        queue = DynoQueue(client, "encode", shards=["a", "b"], shard="a")
        queue.push([Message("title-17", b"...", priority=10)])
    """

    push = _called(push)
    ensure = _called(ensure)
    pop = _called(pop)
    bulk_pop = _called(bulk_pop)
    pop_with_msg_id = _called(pop_with_msg_id)
    pop_msg_with_predicate = _called(pop_msg_with_predicate)
    unsafe_pop_all_shards = _called(unsafe_pop_all_shards)
    unsafe_bulk_pop = _called(unsafe_bulk_pop)
    unsafe_pop_with_msg_id_all_shards = _called(unsafe_pop_with_msg_id_all_shards)
    peek = _called(peek)
    unsafe_peek_all_shards = _called(unsafe_peek_all_shards)
    ack = _called(ack)
    ack_all = _called(ack_all)
    set_unack_timeout = _called(set_unack_timeout)
    set_timeout = _called(set_timeout)
    remove = _called(remove)
    atomic_remove = _called(atomic_remove)
    get = _called(get)
    local_get = _called(local_get)
    get_all_messages = _called(get_all_messages)
    get_msg_with_predicate = _called(get_msg_with_predicate)
    contains_predicate = _called(contains_predicate)
    size = _called(size)
    shard_sizes = _called(shard_sizes)
    clear = _called(clear)
    process_unacks = _called(process_unacks)
    atomic_process_unacks = _called(atomic_process_unacks)
    find_stale_messages = _called(find_stale_messages)


class AsyncDynoQueue(Face["AsyncDisque"]):
    """A queue of messages over an asyncio client: each operation is awaited. See DynoQueue for the options."""

    push = _awaited(push)
    ensure = _awaited(ensure)
    pop = _awaited(pop)
    bulk_pop = _awaited(bulk_pop)
    pop_with_msg_id = _awaited(pop_with_msg_id)
    pop_msg_with_predicate = _awaited(pop_msg_with_predicate)
    unsafe_pop_all_shards = _awaited(unsafe_pop_all_shards)
    unsafe_bulk_pop = _awaited(unsafe_bulk_pop)
    unsafe_pop_with_msg_id_all_shards = _awaited(unsafe_pop_with_msg_id_all_shards)
    peek = _awaited(peek)
    unsafe_peek_all_shards = _awaited(unsafe_peek_all_shards)
    ack = _awaited(ack)
    ack_all = _awaited(ack_all)
    set_unack_timeout = _awaited(set_unack_timeout)
    set_timeout = _awaited(set_timeout)
    remove = _awaited(remove)
    atomic_remove = _awaited(atomic_remove)
    get = _awaited(get)
    local_get = _awaited(local_get)
    get_all_messages = _awaited(get_all_messages)
    get_msg_with_predicate = _awaited(get_msg_with_predicate)
    contains_predicate = _awaited(contains_predicate)
    size = _awaited(size)
    shard_sizes = _awaited(shard_sizes)
    clear = _awaited(clear)
    process_unacks = _awaited(process_unacks)
    atomic_process_unacks = _awaited(atomic_process_unacks)
    find_stale_messages = _awaited(find_stale_messages)


class Queues(Generic[Q]):
    """The queues of a program by name; `make` makes one."""

    def __init__(self, make: Callable[[str], Q]) -> None:
        self._make = make
        self._queues: dict[str, Q] = {}

    def get(self, name: str) -> Q:
        """Return the queue of this name, the same object each time."""
        if name not in self._queues:
            self._queues[name] = self._make(name)
        return self._queues[name]

    def queues(self) -> list[Q]:
        """Return the queues that `get` has returned so far."""
        return list(self._queues.values())

    def close(self) -> None:
        """Forget the deliveries of all queues. The client stays open."""
        for queue in self._queues.values():
            queue.close()


class DynoQueues(Queues[DynoQueue]):
    """The queues of a program, with the same options; `get` returns the same object for the same name."""

    def __init__(self, client: Disque, **options: Unpack[DynoOptions]) -> None:
        super().__init__(lambda name: DynoQueue(client, name, **options))


class AsyncDynoQueues(Queues[AsyncDynoQueue]):
    """The queues of a program over an asyncio client, with the same options. See DynoQueues."""

    def __init__(self, client: AsyncDisque, **options: Unpack[DynoOptions]) -> None:
        super().__init__(lambda name: AsyncDynoQueue(client, name, **options))
