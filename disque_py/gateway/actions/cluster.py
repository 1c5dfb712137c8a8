"""Actions on the cluster: its nodes, locks and schedules, and its bulk operations.

Figures of nodes come from the board's last picture, so a list of nodes does not ask each of them. Locks and schedules
are asked for at any node. Lists leave out names that the caller may not read.

The operations `list_operations`, `get_operation` and `stop_operation` are about changes of many jobs, which are of
two kinds. A node leads a *task* (QPURGE, QMOVE, QREDRIVE, QREBALANCE), and only this node knows the task. The task's id
begins with that of the node. A *bulk operation* (bulk_operations.py) is done by this gateway process, and no other
process knows it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from disque_py.client import Address, DisqueConnectionError, ReplyError, arguments, commands
from disque_py.client.results import Task
from disque_py.gateway import shapes
from disque_py.gateway.actions.calls import Call, page_of
from disque_py.gateway.bulk_operations import PREFIX, BulkOperation
from disque_py.gateway.event_feed import nodes_of
from disque_py.gateway.problems import RefusedError

# A task's id begins with this number of characters of the id of the node that leads it, and a dash.
NODE_PREFIX: Final = 8
LOCKS_MAX: Final = 200
NO_SCHEDULE: Final = "there is no such schedule"


async def list_nodes(call: Call) -> Any:
    """Return the picture of all nodes. For a user whose rights only the broker knows, ask the broker first."""
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
}
# Fields of CLUSTER INFO.
CLUSTER_FIELDS: Final = {
    "state": "cluster_state",
    "zone": "cluster_zone",
    "datacenter": "cluster_datacenter",
    "leaving": "cluster_leaving",
    "leaving_remaining": "cluster_leaving_remaining",
    "leaving_blocked_by": "cluster_leaving_blocked_by",
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
    for name, source in CLUSTER_FIELDS.items():
        if source in look.cluster:
            shape[name] = look.cluster[source]
    shape["links"] = [
        {"id": row.id, "address": f"{row.host}:{row.port}", "is_linked": row.linked, "flags": sorted(row.flags)}
        for row in look.table
        if "myself" not in row.flags
    ]
    return shape


async def list_locks(call: Call) -> Any:
    """LOCK LIST, and LOCK SHOW for the first locks."""
    names = [name for name in await call.run(commands.locks(call.args.get("match"))) if call.may_read(name)]
    shown = await asyncio.gather(*(call.run(commands.show_lock(name)) for name in names[:LOCKS_MAX]))
    return {
        "locks": [shapes.lock(name, found) for name, found in zip(names, shown, strict=False)],
        "total": len(names),
    }


async def list_schedules(call: Call) -> Any:
    """SCHEDULE LIST, and GET for those of the page."""
    start, limit = page_of(call.args, 100)
    raw = await call.run(commands.execute("SCHEDULE", "LIST", repeat=True))
    covered = sorted(name for name in map(shapes.readable, raw or []) if isinstance(name, str) and call.may_read(name))
    names = covered[start : start + limit]
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
    return {
        "schedules": schedules,
        "total": len(covered),
        "cursor": str(start + limit) if start + limit < len(covered) else None,
    }


async def run_schedule(call: Call) -> Any:
    """SCHEDULE RUN."""
    try:
        return {"id": shapes.readable(await call.run(commands.execute("SCHEDULE", "RUN", call.args["name"])))}
    except ReplyError as error:
        if error.text != "ERR no such schedule":
            raise
        raise RefusedError("NOTFOUND", NO_SCHEDULE) from error


async def _change_schedule(call: Call, word: str) -> Any:
    if not await call.run(commands.execute("SCHEDULE", word, call.args["name"], wait_ms=arguments.QUEUE_SET_MS)):
        raise RefusedError("NOTFOUND", NO_SCHEDULE)
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
        except DisqueConnectionError:
            return []
        except ReplyError as error:
            if error.code == "NOPERM":
                raise
            return []  # A node of an older version has no tasks.

    found = await asyncio.gather(*(ask(address) for _, address in nodes))
    tasks = [task for part in found for task in part if call.may_read(task.queue)]
    shown = [shapes.task(task) for task in tasks]
    shown += [bulk.shape() for bulk in call.bulk_operations.known() if _may_see(call, bulk, "read")]
    shown.sort(key=lambda shape: -(shape["started_ms"] or 0))
    return {"operations": shown}


def _may_see(call: Call, bulk: BulkOperation, role: str) -> bool:
    """Return whether the caller has the role on a bulk operation of this gateway. A broker user has it on its own."""
    if call.principal.asks_broker:
        return bulk.principal == call.principal.name
    return call.principal.may(role, bulk.queue)


def _bulk_of(call: Call, role: str) -> BulkOperation | None:
    """Return the bulk operation of the argument `id`; None for an id that no gateway gives. Raises RefusedError."""
    if not call.args["id"].startswith(PREFIX):
        return None
    bulk = call.bulk_operations.find(call.args["id"])
    if bulk is None or not _may_see(call, bulk, role):
        raise RefusedError("NOTFOUND", "this gateway does not know this operation")
    return bulk


async def _task_of(call: Call, role: str) -> Task:
    """Return the task of the argument `id`. The node that started it knows it. Raises RefusedError."""
    task_id = call.args["id"]
    for node_id, address in await nodes_of(call.client):
        if node_id[:NODE_PREFIX] == task_id[:NODE_PREFIX]:
            request = commands.task(task_id)
            request.node, request.is_pinned = address, True
            found = await call.run(request)
            if found is not None and (call.principal.asks_broker or call.principal.may(role, found.queue)):
                return found
    raise RefusedError("NOTFOUND", "no node knows this operation; operations are forgotten an hour after their end")


async def get_operation(call: Call) -> Any:
    """Show a task (QTASK SHOW), or a bulk operation of this gateway."""
    bulk = _bulk_of(call, "read")
    if bulk is not None:
        return bulk.shape()
    return shapes.task(await _task_of(call, "read"))


async def stop_operation(call: Call) -> Any:
    """Stop a task (QTASK CANCEL), or a bulk operation of this gateway."""
    bulk = _bulk_of(call, "operate")
    if bulk is not None:
        return {"id": bulk.id, "stopped": call.bulk_operations.stop(bulk)}
    found = await _task_of(call, "operate")
    stopped = await call.run(commands.cancel_task(found))
    return {"id": found.id, "stopped": stopped}
