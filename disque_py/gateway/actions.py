"""The work of operations: one coroutine per row of the table, by its name.

A coroutine gets a Call: the caller's client, the checked arguments, and the parts of the gateway that it needs. It
returns what JSON can have. Permissions were checked before it is called. Only lists check more: they leave out names
that the caller may not see.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

import msgspec

from disque_py.client import (
    Address,
    AsyncDisque,
    DisqueConnectionError,
    DisqueError,
    NoJobError,
    ReplyError,
    arguments,
    commands,
)
from disque_py.client.request import Request
from disque_py.client.results import Job, JobInfo, QueueSettings, Task
from disque_py.gateway import shapes
from disque_py.gateway.board import Board, QueueRow
from disque_py.gateway.event_feed import nodes_of
from disque_py.gateway.grants import Principal
from disque_py.gateway.operations import BY_NAME, STATUSES
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.settings import Settings

T = TypeVar("T")
# QPEEK with CLUSTER answers with so many jobs at most.
PEEK_MAX: Final = 5_000
DETAILS_MAX: Final = 1_000
# The bytes of one node's log that a history reads, and those of one answer.
HISTORY_BYTES: Final = 32 << 20
HISTORY_PAGE: Final = 4 << 20
HISTORY_EVENTS: Final = 500
FORGOTTEN_MS: Final = 3_600_000
# A task's id begins with so many characters of the node that leads it, and a dash.
NODE_PREFIX: Final = 8
LOCKS_MAX: Final = 200
SETTINGS_MAX: Final = 1_000


@dataclass(slots=True)
class Call:
    """One execution of an operation.

    principal   the caller
    args        the arguments by name; those that were not given are missing
    settings    of the gateway
    board       the figures of all queues
    put_back    undoes the operation for a caller that is gone; None if that is not needed
    """

    principal: Principal
    args: dict[str, Any]
    settings: Settings
    board: Board
    put_back: Callable[[], Awaitable[None]] | None = field(default=None)

    @property
    def client(self) -> AsyncDisque:
        """The client in the caller's name."""
        return self.principal.client

    @property
    def queue(self) -> str:
        """The argument `queue`."""
        return str(self.args["queue"])

    def may_see_bodies(self, queue: str) -> bool:
        """Return whether the caller may see bodies and metadata of the queue."""
        return self.principal.asks_broker or self.principal.may("bodies", queue)

    def may_read(self, name: str) -> bool:
        """Return whether the caller may read figures under this name."""
        return self.principal.asks_broker or self.principal.may("read", name)

    async def run(self, request: Request[T]) -> T:
        """Execute a command."""
        return await self.client.run(request)


Action = Callable[[Call], Awaitable[Any]]


def ms(value: int | None) -> timedelta | None:
    """Return milliseconds as a span."""
    return None if value is None else timedelta(milliseconds=value)


# -- Adding and taking ------------------------------------------------------------------------------


def add_request(queue: str, args: dict[str, Any]) -> Request[str]:
    """Return the ADDJOB of the arguments of an `enqueue`. Raises RefusedError, ValueError."""
    if ("body" in args) == ("body_base64" in args):
        raise RefusedError("ERR", "give body or body_base64")
    if "key" in args and "request_id" in args:
        raise RefusedError("ERR", "give key or request_id")
    body = args["body"] if "body" in args else args["body_base64"]
    return commands.add_job(
        queue,
        body,
        timeout_ms=args.get("timeout_ms", arguments.ADD_TIMEOUT_MS),
        replicate=args.get("replicate"),
        delay=ms(args.get("delay_ms")),
        retry=ms(args.get("retry_ms")),
        ttl=ms(args.get("ttl_ms")),
        maxlen=args.get("maxlen"),
        async_=args.get("async", False),
        priority=args.get("priority"),
        meta=args.get("meta"),
        key=args.get("key", args.get("request_id")),
        attempts=args.get("attempts"),
        backoff=args.get("backoff"),
        window=_whole_seconds(args.get("window_ms")),
        replace=args.get("replace", False),
        batch=args.get("batch"),
        zones=args.get("zones"),
    )


def _whole_seconds(milliseconds: int | None) -> int | None:
    """Round a span up to seconds, where the broker has no milliseconds."""
    return None if milliseconds is None else -(-milliseconds // 1000)


def _result_of(args: dict[str, Any]) -> str | bytes | None:
    if "result" in args and "result_base64" in args:
        raise RefusedError("ERR", "give result or result_base64")
    found: str | bytes | None = args.get("result", args.get("result_base64"))
    return found


async def enqueue(call: Call) -> Any:
    """ADDJOB."""
    return {"id": await call.run(add_request(call.queue, call.args))}


async def add_many(call: Call, requests: Sequence[Request[str]]) -> list[Any]:
    """Execute ADDJOBs in one pipeline → per command its id or its error."""
    pipeline = call.client.pipeline()
    for request in requests:
        pipeline.add(request)
    return await pipeline.execute()


async def dequeue(call: Call) -> Any:
    """GETJOB. A request id is the token, and it chooses the node: a token is known on one."""
    args = call.args
    wait_ms = args.get("wait_ms", 0)
    if wait_ms > call.settings.wait_max_ms:
        raise RefusedError("ERR", f"wait_ms must be at most {call.settings.wait_max_ms} (wait-max-ms)")
    token = args.get("request_id")
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
            await call.client.nack(*found)

    call.put_back = put_back
    return {"jobs": [shapes.job(job) for job in found]}


async def _node_of_token(call: Call, token: str) -> Address:
    """Return the node that a token belongs to. Every gateway chooses the same, as long as the nodes are the same."""
    nodes = sorted(await nodes_of(call.client))
    return nodes[sum(token.encode()) % len(nodes)][1]


# -- One job ----------------------------------------------------------------------------------------


async def complete(call: Call) -> Any:
    """ACKJOB."""
    args = call.args
    attempt = args.get("attempt")
    count = await call.run(commands.ack(args["id"], attempt=attempt, fence=args.get("fence"), result=_result_of(args)))
    if not count and attempt is not None:
        await _refuse_stale(call, attempt)
    return {"changed": count}


async def complete_batch(call: Call) -> Any:
    """ACKJOB."""
    return {"changed": await call.run(commands.ack(*call.args["ids"]))}


async def fail(call: Call) -> Any:
    """NACK. Only a node that knows the job can give it back, so the others are asked when the first does not."""
    args = call.args
    attempt = args.get("attempt")
    request = commands.nack(
        args["id"],
        delay=ms(args.get("delay_ms")),
        reason=args.get("reason"),
        final=args.get("final", False),
        attempt=attempt,
        fence=args.get("fence"),
    )
    if await call.run(request):
        return {"changed": 1}
    for address in await _other_nodes(call):
        if await _asked(call, request, address):
            return {"changed": 1}
    if attempt is not None:
        await _refuse_stale(call, attempt)
    return {"changed": 0}


async def extend(call: Call) -> Any:
    """WORKING."""
    args = call.args
    lease = ms(args.get("lease_ms"))
    request = commands.working(args["id"], lease, attempt=args.get("attempt"), fence=args.get("fence"))
    try:
        return {"lease_ms": 1000 * await call.run(request)}
    except NoJobError:
        for address in await _other_nodes(call):
            seconds = await _asked(call, request, address)
            if seconds is not None:
                return {"lease_ms": 1000 * seconds}
        raise


async def _asked(call: Call, request: Request[T], address: Address) -> T | None:
    """Execute a command on one node. None: the node can't be reached, or does not know the job."""
    request.node, request.is_pinned = address, True
    try:
        return await call.run(request)
    except (DisqueConnectionError, NoJobError):
        return None


async def _other_nodes(call: Call) -> list[Address]:
    asked = call.client.consumer_node or call.client.node
    return [address for _, address in await nodes_of(call.client) if address != asked]


async def _refuse_stale(call: Call, attempt: int) -> None:
    shown = await call.run(commands.show(call.args["id"], cluster=True))
    if shown is not None and shown.attempt > attempt and shown.status not in ("completed", "canceled"):
        raise RefusedError("STALE", f"delivery {attempt} is over: {shown.attempt} is known")


async def cancel(call: Call) -> Any:
    """CANCELJOB."""
    return {"changed": await call.run(commands.cancel(call.args["id"]))}


async def promote(call: Call) -> Any:
    """PROMOTE."""
    return {"changed": await call.run(commands.promote(call.args["id"]))}


async def reschedule(call: Call) -> Any:
    """RESCHEDULE."""
    args = call.args
    if "delay_ms" not in args and "priority" not in args:
        raise RefusedError("ERR", "give delay_ms or priority")
    request = commands.reschedule(args["id"], delay=ms(args.get("delay_ms")), priority=args.get("priority"))
    is_changed = await call.run(request)
    return {"changed": int(is_changed)}


async def requeue(call: Call) -> Any:
    """ENQUEUE, on a node that has the job."""
    request = commands.enqueue(call.args["id"])
    if await call.run(request):
        return {"changed": 1}
    for address in await _other_nodes(call):
        if await _asked(call, request, address):
            return {"changed": 1}
    return {"changed": 0}


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
    """Show the job again and again until it is over."""
    most = call.settings.wait_max_ms
    timeout_ms = call.args.get("timeout_ms", most)
    if timeout_ms > most:
        raise RefusedError("ERR", f"timeout_ms must be at most {most} (wait-max-ms)")
    try:
        outcome = await call.client.wait(call.args["id"], timeout=timeout_ms / 1000)
    except TimeoutError:
        shown = await call.run(commands.show(call.args["id"], cluster=True))
        return {"status": shown.status if shown is not None else "gone", "is_over": shown is None}
    shape: dict[str, Any] = {"status": outcome.status, "is_over": True}
    if outcome.result is not None and call.may_see_bodies(""):
        shape |= shapes.octets_of("result", outcome.result)
    if outcome.job is not None:
        shape["job"] = shapes.job_info(outcome.job, has_body=call.may_see_bodies(outcome.job.queue or ""))
    return shape


async def job_history(call: Call) -> Any:
    """Read each node's log from the job's creation on, and keep the lines about the job.

    Of a job that no node knows any more only the last hour is read.
    """
    shown = await call.run(commands.show(call.args["id"], cluster=True))
    # Clocks of nodes differ a little.
    since_ms = (shown.ctime // 1_000_000 - 60_000) if shown is not None else time.time() * 1000 - FORGOTTEN_MS
    job_id = call.args["id"].encode()
    nodes = await nodes_of(call.client)
    parts = await asyncio.gather(*(_history_at(call, address, job_id, int(since_ms)) for _, address in nodes))
    events = [event for found, _ in parts for event in found if call.may_see_bodies(event.get("queue") or "")]
    events.sort(key=lambda event: (event["ts"], event.get("version") or 0))
    return {"events": events[:HISTORY_EVENTS], "is_complete": all(whole for _, whole in parts)}


async def _history_at(call: Call, address: Address, job_id: bytes, since_ms: int) -> tuple[list[dict[str, Any]], bool]:
    """Return one node's events of the job, and whether its log was read to the end."""
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
            number = part.next
            found += [msgspec.json.decode(line) for line in part.lines.splitlines() if job_id in line]
    except DisqueError:  # A node without a log, or one that is away, makes the history incomplete.
        return found, False
    return found, number >= info.next


# -- Queues -----------------------------------------------------------------------------------------


async def find_jobs(call: Call) -> Any:
    """JOBID."""
    keys = call.args["keys"]
    found = await call.run(commands.job_ids(call.queue, keys))
    return {"ids": dict(zip(keys, found, strict=True))}


_SORT: Final[dict[str, Callable[[QueueRow], Any]]] = {
    "pending": lambda row: (-row.pending, row.name),
    "running": lambda row: (-row.running, row.name),
    "errored": lambda row: (-row.errored, row.name),
    "oldest": lambda row: (-(row.oldest_ms or 0), row.name),
    "rate": lambda row: (-(row.rate_in + row.rate_out), row.name),
    "name": lambda row: row.name,
}


def chosen_rows(rows: Sequence[QueueRow], principal: Principal, args: dict[str, Any]) -> list[QueueRow]:
    """Return the queues that a list shows, in its order, before paging."""
    match, status = args.get("match"), args.get("status")
    if not principal.may_everywhere("read"):
        rows = [row for row in rows if principal.may("read", row.name)]
    if match:
        pattern = match if any(letter in match for letter in "*?[") else f"*{match}*"
        rows = [row for row in rows if fnmatchcase(row.name, pattern)]
    if status:
        rows = [row for row in rows if getattr(row, status)]
    return sorted(rows, key=_SORT[args.get("sort", "name")])


def check_known(principal: Principal) -> None:
    """Refuse a list that the gateway makes itself to a user whose rights only the broker knows. Raises RefusedError."""
    if principal.asks_broker and not principal.grants:
        raise RefusedError("NOPERM", "only the broker knows the rights of this user: give grants in the access file")
    if not principal.may_somewhere("read"):
        raise RefusedError("NOPERM", f"{principal.name} has no role read")


def page_of(args: dict[str, Any], limit: int) -> tuple[int, int]:
    """Return the first place of a page and its length. Raises RefusedError."""
    cursor = args.get("cursor", "0")
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 12:
        raise RefusedError("ERR", "cursor must be the one of the page before")
    return int(cursor), args.get("limit", limit)


async def list_queues(call: Call) -> Any:
    """QSCAN and QSTAT, from the picture of all nodes."""
    check_known(call.principal)
    start, limit = page_of(call.args, 100)
    picture = await call.board.picture()
    rows = chosen_rows(list(picture.queues.values()), call.principal, call.args)
    page = rows[start : start + limit]
    return {
        "queues": [row.as_json() for row in page],
        "total": len(rows),
        "cursor": str(start + limit) if start + limit < len(rows) else None,
    }


async def list_settings(call: Call) -> Any:
    """QUEUE LIST and QUEUE GET."""
    names = [
        name for name in await call.run(commands.queues_with_settings(call.args.get("match"))) if call.may_read(name)
    ]
    pipeline = call.client.pipeline()
    for name in names[:SETTINGS_MAX]:
        pipeline.add(commands.queue_settings(name))
    found = await pipeline.execute()
    return {
        "queues": [
            {"name": name, "settings": shapes.settings(each)}
            for name, each in zip(names, found, strict=False)
            if isinstance(each, QueueSettings)
        ],
        "total": len(names),
    }


async def get_queue(call: Call) -> Any:
    """QSTAT … CLUSTER and QUEUE GET."""
    stat, found = await asyncio.gather(
        call.run(commands.qstat(call.queue, cluster=True)), call.run(commands.queue_settings(call.queue))
    )
    if stat is None and found is None:
        raise RefusedError("NOTFOUND", "no node has this queue, and it has no settings")
    shape: dict[str, Any] = {"name": call.queue, "settings": None if found is None else shapes.settings(found)}
    if stat is not None:
        shape |= {
            "pending": stat.len,
            "invisible": stat.invisible,
            "running": stat.running,
            "errored": stat.errored,
            "consumers": stat.blocked,
            "oldest_ms": stat.oldest_ms,
            "jobs_in": stat.jobs_in,
            "jobs_out": stat.jobs_out,
            "paused": stat.pause,
            "age_s": stat.age,
            "nodes": stat.nodes,
            "nodes_missing": stat.nodes_missing,
        }
    return shape


async def put_queue(call: Call) -> Any:
    """QUEUE SET."""
    args = call.args
    words: dict[str, Any] = {}
    for name in ("lease", "ttl", "retention"):
        if f"{name}_ms" in args:
            words[name] = ms(args[f"{name}_ms"]) if args[f"{name}_ms"] else ""
    if "delay_ms" in args:
        words["delay"] = ms(args["delay_ms"])
    for name in ("attempts", "backoff", "dead_letter", "maxlen", "maxsize", "require_meta", "more"):
        if name in args:
            words[name] = args[name]
    if "replicate" in args:
        text = args["replicate"]
        words["replicate"] = int(text) if text.isascii() and text.isdigit() else text
    if not words:
        raise RefusedError("ERR", "give a setting")
    await call.run(commands.set_queue(call.queue, **words))
    found = await call.run(commands.queue_settings(call.queue))
    return {"name": call.queue, "settings": None if found is None else shapes.settings(found)}


async def depth(call: Call) -> Any:
    """QLEN … CLUSTER, for each status."""
    where = call.args.get("where")
    if where and not call.may_see_bodies(call.queue):
        raise RefusedError("NOPERM", "where needs the role bodies")
    found = await asyncio.gather(
        *(call.run(commands.qlen(call.queue, where=where, status=status, cluster=True)) for status in STATUSES)
    )
    return dict(zip(STATUSES, found, strict=True))


async def list_jobs(call: Call) -> Any:
    """QPEEK … CLUSTER, and SHOW of the jobs of the page."""
    args = call.args
    start, limit = page_of(args, 50)
    status = args.get("status", "pending")
    if start + limit > PEEK_MAX:
        raise RefusedError("ERR", f"a list ends after {PEEK_MAX} jobs; use where")
    has_body = call.may_see_bodies(call.queue)
    where = args.get("where")
    if where and not has_body:
        raise RefusedError("NOPERM", "where needs the role bodies")
    found = await call.run(
        commands.qpeek(call.queue, start + limit + 1, where=where, status=status, withmeta=True, cluster=True)
    )
    page = found[start : start + limit]
    infos = await job_infos(call, page, status)
    jobs = []
    for job in page:
        shape = shapes.job(job, has_body=has_body) | {"status": status}
        info = infos.get(job.id)
        if info is not None:
            shape |= {
                "attempt": info.attempt,
                "nacks": info.nacks,
                "attempts": info.attempts,
                "priority": info.priority,
                "created_ms": info.ctime // 1_000_000,
                "ttl_ms": info.ttl_ms,
                "next_awake_ms": info.next_awake_within,
            }
            if has_body:
                shape["error"] = info.error
        jobs.append(shape)
    return {"jobs": jobs, "cursor": str(start + limit) if len(found) > start + limit else None}


async def job_infos(call: Call, jobs: Sequence[Job], status: str) -> dict[str, JobInfo]:
    """Return what nodes know of jobs: by id, from a node that sees them in this status if there is one."""
    if not jobs:
        return {}
    known: dict[str, JobInfo] = {}

    async def ask(address: Address) -> None:
        pipeline = call.client.pipeline()
        for job in jobs:
            request = commands.show(job.id)
            request.node, request.is_pinned = address, True
            pipeline.add(request)
        for answer in await pipeline.execute():
            if isinstance(answer, JobInfo):
                before = known.get(answer.id)
                if before is None or (before.status != status and answer.status == status):
                    known[answer.id] = answer

    nodes = await nodes_of(call.client)
    await asyncio.gather(*(ask(address) for _, address in nodes), return_exceptions=True)
    return known


async def purge_queue(call: Call) -> Any:
    """QPURGE … ASYNC."""
    if call.args.get("confirm") != call.queue:
        raise RefusedError("CONFIRM", "confirm must be the name of the queue")
    request = commands.purge(call.queue, where=call.args.get("where"), status=call.args.get("status"), wait=False)
    return shapes.task(await call.run(request))


async def move(call: Call) -> Any:
    """QMOVE … ASYNC."""
    args = call.args
    request = commands.move(
        call.queue,
        args["to"],
        where=args.get("where"),
        status=args.get("status"),
        limit=args.get("limit"),
        rate=args.get("rate"),
        wait=False,
    )
    return shapes.task(await call.run(request))


async def redrive(call: Call) -> Any:
    """QREDRIVE … ASYNC."""
    args = call.args
    request = commands.redrive(
        call.queue,
        where=args.get("where"),
        to=args.get("to"),
        limit=args.get("limit"),
        rate=args.get("rate"),
        wait=False,
    )
    return shapes.task(await call.run(request))


async def pause(call: Call) -> Any:
    """PAUSE … bcast."""
    direction = call.args.get("direction", "all")
    return {"paused": await call.run(commands.pause(call.queue, direction, bcast=True))}


async def resume(call: Call) -> Any:
    """PAUSE … none bcast."""
    return {"paused": await call.run(commands.pause(call.queue, "none", bcast=True))}


# -- The cluster ------------------------------------------------------------------------------------


async def list_nodes(call: Call) -> Any:
    """The picture of all nodes. A user whose rights only the broker knows asks it first."""
    if call.principal.asks_broker:
        await call.run(commands.info())
    picture = await call.board.picture()
    return {"nodes": [node_shape(seen) for seen in picture.nodes]}


NODE_FIELDS: Final = {
    "version": "disque_version",
    "uptime_s": "uptime_in_seconds",
    "clients": "connected_clients",
    "memory_used": "used_memory",
    "memory_max": "maxmemory",
    "jobs": "registered_jobs",
    "queued": "queued_jobs",
    "queues": "registered_queues",
    "journal": "aof_enabled",
    "journal_status": "aof_last_write_status",
    "journal_bytes": "aof_current_size",
    "leaving": "leaving",
    "state": "cluster_state",
}


def node_shape(seen: Any) -> dict[str, Any]:
    """Return one node of the picture."""
    shape: dict[str, Any] = {"address": str(seen.address), "is_up": seen.look is not None}
    if seen.look is None:
        shape["error"] = seen.error
        return shape
    look = seen.look
    shape["id"] = look.hello.id if look.hello is not None else None
    for name, source in NODE_FIELDS.items():
        if source in look.info:
            shape[name] = look.info[source]
    shape["links"] = [
        {"id": row.id, "address": f"{row.host}:{row.port}", "is_linked": row.linked, "flags": sorted(row.flags)}
        for row in look.table
        if "myself" not in row.flags
    ]
    return shape


async def list_locks(call: Call) -> Any:
    """LOCK LIST, and LOCK SHOW of the first ones."""
    names = [name for name in await call.run(commands.locks(call.args.get("match"))) if call.may_read(name)]
    shown = await asyncio.gather(*(call.run(commands.show_lock(name)) for name in names[:LOCKS_MAX]))
    return {
        "locks": [shapes.lock(name, found) for name, found in zip(names, shown, strict=False)],
        "total": len(names),
    }


async def list_schedules(call: Call) -> Any:
    """SCHEDULE LIST and GET, where the nodes have them."""
    raw = await call.run(commands.execute("SCHEDULE", "LIST", repeat=True))
    names = [name for name in map(shapes.readable, raw or []) if isinstance(name, str) and call.may_read(name)]
    found = await asyncio.gather(*(call.run(commands.execute("SCHEDULE", "GET", name, repeat=True)) for name in names))
    schedules = []
    for name, reply in zip(names, found, strict=True):
        if reply is not None:
            words = shapes.readable(reply)
            pairs = {str(key).replace("-", "_"): value for key, value in zip(words[::2], words[1::2], strict=False)}
            if not call.may_see_bodies(str(pairs.get("queue", ""))):
                pairs.pop("body", None)
                pairs.pop("options", None)
            schedules.append({**pairs, "name": name})
    return {"schedules": schedules}


async def run_schedule(call: Call) -> Any:
    """SCHEDULE RUN."""
    return {"id": shapes.readable(await call.run(commands.execute("SCHEDULE", "RUN", call.args["name"])))}


async def _change_schedule(call: Call, word: str) -> Any:
    if not await call.run(commands.execute("SCHEDULE", word, call.args["name"], wait_ms=arguments.QUEUE_SET_MS)):
        raise RefusedError("NOTFOUND", "there is no such schedule")
    return {"name": call.args["name"]}


async def pause_schedule(call: Call) -> Any:
    """SCHEDULE PAUSE."""
    return await _change_schedule(call, "PAUSE")


async def resume_schedule(call: Call) -> Any:
    """SCHEDULE RESUME."""
    return await _change_schedule(call, "RESUME")


async def delete_schedule(call: Call) -> Any:
    """SCHEDULE DEL."""
    return await _change_schedule(call, "DEL")


async def list_operations(call: Call) -> Any:
    """QTASK LIST on every node."""
    nodes = await nodes_of(call.client)

    async def ask(address: Address) -> list[Task]:
        request = commands.tasks()
        request.node, request.is_pinned = address, True
        try:
            return await call.run(request)
        except (DisqueConnectionError, ReplyError):
            return []

    found = await asyncio.gather(*(ask(address) for _, address in nodes))
    tasks = [task for part in found for task in part if call.may_read(task.queue)]
    tasks.sort(key=lambda task: -(task.started or 0))
    return {"operations": [shapes.task(task) for task in tasks]}


async def _task_of(call: Call, role: str) -> Task:
    """Return the task of the argument `id`, which the node knows that began it. Raises RefusedError."""
    task_id = call.args["id"]
    for node_id, address in await nodes_of(call.client):
        if node_id[:NODE_PREFIX] == task_id[:NODE_PREFIX]:
            request = commands.task(task_id)
            request.node, request.is_pinned = address, True
            found = await call.run(request)
            if found is not None and (call.principal.asks_broker or call.principal.may(role, found.queue)):
                return found
    raise RefusedError("NOTFOUND", "no node knows this operation; it is known for an hour after its end")


async def get_operation(call: Call) -> Any:
    """QTASK SHOW."""
    return shapes.task(await _task_of(call, "read"))


async def stop_operation(call: Call) -> Any:
    """QTASK CANCEL."""
    found = await _task_of(call, "operate")
    stopped = await call.run(commands.cancel_task(found))
    return {"id": found.id, "stopped": stopped}


ACTIONS: Final[dict[str, Action]] = {name: globals()[name] for name, row in BY_NAME.items() if row.form == "json"}
