"""The broker of Dramatiq: a message is a job of the queue `<namespace>.<queue>`.

* A delayed message is a delayed job, which waits on the nodes. There are no `.DQ` queues.
* A consumer waits in GETJOB. Acks use other connections of the client, which any number of threads may share.
* While the queue has messages, acks are sent together, before the next GETJOB (_Acks). A round trip for each ack would
  cost the worker more than a quick task, because it passes Python's lock to another thread and back. A worker without
  another message, or with an empty queue, acknowledges immediately.
* A thread extends the leases of all messages that this process has fetched or runs (leases.py).
* A message that failed for good gets NACK FINAL: it is errored, or goes to the dead-letter queue in the queue's
  settings. On a node that does not support FINAL, it becomes a job of `<queue>.XQ`, for seven days.
* Dramatiq counts retries itself. It adds the message again, with a delay, and acknowledges the old message. Its worker
  only logs an error of such an addition, or of one that continues a pipeline or ends a group. Then the old message is
  not acknowledged, so that it comes again after its lease.
* An outage raises Dramatiq's ConnectionClosed, after which Dramatiq tries again, in producers (Retries) and in workers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

from dramatiq.broker import Broker, Consumer, MessageProxy
from dramatiq.errors import BrokerConnectionError, ConnectionClosed, QueueJoinTimeout, QueueNotFound
from dramatiq.message import Message, get_encoder
from dramatiq.middleware import Interrupt, Middleware, raise_thread_exception

from disque_py.client import DisqueError, FencedError, Job, ReplyError
from disque_py.client.commands import add_job
from disque_py.client.dialect import is_misunderstood
from disque_py.client.heartbeat import Delivery, delivery_of
from disque_py.client.processes import ProcessClient
from disque_py.client.request import Request
from disque_py.client.templates import AddTemplate, template_of
from disque_py.integrations.leases import LEASE_S, LeaseKeeper
from disque_py.integrations.patience import is_outage, once, persist

# The TTL of a message without an age limit or delay. Its lease can be extended for half of this time.
TTL_S: Final = 30 * 86_400
# Dramatiq checks age limits, and fails messages that are too old. So the job exists for this time beyond the limit.
BEYOND_AGE_S: Final = 86_400
# The time for which dead letters are kept on nodes without NACK FINAL.
DEAD_S: Final = 7 * 86_400
# The figures of a queue are exact only while no job changes its state. A job that becomes due during a look may be
# missing, so a queue counts as empty after this number of looks.
EMPTY_LOOKS: Final = 2
# The most commands of plain messages that are kept, by queue and age limit.
TEMPLATES_MAX: Final = 1_000
# The time that a busy consumer waits for more messages, or for room for them, before it acknowledges the last ones.
LINGER_MS: Final = 5
# One step of `broker_priority` weighs more than any creation time in milliseconds.
PRIORITY_STEP: Final = 10**13


class Canceled(Interrupt):
    """Raised in a worker's thread when its message was canceled."""


@contextmanager
def _outages() -> Iterator[None]:
    """Turn the errors of an outage into Dramatiq's."""
    try:
        yield
    except DisqueError as error:
        if not is_outage(error):
            raise
        raise ConnectionClosed(error) from None


class DisqueBroker(Broker):
    """A broker of Dramatiq.

    url          the client's URL, `disque://host:port,host:port/?option=value`; by default disque://127.0.0.1:7711
    middleware   Dramatiq's middleware; by default Dramatiq's default list
    namespace    prefix of the names of queues, "dramatiq" by default; "": none
    lease        seconds after which the messages of a dead worker come back, 60 by default. Tasks may take longer
    replicate    number of copies of each message; by default the node chooses
    publish_once   True: send a message again if its answer is lost, without making a second job. It costs a round trip
                   between the nodes. False by default: the error is raised
    """

    def __init__(
        self,
        *,
        url: str = "disque://127.0.0.1:7711",
        middleware: list[Middleware] | None = None,
        namespace: str = "dramatiq",
        lease: float = LEASE_S,
        replicate: int | None = None,
        publish_once: bool = False,
    ) -> None:
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self.namespace = namespace
        self.replicate = replicate
        self.publish_once = publish_once
        self.actor_options.add("broker_priority")
        self._client = ProcessClient(url, "dramatiq")
        self._templates: dict[tuple[str, int], AddTemplate] = {}
        self._running: dict[str, int] = {}
        # `message`: the message that has ended in this thread, while middleware adds the messages that follow it.
        self._ended = threading.local()
        self.leases = LeaseKeeper(self._client, lease, on_canceled=self._interrupt)
        self.acks = _Acks(self._client, self.leases)
        self.add_middleware(_Threads(self._running))

    @property
    def client(self) -> Any:
        """The client library's client of this process."""
        return self._client()

    def queue_of(self, queue_name: str) -> str:
        """Return the name of a Dramatiq queue on the nodes."""
        return f"{self.namespace}.{queue_name}" if self.namespace else queue_name

    def close(self) -> None:
        """Stop the lease thread, and close the connections of this process."""
        self.leases.close()
        self._client.close()

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue, so that workers fetch from it. Nodes need no declaration."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        """Return the names of all declared queues."""
        return self.queues.copy()

    def enqueue(self, message: Message, *, delay: int | None = None) -> Message:
        """Add a message → a copy of it, whose option `disque_job_id` is the id of its job.

        message   the message
        delay     milliseconds until workers get it; None, the default: no delay

        Raises QueueNotFound; ConnectionClosed if no node answers, or if the answer was lost and the message may exist.
        """
        queue_name = message.queue_name
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        message = message.copy(options={"disque_job_id": None})
        self.emit_before("enqueue", message, delay)
        fields = message.asdict()
        fields["options"] = options = dict(message.options)
        options.pop("disque_job_id", None)
        request = self._request(message, get_encoder().encode(fields), delay or 0)
        try:
            with _outages():
                job_id = persist(lambda: self._client().run(request))
        except Exception:
            ended = getattr(self._ended, "message", None)
            if ended is not None:
                ended.comes_again = True
            raise
        message.options["disque_job_id"] = job_id  # The copy has its own options.
        self.emit_after("enqueue", message, delay)
        return message

    def emit_after(self, signal: str, *args: Any, **kwargs: Any) -> None:
        """Call the middleware. Its errors are logged, and a message whose followers can't be added comes again."""
        if signal != "process_message" or not isinstance(args[0], DisqueMessage):
            super().emit_after(signal, *args, **kwargs)
            return
        self._ended.message = args[0]
        try:
            super().emit_after(signal, *args, **kwargs)
        finally:
            self._ended.message = None

    def _request(self, message: Message, body: bytes, delay_ms: int) -> Request[str]:
        priority = message.options.get("broker_priority", self._actor_option(message, "broker_priority"))
        ttl_s = self._ttl_s(message, delay_ms)
        if priority is None and not delay_ms and not self.publish_once:
            return self._template(message.queue_name, ttl_s).one(body)
        words: dict[str, Any] = {
            "replicate": self.replicate,
            "delay": timedelta(milliseconds=delay_ms) if delay_ms else None,
            "retry": self.leases.lease,
            "ttl": ttl_s,
        }
        if priority is not None:
            words["priority"] = int(1000 * time.time()) - int(priority) * PRIORITY_STEP
        if self.publish_once:
            words |= once()
        return add_job(self.queue_of(message.queue_name), body, **words)

    def _template(self, queue_name: str, ttl_s: int) -> AddTemplate:
        """Return the command for plain messages. All plain messages of a queue have the same options."""
        found = self._templates.get((queue_name, ttl_s))
        if found is None:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            found = template_of(self.queue_of(queue_name), replicate=self.replicate, retry=self.leases.lease, ttl=ttl_s)
            self._templates[queue_name, ttl_s] = found
        return found

    def _actor_option(self, message: Message, name: str) -> Any:
        actor = self.actors.get(message.actor_name)
        return None if actor is None else actor.options.get(name)

    def _ttl_s(self, message: Message, delay_ms: int) -> int:
        max_age = message.options.get("max_age") or self._actor_option(message, "max_age")
        rest_s: int = TTL_S if max_age is None else int(max_age) // 1000 + BEYOND_AGE_S
        # A lease can be extended in the first half of a TTL only, so the delay counts twice.
        return 2 * -(-delay_ms // 1000) + rest_s

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> _DisqueConsumer:
        """Return an iterator over the messages of a queue.

        queue_name   its name
        prefetch     the most messages that the worker has fetched, including running ones
        timeout      milliseconds after which the iterator yields None

        Raises QueueNotFound.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        return _DisqueConsumer(self, self.queue_of(queue_name), prefetch, timeout)

    def cancel(self, message: Message) -> bool:
        """Cancel a message that `enqueue` or `send` returned → whether it was not over.

        message   the message, with its option `disque_job_id`

        A waiting message never runs. For a running message, `Canceled` is raised in its thread within five seconds.
        """
        job_id = message.options.get("disque_job_id")
        if job_id is None:
            raise ValueError("only a message that `send` returned can be canceled")
        with _outages():
            return bool(self._client().cancel(job_id))

    def _interrupt(self, job: Job) -> None:
        thread_id = self._running.get(job.id)
        if thread_id is not None:
            raise_thread_exception(thread_id, Canceled)

    def flush(self, queue_name: str) -> None:
        """Drop all messages of a queue except those that a worker has: waiting, delayed and failed ones."""
        client, queue = self._client(), self.queue_of(queue_name)
        client.purge(queue)
        client.purge(queue, status="invisible")
        client.purge(queue, status="errored")
        client.purge(f"{queue}.XQ")

    def flush_all(self) -> None:
        """Drop all messages of all declared queues, except those that a worker has."""
        for queue_name in sorted(self.queues):
            self.flush(queue_name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Wait until a queue has no waiting, delayed or running messages. For tests.

        queue_name   its name
        interval     milliseconds between two checks, 100 by default
        timeout      the most milliseconds to wait; None, the default: for ever

        Raises QueueJoinTimeout.
        """
        deadline = None if timeout is None else time.monotonic() + timeout / 1000
        looks = 0
        while looks < EMPTY_LOOKS:
            stat = self._client().qstat(self.queue_of(queue_name), cluster=True)
            looks = looks + 1 if stat is None or stat.len + stat.invisible + stat.running == 0 else 0
            if not looks and deadline is not None and time.monotonic() >= deadline:
                raise QueueJoinTimeout(queue_name)
            if looks < EMPTY_LOOKS:
                time.sleep(interval / 1000)


class _Threads(Middleware):
    """The thread of each running message, for `cancel`."""

    def __init__(self, running: dict[str, int]) -> None:
        self._running = running

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        if isinstance(message, DisqueMessage):
            self._running[message.job.id] = threading.get_ident()

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        self.after_skip_message(broker, message)
        if isinstance(exception, Canceled):
            message.options["throws"] = Canceled  # So the retry middleware does not try it again.

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        if isinstance(message, DisqueMessage):
            self._running.pop(message.job.id, None)


class DisqueMessage(MessageProxy):
    """A message with its job.

    job          the job of this delivery
    error        the exception that it failed with; None without one
    comes_again  whether it is not acknowledged, because a message that follows it could not be added
    """

    def __init__(self, message: Message, job: Job) -> None:
        super().__init__(message)
        self.job = job
        self.error: BaseException | None = None
        self.comes_again = False

    def stuff_exception(self, exception: BaseException) -> None:
        """Keep the exception that the message failed with."""
        super().stuff_exception(exception)
        self.error = exception

    def clear_exception(self) -> None:
        """Forget the exception."""
        super().clear_exception()
        self.error = None

    @property
    def redelivered(self) -> bool:
        """Whether a worker has had this message before."""
        return (self.job.delivery_count or 1) > 1


class _Acks:
    """The messages that are done and not acknowledged yet, of all consumers of a process.

    They outlive the consumer, which Dramatiq replaces after an outage. Their leases are extended until they are
    acknowledged.
    """

    def __init__(self, client: ProcessClient, leases: LeaseKeeper) -> None:
        self._client = client
        self._leases = leases
        self._jobs: deque[Job] = deque()

    def add(self, job: Job) -> None:
        """Acknowledge this job with the next `flush`."""
        self._jobs.append(job)

    def flush(self) -> None:
        """Acknowledge all jobs. Those that could not be acknowledged because of an outage are kept.

        Raises DisqueError.
        """
        jobs: dict[Delivery, Job] = {}
        while self._jobs:
            with suppress(IndexError):  # Another thread has taken it.
                job = self._jobs.popleft()
                jobs[delivery_of(job)] = job
        if not jobs:
            return
        for job in jobs.values():  # Nothing is left to be extended when the node has the acknowledgements.
            self._leases.remove(job)
        try:
            self._client().ack_jobs(jobs.values())
        except DisqueError as error:
            if is_outage(error):
                self._leases.add(*jobs.values())
                self._jobs.extend(jobs.values())
            raise


class _DisqueConsumer(Consumer):
    """The messages of one queue that this worker takes."""

    def __init__(self, broker: DisqueBroker, queue: str, prefetch: int, timeout_ms: int) -> None:
        self._broker = broker
        self._queue = queue
        self._prefetch = prefetch
        self._timeout_ms = timeout_ms
        self._fetched: deque[Job] = deque()
        self._out: set[str] = set()
        self._has_room = threading.Event()
        self._wanted_room = 1
        # True while the queue has messages. Then this thread soon fetches again, and first sends the acknowledgements.
        self._is_busy = False

    def __next__(self) -> DisqueMessage | None:
        """Return the next message; None if there is none in time, or no room for more."""
        if not self._fetched and not self._fetch():
            return None
        job = self._fetched.popleft()
        try:
            message = Message.decode(job.body)
        except Exception as error:
            self._broker.logger.error("A job is not a message and was set aside: %s", job.id, exc_info=True)
            self._out.discard(job.id)
            self._set_aside(job, error)
            return None
        message.options["disque_job_id"] = job.id
        return DisqueMessage(message, job)

    def _fetch(self) -> bool:
        if not self._await_room(1, self._timeout_ms):
            return False
        self._await_room(self._prefetch // 2, LINGER_MS)
        leases = self._broker.leases
        with _outages():
            while True:
                self._broker.acks.flush()
                is_busy = self._is_busy
                jobs = self._broker.client.get_jobs(
                    self._queue,
                    count=self._prefetch - len(self._out),
                    timeout_ms=min(LINGER_MS, self._timeout_ms) if is_busy else self._timeout_ms,
                    withlease=True,
                    lease=leases.lease,
                )
                self._is_busy = len(jobs) > 1  # A GETJOB that had to wait brings one.
                if jobs or not is_busy:
                    break
        leases.add(*jobs)
        self._out.update(job.id for job in jobs)
        self._fetched.extend(jobs)
        return bool(jobs)

    def _await_room(self, wanted: int, timeout_ms: int) -> bool:
        """Wait until `wanted` more messages may be fetched. Return whether they may."""
        self._wanted_room = wanted
        self._has_room.clear()
        if self._prefetch - len(self._out) < wanted:
            self._has_room.wait(timeout_ms / 1000)
        return self._prefetch - len(self._out) >= wanted

    def ack(self, message: DisqueMessage) -> None:
        """Acknowledge a message, immediately or together with the next ones. Raises ConnectionClosed."""
        job, acks = message.job, self._broker.acks
        if message.comes_again:
            self._broker.logger.warning("Message %s comes again when its lease is over.", message)
            self._settled(job)
            return
        with self._settling(job):
            if job.fence:
                with suppress(FencedError):  # A later worker has the job, so this ack is void.
                    self._broker.client.ack(job)
                self._broker.leases.remove(job)
            else:
                acks.add(job)
                # `add` comes before this check, because a consumer that stops being busy flushes.
                if not self._is_busy or self._out <= {job.id}:
                    acks.flush()

    def nack(self, message: DisqueMessage) -> None:
        """Set aside a message that failed for good. Raises ConnectionClosed."""
        self._set_aside(message.job, message.error)

    def _set_aside(self, job: Job, error: BaseException | None) -> None:
        client = self._broker.client
        reason = None if error is None else f"{type(error).__name__}: {error}"
        with self._settling(job):
            try:
                with suppress(FencedError):  # See ack.
                    client.nack(job, final=True, reason=reason, attempt=job.attempt)
            except ReplyError as refusal:
                if not is_misunderstood(refusal):
                    raise
                client.add_job(f"{job.queue}.XQ", job.body, ttl=DEAD_S, retry_unsafe=True)
                client.ack(job)
            self._broker.leases.remove(job)

    @contextmanager
    def _settling(self, job: Job) -> Iterator[None]:
        """Make room for another message when this one is settled. Raises ConnectionClosed in an outage.

        After ConnectionClosed, Dramatiq calls again. After the refusal of a node it does not, so the message comes
        again after its lease.
        """
        try:
            with _outages():
                yield
        except ConnectionClosed:
            raise
        except BaseException:
            self._settled(job)
            raise
        self._make_room(job)

    def requeue(self, messages: Iterable[DisqueMessage]) -> None:
        """Put back messages that were not started."""
        self._put_back([message.job for message in messages])

    def close(self) -> None:
        """Put back the messages that were fetched and not handed out."""
        jobs = list(self._fetched)
        self._fetched.clear()
        self._is_busy = False
        try:
            with _outages():
                self._broker.acks.flush()
            self._put_back(jobs)
        except (BrokerConnectionError, DisqueError):
            for job in jobs:
                self._settled(job)
            self._broker.logger.warning("%d messages come back when their lease is over", len(jobs))

    def _put_back(self, jobs: list[Job]) -> None:
        if jobs:
            try:
                with _outages():
                    self._broker.client.put_back(jobs)
            finally:
                for job in jobs:
                    self._settled(job)

    def _settled(self, job: Job) -> None:
        self._broker.leases.remove(job)
        self._make_room(job)

    def _make_room(self, job: Job) -> None:
        self._out.discard(job.id)
        if self._prefetch - len(self._out) >= self._wanted_room:
            self._has_room.set()
