"""Actions on queues: figures, settings, lists of jobs, bulk work.

The list of all queues comes from the board's last picture, which may be seconds old. Figures of one queue are asked for
at that moment, except rates: a rate needs two pictures. Every action is about the whole cluster, because it uses the
option CLUSTER, settings that all nodes share, or a task. Purges, moves and redrives only start a task and return it
(`QPURGE … ASYNC`); `get_operation` shows its progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from disque_py.client import Address, commands
from disque_py.client.results import Job, JobInfo, QueueSettings
from disque_py.gateway import shapes
from disque_py.gateway.actions.calls import Call, check_known, ms, page_of
from disque_py.gateway.board import QueueRow
from disque_py.gateway.event_feed import nodes_of
from disque_py.gateway.logins.grants import Principal
from disque_py.gateway.operations import STATUSES
from disque_py.gateway.problems import RefusedError

# The most jobs in an answer to QPEEK with CLUSTER.
PEEK_MAX: Final = 5_000
SETTINGS_MAX: Final = 1_000


async def find_jobs(call: Call) -> Any:
    """Find the jobs of keys (JOBID) → key: id, or None."""
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


async def list_queues(call: Call) -> Any:
    """QSCAN and QSTAT, from the picture of all nodes."""
    check_known(call.principal)
    start, limit = page_of(call.args, 100)
    picture = await call.board.picture()
    picture.check()
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


# The figures of a queue that has settings and is on no node.
NO_FIGURES: Final[dict[str, Any]] = {
    "pending": 0,
    "invisible": 0,
    "running": 0,
    "errored": 0,
    "consumers": 0,
    "oldest_ms": None,
    "jobs_in": 0,
    "jobs_out": 0,
    "paused": "none",
    "age_s": 0,
    "nodes": 0,
    "nodes_missing": [],
}


async def get_queue(call: Call) -> Any:
    """QSTAT … CLUSTER and QUEUE GET."""
    stat, found = await asyncio.gather(
        call.run(commands.qstat(call.queue, cluster=True)), call.run(commands.queue_settings(call.queue))
    )
    if stat is None and found is None:
        raise RefusedError("NOTFOUND", "no node has this queue, and it has no settings")
    settings = None if found is None else shapes.settings(found)
    shape: dict[str, Any] = {"name": call.queue, "settings": settings}
    if stat is None:
        # No node has had a job of the queue lately. A pause that is in force lasts.
        shape |= NO_FIGURES | {"paused": settings["paused"] if settings else "none"}
    else:
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
    row = (await call.board.picture()).queues.get(call.queue)
    return shape | {"rate_in": row.rate_in if row else 0.0, "rate_out": row.rate_out if row else 0.0}


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
        raise RefusedError("ERR", "give at least one setting")
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
        raise RefusedError("ERR", f"a list has at most {PEEK_MAX} jobs: use where to see others")
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
    """Return details of jobs by id, if possible from a node that sees them in this status."""
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
