"""Searching the jobs of a queue by status, metadata, reason and age, on all nodes; and changing all that match.

QPEEK shows the first thousands of jobs of a queue. A search visits every job instead. It sends `JSCAN … COUNTED` to
each node, which returns each job of the cluster once (spec Z2), and SHOW to the node that counts the job. It keeps
creation time, id and reason of the jobs that match, so a hundred thousand of them take some megabytes. The setting
`search-max` limits the number of jobs that are read. The answer says if there were more.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from disque_py.client import Address, AuthError, DisqueConnectionError, ReplyError, commands
from disque_py.client.results import JobInfo
from disque_py.gateway import shapes
from disque_py.gateway.actions.calls import Call, page_of
from disque_py.gateway.actions.jobs import requeued
from disque_py.gateway.event_feed import nodes_of
from disque_py.gateway.problems import RefusedError

# Ids in a step of a walk, and SHOWs in a pipeline. Hundreds of bodies of a mebibyte must not come together.
WALK_COUNT: Final = 1_000
SHOWS: Final = 50
REASONS_MAX: Final = 20
# Jobs of one CANCELJOB or MOVEJOB.
IDS_AT_ONCE: Final = 100


class Match(NamedTuple):
    """A job that matches: creation in Unix milliseconds, id, reason of its last failure, the node that shows it."""

    created_ms: int
    id: str
    reason: str
    node: Address


@dataclass(slots=True)
class Search:
    """The search for jobs of a queue.

    reason     part of the reason of the last failure; empty: any
    older_ms   the least milliseconds since the creation
    left       number of jobs that may still be read
    found      the jobs that match
    missing    nodes that did not answer
    """

    call: Call
    queue: str
    status: str
    where: dict[str, str]
    reason: str
    older_ms: int
    left: int
    found: list[Match] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    looked_at: int = 0
    is_complete: bool = True

    async def run(self) -> None:
        """Walk over all nodes. Raises RefusedError, DisqueError."""
        nodes = await nodes_of(self.call.client)
        await asyncio.gather(*(self._walk(address) for _, address in nodes))
        self.found.sort()

    async def _walk(self, address: Address) -> None:
        cursor = 0
        try:
            while True:
                request = commands.jscan_page(
                    cursor,
                    count=WALK_COUNT,
                    queue=self.queue,
                    statuses=(self.status,),  # type: ignore[arg-type]  # one of STATUSES, by the table
                    where=self.where or None,
                    counted=True,
                )
                request.node, request.is_pinned = address, True
                cursor, ids = await self.call.run(request)
                if len(ids) > self.left:
                    self.is_complete = False
                    del ids[self.left :]
                self.left -= len(ids)
                for at in range(0, len(ids), SHOWS):
                    await self._look(address, ids[at : at + SHOWS])
                if not cursor or not self.is_complete:
                    return
        except (DisqueConnectionError, AuthError):
            self.missing.append(str(address))
        except ReplyError as error:
            if error.code == "ERR" and ("invalid cursor" in error.text or "syntax error" in error.text):
                raise RefusedError("UNSUPPORTED", f"{address} is too old for a search (JSCAN … COUNTED)") from None
            raise

    async def _look(self, address: Address, ids: list[str]) -> None:
        pipeline = self.call.client.pipeline()
        for job_id in ids:
            request = commands.show(job_id)
            request.node, request.is_pinned = address, True
            pipeline.add(request)
        now_ms = time.time() * 1000
        for shown in await pipeline.execute():
            self.looked_at += 1
            if isinstance(shown, JobInfo):
                created_ms = shown.ctime // 1_000_000
                if now_ms - created_ms >= self.older_ms and self.reason in (shown.error or ""):
                    self.found.append(Match(created_ms, shown.id, shown.error or "", address))


async def search(call: Call) -> Search:
    """Search by the arguments of a call. Raises RefusedError, DisqueError."""
    args = call.args
    # The number of matches, and the refusal of an unexpected number, would tell metadata and reasons.
    for name in ("where", "reason"):
        if args.get(name) and not call.may_see_bodies(call.queue):
            raise RefusedError("NOPERM", f"{name} needs the role bodies")
    found = Search(
        call,
        call.queue,
        args.get("status", "pending"),
        args.get("where", {}),
        args.get("reason", ""),
        args.get("older_ms", 0),
        call.settings.search_max,
    )
    await found.run()
    return found


async def search_jobs(call: Call) -> Any:
    """JSCAN … COUNTED on all nodes, and SHOW of the jobs of the page."""
    start, limit = page_of(call.args, 50)
    has_body = call.may_see_bodies(call.queue)
    found = await search(call)
    page = found.found[start : start + limit]
    shown = await asyncio.gather(*(_shown(call, page, node) for node in {match.node for match in page}))
    infos = {info.id: info for part in shown for info in part}
    reasons = Counter(match.reason for match in found.found) if has_body else Counter[str]()
    return {
        "jobs": [
            shapes.job_info(infos[match.id], has_body=has_body)
            | {"status": found.status, "next_awake_ms": infos[match.id].next_awake_within}
            for match in page
            if match.id in infos
        ],
        "cursor": str(start + limit) if start + limit < len(found.found) else None,
        "matching": len(found.found),
        "reasons": [{"reason": reason, "jobs": count} for reason, count in reasons.most_common(REASONS_MAX)],
        "looked_at": found.looked_at,
        "is_complete": found.is_complete and not found.missing,
        "nodes_missing": found.missing,
    }


async def _shown(call: Call, page: list[Match], node: Address) -> list[JobInfo]:
    pipeline = call.client.pipeline()
    for match in page:
        if match.node == node:
            request = commands.show(match.id)
            request.node, request.is_pinned = node, True
            pipeline.add(request)
    try:
        return [each for each in await pipeline.execute() if isinstance(each, JobInfo)]
    except AuthError:  # As for a node that can't be reached.
        return []


async def change_jobs(call: Call) -> Any:
    """A search, then ENQUEUE, CANCELJOB or MOVEJOB of each job that matches, as work of this gateway."""
    principal = call.principal
    action, to = call.args["action"], call.args.get("to")
    if (action == "move") != (to is not None):
        raise RefusedError(
            "ERR", "move needs 'to', the name of the other queue" if action == "move" else "'to' is only for move"
        )
    if to == call.queue:
        raise RefusedError("ERR", "the queues are the same")
    # This is checked here, because the broker sees no command if no job matches.
    for queue in (call.queue, *([to] if to else [])):
        if principal.asks_broker and principal.grants and not principal.may("operate", queue):
            raise RefusedError("NOPERM", f"{principal.name} does not have the role operate on {queue!r}")
    found = await search(call)
    if found.missing or not found.is_complete:
        what = (
            f"{', '.join(found.missing)} did not answer" if found.missing else "there are more than search-max allows"
        )
        raise RefusedError("CONFIRM", f"not all jobs were searched: {what}")
    expected = call.args.get("expected")
    if expected is not None and expected != len(found.found):
        raise RefusedError("CONFIRM", f"the number has changed: {len(found.found)} jobs match now")
    step = 1 if action == "requeue" else IDS_AT_ONCE
    ids = [match.id for match in found.found]
    parts = [ids[at : at + step] for at in range(0, len(ids), step)]

    async def change(part: list[str]) -> int:
        if to is not None:
            return await call.run(commands.move_jobs(*part, to=to))
        return await (call.run(commands.cancel(*part)) if action == "cancel" else requeued(call, part[0]))

    return call.bulk_operations.begin(action, call.queue, principal.name, parts, change).shape()
