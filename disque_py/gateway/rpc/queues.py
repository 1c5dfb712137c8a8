"""QueueService: a method for each call of `disque.v1`, which executes an operation of the table.

A method makes the arguments of an operation from a request message, executes it through calls.py, and makes the
response from the operation's values. So permissions, limits, audit and errors are those of HTTP. An optional field that
a program does not set is an argument that is not given. Values of newer brokers that the definition lacks become
UNSPECIFIED or are left out. Streams of jobs are in consuming.py, and streams of events are here.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import msgspec

from disque_py.client import Job
from disque_py.gateway.event_feed import EventFeed, EventFilter, parse_place
from disque_py.gateway.operations import BY_NAME, STATUSES
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.rpc.calls import INTERFACE, Caller
from disque_py.gateway.rpc.consuming import Consumption
from disque_py.gateway.rpc.descriptors import message
from disque_py.gateway.shapes import as_text

IDLE_S: Final = 15.0
STATE_PREFIX: Final = "MESSAGE_STATE_"


def made(name: str, /, **fields: Any) -> Any:
    """Return a message of disque.v1. Bytes of a program that are not UTF-8 become U+FFFD in fields of text."""
    return message(name)(**{field: as_text(value) for field, value in fields.items()})


def given(request: Any, name: str) -> Any:
    """Return an optional field; None if it was not given."""
    return getattr(request, name) if request.HasField(name) else None


def state_of(status: str | None) -> str:
    """Return the name of a state; the unspecified state if the definition lacks it."""
    name = f"{STATE_PREFIX}{(status or '').upper()}"
    values = message("Message").DESCRIPTOR.fields_by_name["state"].enum_type.values_by_name
    return name if name in values else f"{STATE_PREFIX}UNSPECIFIED"


def status_of(number: int) -> str | None:
    """Return the status of a state's number; None if it is unspecified."""
    values = message("Message").DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number
    if number not in values:
        raise RefusedError("ERR", "there is no such state")
    return values[number].name.removeprefix(STATE_PREFIX).lower() if number else None


def message_of(shape: dict[str, Any], status: str | None = None) -> Any:
    """Return a Message of an operation's job."""
    payload = shape.get("body", "").encode() if "body" in shape else base64.b64decode(shape.get("body_base64", ""))
    return made(
        "Message",
        id=shape["id"],
        queue=shape.get("queue") or "",
        payload=payload,
        metadata=shape.get("meta") or {},
        state=state_of(shape.get("status") or status),
        attempt=shape.get("attempt") or 0,
        lease_ms=shape.get("lease_ms") or 0,
        priority=shape.get("priority") or 0,
        error=shape.get("error") or "",
        created_ms=shape.get("created_ms") or 0,
    )


def taken_message(job: Job) -> Any:
    """Return the Message of a job that was just fetched."""
    return message("Message")(
        id=job.id,
        queue=job.queue,
        payload=job.body,
        metadata=as_text(job.meta) or None,
        state=f"{STATE_PREFIX}RUNNING",
        attempt=job.attempt,
        lease_ms=job.lease_ms,
    )


def depth_of(shape: dict[str, Any]) -> Any:
    """Return a Depth."""
    counts = {name: shape.get(name, 0) for name in STATUSES}
    oldest = shape.get("oldest_ms")
    return made("Depth", **counts, **({} if oldest is None else {"oldest_age_ms": oldest}))


def config_of(name: str, settings: dict[str, Any] | None, paused: str) -> Any:
    """Return a QueueConfig."""
    found = settings or {}
    fields = {
        "lease_ms": found.get("lease_ms"),
        "invisibility_ms": found.get("delay_ms"),
        "ttl_ms": found.get("ttl_ms"),
        "dequeues": found.get("attempts"),
        "backoff": found.get("backoff"),
        "dead_letter": found.get("dead_letter"),
        "maxlen": found.get("maxlen"),
        "maxsize": found.get("maxsize"),
        "replicate": None if found.get("replicate") is None else str(found["replicate"]),
    }
    more = {key: str(value) for key, value in (found.get("more") or {}).items() if value not in (None, "")}
    if found.get("type"):
        more["type"] = found["type"]
    return made(
        "QueueConfig",
        name=name,
        enqueue_blocked=paused in ("in", "all"),
        dequeue_blocked=paused in ("out", "all"),
        more=more,
        **{key: value for key, value in fields.items() if value is not None},
    )


class Queues:
    """The methods of QueueService. Each gets the caller and the request, and returns the response."""

    async def create_queue(self, caller: Caller, request: Any) -> Any:
        """Change settings of a queue. The queue need not exist."""
        return made("CreateQueueResponse", config=await self._configure(caller, request.config))

    async def update_queue(self, caller: Caller, request: Any) -> Any:
        """Change settings of a queue."""
        return made("UpdateQueueResponse", config=await self._configure(caller, request.config))

    async def _configure(self, caller: Caller, config: Any) -> Any:
        names = {"invisibility_ms": "delay_ms", "dequeues": "attempts"}
        fields = ("lease_ms", "invisibility_ms", "ttl_ms", "dequeues", "backoff", "dead_letter", "maxlen", "maxsize")
        args = {
            names.get(name, name): getattr(config, name) for name in (*fields, "replicate") if config.HasField(name)
        }
        if config.more:
            args["more"] = dict(config.more)
        if args:
            await caller.ask_given("put_queue", queue=config.name, **args)
        paused = await self._pause(caller, config)
        found = await caller.ask("get_queue", queue=config.name)
        return config_of(config.name, found["settings"], paused or found.get("paused", "none"))

    async def _pause(self, caller: Caller, config: Any) -> str:
        """Pause or resume, if the request asks for it. Return the state; empty if it does not.

        The broker sets both directions together, so a direction that is not given gets its present state.
        """
        enqueue, dequeue = given(config, "enqueue_blocked"), given(config, "dequeue_blocked")
        if enqueue is None and dequeue is None:
            return ""
        if enqueue is None or dequeue is None:
            now = await self._paused(caller, config.name)
            enqueue = now in ("in", "all") if enqueue is None else enqueue
            dequeue = now in ("out", "all") if dequeue is None else dequeue
        words = {(True, True): "all", (True, False): "in", (False, True): "out"}
        direction = words.get((enqueue, dequeue))
        if direction is None:
            return str((await caller.ask("resume", queue=config.name))["paused"])
        return str((await caller.ask("pause", queue=config.name, direction=direction))["paused"])

    @staticmethod
    async def _paused(caller: Caller, queue: str) -> str:
        """Return the present state. A queue need not exist."""
        try:
            return str((await caller.ask("get_queue", queue=queue))["paused"])
        except RefusedError as error:
            if error.code != "NOTFOUND":
                raise
            return "none"

    async def get_queue(self, caller: Caller, request: Any) -> Any:
        """Describe a queue."""
        found = await caller.ask("get_queue", queue=request.queue)
        config = config_of(request.queue, found["settings"], found.get("paused", "none"))
        return made("GetQueueResponse", config=config, depth=depth_of(found))

    async def delete_queue(self, caller: Caller, request: Any) -> Any:
        """Cancel the pending jobs of a queue."""
        found = await caller.ask("purge_queue", queue=request.queue, confirm=request.confirm)
        return made("DeleteQueueResponse", operation_id=found["id"])

    async def list_queues(self, caller: Caller, request: Any) -> Any:
        """List queues."""
        found = await caller.ask("list_queues", match=request.match, cursor=request.cursor, limit=request.limit or None)
        entry = message("ListQueuesResponse").Entry
        rows = [entry(name=as_text(row["name"]), depth=depth_of(row)) for row in found["queues"]]
        return made("ListQueuesResponse", queues=rows, cursor=found["cursor"] or "")

    async def enqueue(self, caller: Caller, request: Any) -> Any:
        """Add a message. The body has the limit of HTTP, and the listener limits the other fields."""
        most = caller.service.settings.body_max
        if len(request.payload) > most:
            raise RefusedError("TOOBIG", f"the payload has more than {most} bytes (body-max)")
        found = await caller.ask(
            "enqueue",
            queue=request.queue,
            body_base64=request.payload,
            meta=dict(request.metadata),
            priority=given(request, "priority"),
            delay_ms=given(request, "invisibility_ms"),
            retry_ms=given(request, "lease_ms"),
            ttl_ms=given(request, "ttl_ms"),
            attempts=given(request, "dequeues"),
            replicate=given(request, "replicate"),
            backoff=request.backoff,
            request_id=request.request_id,
        )
        return made("EnqueueResponse", id=found["id"])

    async def dequeue(self, caller: Caller, request: Any) -> Any:
        """Fetch messages. gRPC cancels this when the caller is gone, and the client library puts the messages back."""
        found = await caller.ask(
            "dequeue",
            queue=request.queue,
            max=request.max_messages or None,
            wait_ms=request.wait_ms,
            lease_ms=given(request, "lease_ms"),
            where=dict(request.where),
            request_id=request.request_id,
        )
        return made("DequeueResponse", messages=[message_of(job, "running") for job in found["jobs"]])

    async def consume(self, caller: Caller, requests: AsyncIterator[Any]) -> AsyncGenerator[Any]:
        """Send messages as long as there is credit."""
        consumption, response = Consumption(caller, requests), message("ConsumeResponse")
        try:
            async for jobs, settled in consumption.parts():
                yield response(messages=[taken_message(job) for job in jobs], settled=settled)
        finally:
            await consumption.close()

    async def complete(self, caller: Caller, request: Any) -> Any:
        """Complete a message."""
        found = await caller.ask("complete", id=request.id, attempt=given(request, "attempt"))
        return made("CompleteResponse", changed=bool(found["changed"]))

    async def fail(self, caller: Caller, request: Any) -> Any:
        """Give a message back."""
        found = await caller.ask(
            "fail",
            id=request.id,
            attempt=given(request, "attempt"),
            reason=request.reason,
            delay_ms=given(request, "delay_ms"),
            final=request.final,
        )
        return made("FailResponse", changed=bool(found["changed"]))

    async def extend_lease(self, caller: Caller, request: Any) -> Any:
        """Start the lease of a message again."""
        lease_ms = given(request, "lease_ms")
        found = await caller.ask("extend", id=request.id, attempt=given(request, "attempt"), lease_ms=lease_ms)
        return made("ExtendLeaseResponse", lease_ms=found["lease_ms"])

    async def cancel(self, caller: Caller, request: Any) -> Any:
        """Cancel a message."""
        return made("CancelResponse", changed=bool((await caller.ask("cancel", id=request.id))["changed"]))

    async def requeue(self, caller: Caller, request: Any) -> Any:
        """Queue a message now."""
        return made("RequeueResponse", changed=bool((await caller.ask("requeue", id=request.id))["changed"]))

    async def get_message(self, caller: Caller, request: Any) -> Any:
        """Describe a message."""
        return made("GetMessageResponse", message=message_of(await caller.ask("get_job", id=request.id)))

    async def list_messages(self, caller: Caller, request: Any) -> Any:
        """List messages of a queue."""
        found = await caller.ask(
            "list_jobs",
            queue=request.queue,
            status=status_of(request.state),
            where=dict(request.where),
            cursor=request.cursor,
            limit=request.limit or None,
        )
        messages = [message_of(job) for job in found["jobs"]]
        return made("ListMessagesResponse", messages=messages, cursor=found["cursor"] or "")

    async def wait_message(self, caller: Caller, request: Any) -> Any:
        """Wait for the end of a message."""
        found = await caller.ask("wait_job", id=request.id, timeout_ms=request.timeout_ms or None)
        last = {"message": message_of(found["job"])} if "job" in found else {}
        return made("WaitMessageResponse", over=found["is_over"], state=state_of(found["status"]), **last)

    async def get_depth(self, caller: Caller, request: Any) -> Any:
        """Count messages by state."""
        where = dict(request.where)
        found = await caller.ask("depth", queue=request.queue, where=where)
        if not where:
            picture = await caller.service.board.picture()
            row = picture.queues.get(request.queue)
            found |= {"oldest_ms": row.oldest_ms if row is not None else None}
        return made("GetDepthResponse", depth=depth_of(found))

    async def watch_events(self, caller: Caller, request: Any) -> AsyncGenerator[Any]:
        """Follow the events of all nodes.

        The stream begins with a place, so a caller that is cut off before its first event can go on from there. A place
        without an event also moves the caller past events that the filter leaves out.
        """
        await self._admit_events(caller)
        wanted = EventFilter(caller.principal, request.queue, request.message_id, request.event)
        feed = EventFeed(caller.principal.client, parse_place(request.place))
        sent = ""
        try:
            async for part in feed.parts(wanted, IDLE_S):
                if wanted.principal is not caller.principal:  # The login was checked again.
                    await self._admit_events(caller)
                    wanted.principal = caller.principal
                if part.notice:
                    yield self._event(part.place, part.notice, part.details)
                for place, event in part.events:
                    yield self._event(place, event["event"], event)
                if not part.notice and not part.events and part.place != sent:
                    yield self._event(part.place, "", {})
                sent = part.place
        finally:
            await feed.close()

    @staticmethod
    async def _admit_events(caller: Caller) -> None:
        call = caller.call("watch_events", {})
        await caller.service.admit_stream(BY_NAME["watch_events"], call, caller.address, INTERFACE)

    @staticmethod
    def _event(place: str, name: str, found: Any) -> Any:
        return made("WatchEventsResponse", place=place, event=name, json=msgspec.json.encode(found).decode())
