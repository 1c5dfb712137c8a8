"""Actions on jobs: adding, taking, settling, and looking at one.

Most actions are one command to the caller's node, which any node can execute. These are not:

- `fail`, `extend` and `requeue` need a node that has the job. They ask one node after the other.
- A `dequeue` with a request id needs the node that knows its token (`taken`).
- `job_history` reads the logs of events of all nodes.

If the caller of a `dequeue` is gone before the answer, the jobs are put back (`Call.give_back`). With a request id they
stay leased, because the caller may repeat the request and get the same jobs.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from disque_py.client import Address, DisqueError, NoJobError, ReplyError, commands
from disque_py.client.request import Request
from disque_py.client.results import Job, JobInfo
from disque_py.gateway import shapes
from disque_py.gateway.actions.calls import Call, asked, ms, other_nodes
from disque_py.gateway.event_feed import event_of, nodes_of
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.trace_context import with_trace

# The most bytes of one node's log that a history reads, and those of one answer.
HISTORY_BYTES: Final = 32 << 20
HISTORY_PAGE: Final = 4 << 20
HISTORY_EVENTS: Final = 500
FORGOTTEN_MS: Final = 3_600_000


# -- Adding and taking ------------------------------------------------------------------------------


def add_request(queue: str, args: dict[str, Any], trace: Mapping[str, str]) -> Request[str]:
    """Return the ADDJOB of the arguments of an `enqueue`. Raises RefusedError, ValueError.

    trace   the trace context of the request, as pairs of metadata
    """
    if ("body" in args) == ("body_base64" in args):
        raise RefusedError("ERR", "give either body or body_base64")
    if "key" in args and "request_id" in args:
        raise RefusedError("ERR", "give either key or request_id, not both")
    body = args["body"] if "body" in args else args["body_base64"]
    options: Any = {
        _ADD_OPTIONS[name]: value if name not in _SPANS else _SPANS[name](value)
        for name, value in args.items()
        if name in _ADD_OPTIONS
    }
    if trace:
        options["meta"] = with_trace(args.get("meta"), trace)
    return commands.add_job(queue, body, **options)


def _whole_seconds(milliseconds: int) -> int:
    """Return milliseconds rounded up to seconds, for an option that the broker has only in seconds."""
    return -(-milliseconds // 1000)


# Arguments of an `enqueue` -> options of the client; and the options that are spans.
_ADD_OPTIONS: Final = {
    "timeout_ms": "timeout_ms",
    "replicate": "replicate",
    "delay_ms": "delay",
    "retry_ms": "retry",
    "ttl_ms": "ttl",
    "maxlen": "maxlen",
    "async": "async_",
    "priority": "priority",
    "meta": "meta",
    "key": "key",
    "request_id": "key",
    "attempts": "attempts",
    "backoff": "backoff",
    "window_ms": "window",
    "replace": "replace",
    "batch": "batch",
    "zones": "zones",
}
_SPANS: Final[dict[str, Callable[[int], Any]]] = {
    "delay_ms": ms,
    "retry_ms": ms,
    "ttl_ms": ms,
    "window_ms": _whole_seconds,
}


def _result_of(args: dict[str, Any]) -> str | bytes | None:
    if "result" in args and "result_base64" in args:
        raise RefusedError("ERR", "give either result or result_base64, not both")
    found: str | bytes | None = args.get("result", args.get("result_base64"))
    return found


async def enqueue(call: Call) -> Any:
    """Add a job (ADDJOB) → its id. Raises RefusedError, DisqueError, ValueError, as all of these functions may."""
    return {"id": await call.run(add_request(call.queue, call.args, call.trace))}


async def sent(call: Call, requests: Sequence[Request[Any]]) -> list[Any]:
    """Execute commands in one pipeline → for each command its value or its error."""
    pipeline = call.client.pipeline()
    for request in requests:
        pipeline.add(request)
    return await pipeline.execute()


async def dequeue(call: Call) -> Any:
    """Fetch jobs (GETJOB) → the jobs."""
    return {"jobs": [shapes.job(job) for job in await taken(call)]}


async def taken(call: Call) -> list[Job]:
    """Fetch jobs by the arguments of a `dequeue`.

    The request id and the queue make the token of the GETJOB. The token also chooses the node, because only one node
    knows a token.
    """
    args = call.args
    wait_ms = args.get("wait_ms", 0)
    if wait_ms > call.settings.wait_max_ms:
        raise RefusedError("ERR", f"wait_ms must be at most {call.settings.wait_max_ms} (wait-max-ms)")
    token = token_of(call.queue, args["request_id"]) if "request_id" in args else None
    found = await call.run(
        commands.get_jobs(
            call.queue,
            count=args.get("max", 1),
            timeout_ms=wait_ms,
            nohang=not wait_ms,
            withcounters=True,
            withmeta=True,
            withlease=True,
            lease=ms(args.get("lease_ms")),
            where=args.get("where"),
            token=token,
            node=await _node_of_token(call, token) if token else None,
        )
    )

    async def put_back() -> None:
        if found:
            await call.client.put_back(found)

    if token is None:  # A repetition of the request may have the same jobs already.
        call.put_back = put_back
    return found


def token_of(queue: str, request_id: str) -> str:
    """Return the token of a request id.

    A node has one set of tokens for all queues and users, and returns the jobs of a token whatever queue the request
    names. So the token contains the queue, for which the caller's role was checked.
    """
    return hashlib.sha256(f"{queue}\0{request_id}".encode()).hexdigest()


async def _node_of_token(call: Call, token: str) -> Address:
    """Return the node that a token belongs to. Every gateway chooses the same node while the nodes don't change."""
    nodes = sorted(await nodes_of(call.client))
    return nodes[sum(token.encode()) % len(nodes)][1]


# -- One job ----------------------------------------------------------------------------------------


async def complete(call: Call) -> Any:
    """Acknowledge a job (ACKJOB) → the number of changed jobs. A delivery that has ended is refused with STALE."""
    args = call.args
    attempt = args.get("attempt")
    count = await call.run(commands.ack(args["id"], attempt=attempt, fence=args.get("fence"), result=_result_of(args)))
    if not count and attempt is not None:
        await _refuse_stale(call, attempt)
    return {"changed": count}


async def complete_batch(call: Call) -> Any:
    """Acknowledge jobs in one ACKJOB → the number of changed jobs."""
    return {"changed": await call.run(commands.ack(*call.args["ids"]))}


def fail_request(args: dict[str, Any]) -> Request[int]:
    """Return the NACK of the arguments of a `fail`."""
    return commands.nack(
        args["id"],
        delay=ms(args.get("delay_ms")),
        reason=args.get("reason"),
        final=args.get("final", False),
        attempt=args.get("attempt"),
        fence=args.get("fence"),
    )


async def fail(call: Call) -> Any:
    """Give a job back (NACK), on a node that has it → the number of changed jobs."""
    changed = await _changed_anywhere(call, fail_request(call.args))
    attempt = call.args.get("attempt")
    if not changed and attempt is not None:
        await _refuse_stale(call, attempt)
    return {"changed": changed}


async def _changed_anywhere(call: Call, request: Request[int]) -> int:
    """Execute a command that needs a node which knows the job. If the first node does not know it, ask the others.

    Return the number of jobs that were changed.
    """
    if await call.run(request):
        return 1
    for address in await other_nodes(call):
        if await asked(call, request, address):
            return 1
    return 0


async def extend(call: Call) -> Any:
    """Extend a lease (WORKING), on a node that has the job → the new lease in milliseconds."""
    args = call.args
    lease = ms(args.get("lease_ms"))
    request = commands.working(args["id"], lease, attempt=args.get("attempt"), fence=args.get("fence"))
    try:
        return {"lease_ms": 1000 * await call.run(request)}
    except NoJobError:
        for address in await other_nodes(call):
            seconds = await asked(call, request, address)
            if seconds is not None:
                return {"lease_ms": 1000 * seconds}
        raise


async def _refuse_stale(call: Call, attempt: int) -> None:
    shown = await call.run(commands.show(call.args["id"], cluster=True))
    if shown is not None and shown.attempt > attempt and shown.status not in ("completed", "canceled"):
        raise RefusedError("STALE", f"delivery {attempt} has ended: the job is at delivery {shown.attempt}")


async def cancel(call: Call) -> Any:
    """Cancel a job (CANCELJOB) → the number of changed jobs."""
    return {"changed": await call.run(commands.cancel(call.args["id"]))}


async def promote(call: Call) -> Any:
    """End the delay of a job (PROMOTE) → the number of changed jobs."""
    return {"changed": await call.run(commands.promote(call.args["id"]))}


async def reschedule(call: Call) -> Any:
    """Change the delay or the priority of a job (RESCHEDULE) → the number of changed jobs."""
    args = call.args
    if "delay_ms" not in args and "priority" not in args:
        raise RefusedError("ERR", "give delay_ms, priority or both")
    request = commands.reschedule(args["id"], delay=ms(args.get("delay_ms")), priority=args.get("priority"))
    is_changed = await call.run(request)
    return {"changed": int(is_changed)}


async def move_job(call: Call) -> Any:
    """Move a job to another queue (MOVEJOB) → the number of changed jobs."""
    return {"changed": await call.run(commands.move_jobs(call.args["id"], to=call.args["to"]))}


async def requeue(call: Call) -> Any:
    """Queue a job now (ENQUEUE), on a node that has it → the number of changed jobs."""
    return {"changed": await requeued(call, call.args["id"])}


async def requeued(call: Call, job_id: str) -> int:
    """Queue a job now. Return the number of jobs that were queued."""
    return await _changed_anywhere(call, commands.enqueue(job_id))


async def shown_job(call: Call) -> JobInfo:
    """Return the job of the argument `id`. Raises RefusedError."""
    shown = await call.run(commands.show(call.args["id"], cluster=True))
    if shown is None:
        raise RefusedError("NOJOB", "no node knows this job")
    return shown


async def get_job(call: Call) -> Any:
    """SHOW … CLUSTER."""
    shown = await shown_job(call)
    return shapes.job_info(shown, has_body=call.may_see_bodies(shown.queue or ""))


async def wait_job(call: Call) -> Any:
    """Show the job repeatedly until it is over."""
    most = call.settings.wait_max_ms
    timeout_ms = call.args.get("timeout_ms", most)
    if timeout_ms > most:
        raise RefusedError("ERR", f"timeout_ms must be at most {most} (wait-max-ms)")
    try:
        outcome = await call.client.wait(call.args["id"], timeout=timeout_ms / 1000)
    except TimeoutError:
        shown = await call.run(commands.show(call.args["id"], cluster=True))
        # A job that is not found may be on a node that can't be asked.
        return {"status": "unknown" if shown is None else shown.status, "is_over": False}
    shape: dict[str, Any] = {"status": outcome.status, "is_over": True}
    if outcome.result is not None and call.may_see_bodies(""):
        shape |= shapes.octets_of("result", outcome.result)
    if outcome.job is not None:
        shape["job"] = shapes.job_info(outcome.job, has_body=call.may_see_bodies(outcome.job.queue or ""))
    return shape


async def job_history(call: Call) -> Any:
    """Read each node's log from the job's creation on, and keep the lines about the job.

    If no node knows the job any more, only the last hour is read.
    """
    shown = await call.run(commands.show(call.args["id"], cluster=True))
    # The clocks of nodes may differ a little.
    since_ms = (shown.ctime // 1_000_000 - 60_000) if shown is not None else time.time() * 1000 - FORGOTTEN_MS
    job_id = call.args["id"].encode()
    nodes = await nodes_of(call.client)
    parts = await asyncio.gather(*(_history_at(call, address, job_id, int(since_ms)) for _, address in nodes))
    events = [event for found, _ in parts for event in found if call.may_see_bodies(event.get("queue") or "")]
    events.sort(key=lambda event: (event["ts"], event.get("version") or 0))
    is_complete = all(whole for _, whole in parts) and len(events) <= HISTORY_EVENTS
    return {"events": events[:HISTORY_EVENTS], "is_complete": is_complete}


def _is_of_job(event: dict[str, Any], job_id: str) -> bool:
    """Return whether an event is about the job, and has what a history is sorted by."""
    is_sortable = isinstance(event.get("ts"), int) and isinstance(event.get("version"), int | None)
    return is_sortable and event.get("job_id") == job_id


async def _history_at(call: Call, address: Address, job_id: bytes, since_ms: int) -> tuple[list[dict[str, Any]], bool]:
    """Return one node's events of the job, and whether its log was read to the end. Other lines are left out."""
    found: list[dict[str, Any]] = []
    try:
        info = await call.client.events_info(node=address)
        seek = commands.execute("EVENTS", "SEEK", str(max(0, since_ms)), repeat=True, node=address)
        seek.is_pinned = True
        number = max(int(await call.run(seek)), info.first)
        read = 0
        while number < info.next and read < HISTORY_BYTES:
            part = await call.client.events_read(info.log, number, max_bytes=HISTORY_PAGE, node=address)
            if not part.lines:
                break
            read += len(part.lines)
            number = max(part.next, number + len(part))  # The last line may not be an event.
            # Metadata and reasons of other jobs may have the id, too.
            events = (event_of(line) for line in part.lines.splitlines() if job_id in line)
            found += [event for event in events if event is not None and _is_of_job(event, job_id.decode())]
    except DisqueError as error:  # A node without a log, or one that is away, makes the history incomplete.
        if isinstance(error, ReplyError) and error.code == "NOPERM":
            raise
        return found, False
    return found, number >= info.next
