"""The transport that kombu calls: connections, channels, and the settling of messages.

It derives from kombu's virtual transport, which has exchanges and bindings of one program. Differences:

* Messages come from the courier's inbox, so nothing is polled. kombu's event loop watches the courier's pipe. A loop
  that is reset forgets its readers, so each turn looks whether the pipe is still watched.
* Publishing uses a blocking client, because a GETJOB that waits holds its connection.
* A message that is given back is a NACK of its job. It is not a new message, so it keeps its age and its counters.
* A channel that closes gives back what it has not settled.
* A program may consume a queue by one connection and poll it by another, as Celery does with `rpc://`. So a poll also
  looks at the messages that the program's other couriers have fetched and not handed over. If a polled message of a
  queue that ends with the program goes back, the courier keeps it, and the next poll gets it first. So messages keep
  their order, and the last one is the state of a task.
"""

from __future__ import annotations

import errno
import re
import select
import sys
import time
import weakref
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import count
from queue import Empty
from typing import Any, Final

from kombu.transport import base, virtual

import disque_py
from disque_py.client import (
    AsyncDisque,
    Disque,
    DisqueConnectionError,
    DisqueError,
    Job,
    LeavingError,
    LoadingError,
    ReplyError,
)
from disque_py.integrations.kombu import wire
from disque_py.integrations.kombu.bindings import Bindings, address, binding
from disque_py.integrations.kombu.courier import AT_ONCE, Courier
from disque_py.integrations.kombu.urls import masked, read_options, split_urls, taken_login, with_login
from disque_py.integrations.patience import persist, unique

# A message that was delivered before and is given back waits. Otherwise a consumer that always rejects would spin.
# A program that polls decides itself how fast it does so.
REQUEUE_DELAY: Final = timedelta(seconds=1)
GET_MS: Final = 100
POLL_S: Final = 0.01
# Messages of one turn of kombu's event loop. It has at most as many as the feeds may hold.
READ_MAX: Final = 10_000
TEXT: Final = "utf-8"
# The rules of routing keys with wildcards, which need no channel.
TOPIC: Final = virtual.exchange.TopicExchange(None)


# All transports of the program, by id(). Unlike a WeakSet, it can be read while another thread makes a transport.
_transports: weakref.WeakValueDictionary[int, Transport] = weakref.WeakValueDictionary()


def _is_readable(fd: int, limit_s: float | None) -> bool:
    """Wait until a file can be read → whether it can. select takes no file number above 1023, and poll takes all."""
    if not hasattr(select, "poll"):
        return bool(select.select([fd], [], [], limit_s)[0])
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    events = poll.poll(None if limit_s is None else 1000 * limit_s)
    if events and events[0][1] & select.POLLNVAL:  # select raises this error by itself.
        raise OSError(errno.EBADF, "the transport is closed")
    return bool(events)


class QoS(virtual.QoS):
    """The unsettled messages of a channel. The courier settles their jobs."""

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message."""
        self.channel.polled.pop(delivery_tag, None)
        self.channel.courier.ack(self.channel.number, delivery_tag)
        self._quick_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back, or spend its last attempt: then it is errored, or a dead letter."""
        message = self._delivered.get(delivery_tag)
        info = (message.delivery_info if message is not None else None) or {}
        polled = self.channel.polled.pop(delivery_tag, None)
        if requeue and polled is not None and self.channel.keeps(polled):
            self.channel.courier.put_aside(self.channel.number, delivery_tag, polled)
        else:
            delay = REQUEUE_DELAY if requeue and polled is None and info.get("redelivered") else None
            self.channel.courier.nack(self.channel.number, delivery_tag, delay, final=not requeue)
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Give all unsettled messages back."""
        self._flush()
        self._delivered.clear()
        self.channel.courier.nack_all(self.channel.number)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Give all unsettled messages back, the first time."""
        self._on_collect.cancel()
        if not self._delivered.restored:
            self._delivered.restored = True
            self.restore_unacked()


class Channel(virtual.Channel):
    """A channel: its consumers, their prefetch limit, and what they have not settled."""

    QoS = QoS
    supports_fanout = True

    _numbers: Iterator[int] = count(1)

    def __init__(self, connection: Transport, **options: Any) -> None:
        super().__init__(connection, **options)
        self.number = next(self._numbers)
        self.courier = connection.courier
        self.callbacks: dict[str, Any] = {}
        self._no_ack: set[str] = set()
        self.polled: dict[str, Job] = {}
        # The names under which the queues of direct exchanges are read as well, and queues that end with a program.
        self._read_as: dict[str, set[str]] = {}
        self._transient: dict[str, int | None] = {}

    # Consuming.

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **options: Any) -> None:
        """Call `callback` with each message of a queue from now on."""
        self._tag_to_queue[consumer_tag] = queue
        self._active_queues.append(queue)
        self._consumers.add(consumer_tag)
        for each in self.connection.siblings():
            each.courier.give_back(lambda delivery: delivery.job.queue == queue)
        self.callbacks[queue] = callback
        (self._no_ack.add if no_ack else self._no_ack.discard)(queue)
        self._fetch()

    def basic_cancel(self, consumer_tag: str) -> None:
        """End a consumer.

        Messages that were fetched for it go back when the connection is drained, or with the channel.
        """
        if consumer_tag not in self._consumers:
            return
        self._consumers.remove(consumer_tag)
        queue = self._tag_to_queue.pop(consumer_tag)
        self._active_queues.remove(queue)
        if queue not in self._active_queues:
            self.callbacks.pop(queue, None)
        self._fetch()

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Limit the number of unsettled messages of this channel; 0: no limit."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        if self._consumers:
            self._fetch()

    def _fetch(self) -> None:
        queues = list(dict.fromkeys(self._active_queues))
        names = queues + [name for queue in queues for name in sorted(self._read_as.get(queue, ()))]
        self.courier.consume(self.number, names, self.qos.prefetch_count or 0)

    def deliver(self, tag: str, job: Any) -> bool:
        """Hand a job of the inbox to its consumer. If the consumer is gone, give the job back and return False."""
        queue = job.queue if job.queue in self.callbacks else self._queue_read_as(job.queue)
        callback = self.callbacks.get(queue)
        if callback is None:
            self.courier.nack(self.number, tag, AT_ONCE)
            return False
        callback(self._message(queue, tag, job, no_ack=queue in self._no_ack))
        return True

    def _queue_read_as(self, name: str) -> str:
        return next((queue for queue, names in self._read_as.items() if name in names), name)

    def _message(self, queue: str, tag: str, job: Any, *, no_ack: bool) -> Any:
        try:
            message = self.Message(wire.message_of(job, tag), channel=self)
        except Exception:  # Any program can add any body. An error here would end the worker, once per delivery.
            message = self.Message(wire.raw_message_of(job, tag), channel=self)
        if no_ack:
            self.courier.ack(self.number, tag)
        else:
            self.qos.append(message, tag)
        return message

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> Any:
        """Return one message, or None."""
        transport = self.connection
        job = transport.take_fetched(queue) or self._poll(queue)
        if job is None:
            return None
        tag = f"{job.id}.{job.attempt or 0}"
        self.courier.hold(self.number, tag, job)
        if not no_ack:
            self.polled[tag] = job
        return self._message(queue, tag, job, no_ack=no_ack)

    def _poll(self, queue: str) -> Job | None:
        transport = self.connection
        until = time.monotonic() + GET_MS / 1000
        while transport.is_consumed_here(queue):  # A later message must not pass one that the consumer fetches.
            job: Job | None = transport.take_fetched(queue)
            if job is not None or time.monotonic() > until:
                return job
            time.sleep(POLL_S)
        self.courier.flush()  # A message that was given back comes before later ones.
        found: Job | None = transport.commands.get_job(
            queue, timeout_ms=GET_MS, withcounters=True, withlease=True, lease=transport.options.lease
        )
        return found

    def keeps(self, job: Job) -> bool:
        """Return whether a polled message that goes back stays here, because only this program uses its queue."""
        return job.queue in self._transient

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        raise Empty  # The courier fetches; drain_events reads its inbox.

    # Publishing.

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Return a body for JSON: text as it is, bytes in base64."""
        if isinstance(body, str):
            return body, TEXT
        encoded, name = super().encode_body(body, "base64")
        return encoded, name

    def _inplace_augment_message(self, message: dict[str, Any], exchange: str, routing_key: str) -> None:
        """Complete a message. Its tag makes the publication unique; its delivery has another tag."""
        properties = message["properties"]
        message["body"], properties["body_encoding"] = self.encode_body(message["body"])
        properties["delivery_tag"] = unique()
        info = properties["delivery_info"]
        info["exchange"] = exchange
        info["routing_key"] = routing_key

    def _put(self, queue: str, message: dict[str, Any], ttl_ms: int | None = None, **options: Any) -> None:
        transport = self.connection
        request = transport.publications.request(queue, message, time.time(), ttl_ms)
        persist(partial(transport.commands.run, request))

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **options: Any) -> None:
        for bound in self.connection.bindings.of(exchange):
            self._put(bound.queue, message, bound.ttl_ms)

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **options: Any) -> Any:
        """Publish a message. Those of topic and fan-out exchanges go to the queues of all programs."""
        if not exchange:  # Celery's tasks: the routing key is the queue.
            self._inplace_augment_message(message, exchange, routing_key)
            return self._put(routing_key, message)
        is_topic = isinstance(self.typeof(exchange), virtual.exchange.TopicExchange)
        # A program need not declare the exchanges of others. Only fan-out and topic exchanges have shared bindings.
        shared = self.connection.bindings.of(exchange) if is_topic or exchange not in self.state.exchanges else []
        if not is_topic and not shared:
            return super().basic_publish(message, exchange, routing_key, **options)
        self._inplace_augment_message(message, exchange, routing_key)
        ttls = {queue: None for queue in self._lookup(exchange, routing_key) if queue} if is_topic else {}
        for bound in shared:
            if bound.is_fanout or re.match(TOPIC.key_to_pattern(bound.routing_key), routing_key):
                ttls[bound.queue] = bound.ttl_ms
        for queue, ttl_ms in ttls.items():
            self._put(queue, message, ttl_ms)
        return None

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        """Return the queues of an exchange. Without a queue here, a direct one has the queue that consumers read."""
        if exchange and isinstance(self.typeof(exchange), virtual.exchange.DirectExchange):
            table = self.state.exchanges.get(exchange, {}).get("table", ())
            found = {queue for key, _, queue in table if key == routing_key}
            return found or [address(exchange, routing_key)]
        return super()._lookup(exchange, routing_key, default)

    # Queues and bindings.

    def prepare_queue_arguments(self, arguments: Any, **options: Any) -> Any:
        """Return the arguments of a queue by RabbitMQ's names, as `x-expires`."""
        return base.to_rabbitmq_queue_arguments(arguments or {}, **options)

    def _new_queue(self, queue: str, **options: Any) -> None:
        arguments = options.get("arguments") or {}
        if options.get("auto_delete") or options.get("exclusive") or "x-expires" in arguments:
            ttl_ms = arguments.get("x-message-ttl")
            self._transient[queue] = None if ttl_ms is None else int(ttl_ms)

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **options: Any
    ) -> None:
        """Bind a queue to an exchange. Bindings of fan-out and topic exchanges are shared with all programs."""
        exchange = exchange or "amq.direct"
        is_new = not self.state.has_binding(queue, exchange, routing_key)
        super().queue_bind(queue, exchange, routing_key, arguments, **options)
        if isinstance(self.typeof(exchange), virtual.exchange.DirectExchange):
            self._read_as.setdefault(queue, set()).add(address(exchange, routing_key))
        elif is_new:
            lives, ttl_ms = queue in self._transient, self._transient.get(queue)
            kind = str(self.typeof(exchange).type)
            self.connection.bindings.bind(exchange, routing_key, queue, lives=lives, ttl_ms=ttl_ms, kind=kind)
            if lives:
                self._keep_bound(exchange, routing_key, queue, ttl_ms, kind)

    def _keep_bound(self, exchange: str, routing_key: str, queue: str, ttl_ms: int | None, kind: str) -> None:
        async def work(client: AsyncDisque) -> None:
            await client.run(binding(exchange, routing_key, queue, lives=True, ttl_ms=ttl_ms, kind=kind))

        self.courier.refresh((exchange, routing_key, queue), work)

    def _queue_bind(self, *words: Any) -> None:
        """Do nothing: `queue_bind` shares the binding, and knows all its arguments."""

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **options: Any
    ) -> None:
        """Remove a binding, for all programs."""
        exchange = exchange or "amq.direct"
        super().queue_unbind(queue, exchange, routing_key, arguments, **options)
        self._unshare(queue, exchange, routing_key)

    def _unshare(self, queue: str, exchange: str, routing_key: str) -> None:
        self._read_as.get(queue, set()).discard(address(exchange, routing_key))
        self.courier.refresh((exchange, routing_key, queue), None)
        if not isinstance(self.typeof(exchange), virtual.exchange.DirectExchange):
            self.connection.bindings.unbind(exchange, routing_key, queue)

    def _delete(self, queue: str, exchange: str, routing_key: str, *words: Any, **options: Any) -> None:
        self._unshare(queue, exchange, routing_key)
        self._purge(queue)

    def _size(self, queue: str) -> int:
        return int(self.connection.commands.qlen(queue, cluster=True))

    def _purge(self, queue: str) -> int:
        return int(self.connection.commands.purge(queue).jobs)

    # The end.

    def close(self) -> None:
        """End all consumers, give back unsettled messages, and remove the bindings of queues that end here."""
        transport = self.connection
        if not self.closed and transport is not None and self.courier.is_ours:
            for queue in self._transient:
                self._forget_queue(queue)
            self.courier.nack_all(self.number)
        super().close()

    def _forget_queue(self, queue: str) -> None:
        for each in list(self.state.queue_bindings(queue)):
            try:
                self._unshare(queue, each.exchange, each.routing_key)
            except (DisqueError, KeyError):  # The binding ends by itself.
                return
        self.state.queue_bindings_delete(queue)


def _let_workers_mingle() -> None:
    """Let a worker of Celery ask the others for revoked tasks when it starts (*mingle*).

    Only workers remember which tasks are revoked. Celery has a set of the transports with which a new worker asks the
    others. The worker looks into it right after it has made this transport.
    """
    mingle = sys.modules.get("celery.worker.consumer.mingle")
    if mingle is not None:
        mingle.Mingle.compatible_transports = {*mingle.Mingle.compatible_transports, Transport.driver_type}


class Transport(virtual.Transport):
    """A connection to a cluster, by URL."""

    Channel = Channel

    can_parse_url = True
    default_port = 7711
    driver_type = "disque"
    driver_name = "disque-py"
    connection_errors = (*base.Transport.connection_errors, DisqueConnectionError, LeavingError, LoadingError, OSError)
    channel_errors = (*base.Transport.channel_errors, ReplyError)
    implements = base.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        _let_workers_mingle()
        self.urls = self._take_urls(client)
        self.options = read_options(self.urls, client.transport_options)
        self.commands = Disque(*self.options.nodes, **self.options.settings)
        self.courier = Courier(self.options)
        self.bindings = Bindings(self.commands)
        self.publications = wire.Publications(self.options)
        self._hub: Any = None
        _transports[id(self)] = self
        # kombu may drop a connection without closing it.
        weakref.finalize(self, self.commands.close)
        weakref.finalize(self, self.courier.close)

    @staticmethod
    def _take_urls(client: Any) -> list[str]:
        """Return the URLs of kombu's connection, with the login. The connection keeps URLs without a login.

        kombu's `info` has these URLs, and Celery sends it to every program that asks a worker for its statistics. kombu
        itself would try one URL after the other, and fails if they have options. Here the client knows all nodes.
        """
        plain, name, password = taken_login(split_urls(client.hostname or "", client.alt or ()))
        client.hostname, client.alt, client.cycle = ";".join(plain), [], None
        client.userid, client.password = name or client.userid, password or client.password
        return with_login(plain, client.userid or "", client.password or "")

    def driver_version(self) -> str:
        """Return the version of disque-py."""
        return disque_py.__version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the URLs for a log, without passwords."""
        return ";".join(self.urls) if include_password else masked(self.urls, mask)

    def establish_connection(self) -> Any:
        """Reach a node. Raises DisqueConnectionError, AuthError."""
        self.commands.ping()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close all channels, and the connections to the nodes. Unsettled messages go back."""
        self._leave_hub()
        super().close_connection(connection)
        self.courier.close()
        self.commands.close()

    # Receiving.

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hand over one message, or wait for it. Raises socket.timeout."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._deliver(1):
            self.courier.send_now()
            left = None if until is None else max(0.0, until - time.monotonic())
            ready = _is_readable(self.courier.wake_fd, left)
            if not ready:
                raise TimeoutError

    def take_fetched(self, queue: str) -> Job | None:
        """Return a job of a queue that this program has fetched and not handed over; None if there is none."""
        # Deliveries that were put aside are older.
        found = (each.courier.take(queue, aside=aside) for aside in (True, False) for each in self.siblings())
        return next((job for job in found if job is not None), None)

    def is_consumed_here(self, queue: str) -> bool:
        """Return whether a consumer of this program fetches messages of a queue."""
        return any(each.courier.consumes(queue) for each in self.siblings())

    def siblings(self) -> list[Transport]:
        """Return this program's transports of the same URLs, this one included."""
        known = [ref() for ref in _transports.valuerefs()]
        return [each for each in known if each is not None and each.urls == self.urls and each.courier.is_ours]

    def _deliver(self, most: int) -> int:
        """Hand over what is in the inbox now, and return the number of messages."""
        self.courier.drain_wake()
        inbox = self.courier.inbox
        channel: Channel | None = None
        delivered = 0
        for _ in range(len(inbox)):
            if delivered == most:
                break
            try:
                feed, tag, job = inbox.popleft()
            except IndexError:  # A callback may close the connection or give messages back.
                break
            if channel is None or channel.number != feed:
                channel = next((each for each in self.channels if each.number == feed), None)
            if channel is None:
                self.courier.nack(feed, tag, AT_ONCE)
            elif channel.deliver(tag, job):
                delivered += 1
        return delivered

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let kombu's event loop call this transport when messages come."""
        self._hub = loop
        loop.add_reader(self.courier.wake_fd, self._on_readable)
        loop.on_tick.add(self._watch)

    def _on_readable(self) -> None:
        if self.courier.is_ours:
            self._deliver(READ_MAX)

    def _watch(self) -> None:
        hub, courier = self._hub, self.courier
        courier.turn()
        if hub is not None and courier.wake_fd not in hub.readers and courier.is_ours:
            hub.add_reader(self.courier.wake_fd, self._on_readable)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """Let kombu's event loop forget this transport."""
        self._leave_hub()

    def _leave_hub(self) -> None:
        hub, self._hub = self._hub, None
        if hub is not None and self.courier.is_ours:
            hub.on_tick.discard(self._watch)
            hub.remove_reader(self.courier.wake_fd)

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """The node of a URL that names none."""
        return {"hostname": "127.0.0.1", "port": self.default_port}
