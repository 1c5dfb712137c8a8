"""The pages: for each page a coroutine, which gets the values of its template.

A page gets its figures through operations of the table, so it shows only what the caller may see. Names and filters are
in the query, so a link leads to the same view.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from disque_py.gateway.actions.calls import forbidden
from disque_py.gateway.actions.queues import chosen_rows
from disque_py.gateway.audit import NAMES
from disque_py.gateway.board import NodeRow, QueueRow
from disque_py.gateway.console import shown
from disque_py.gateway.fields import Pairs, merged
from disque_py.gateway.logins.grants import Principal
from disque_py.gateway.operations import BY_NAME, CHANGED, STATUSES
from disque_py.gateway.problems import NoVotersError, RefusedError
from disque_py.gateway.service import Service

INTERFACE: Final = "console"
PAGE: Final = 50
TROUBLE_MAX: Final = 8
# The most pairs of metadata in a filter, as in the broker's WHERE.
WHERE_MAX: Final = 8

# Voters are usually three: one of them may fail.
VOTERS: Final = 3


@dataclass(slots=True)
class View:
    """One request for a page.

    query   its arguments, the last of each name
    lists   all values of arguments that are repeated
    """

    service: Service
    principal: Principal
    address: str
    query: dict[str, str]
    lists: dict[str, list[str]] = field(default_factory=dict)

    async def ask(self, name: str, **args: Any) -> Any:
        """Execute an operation with arguments of the address, without empty ones. Raises RefusedError."""
        operation = BY_NAME[name]
        checked = {
            key: operation.kinds[key].read(key, value) for key, value in args.items() if value not in (None, "", {})
        }
        for each in operation.required:
            if each not in checked:
                raise RefusedError("ERR", f"{each} is missing")
        return await self.perform(name, checked)

    async def perform(self, name: str, args: dict[str, Any]) -> Any:
        """Execute an operation. Raises RefusedError."""
        return await self.service.perform(
            BY_NAME[name], self.service.call(self.principal, args), self.address, INTERFACE
        )

    def may(self, role: str, name: str = "") -> bool:
        """Return whether the caller has the role on this name; without a name, on any name."""
        if self.service.settings.read_only and role in ("produce", "consume", "operate", "admin"):
            return False
        if self.principal.asks_broker and not self.principal.grants:
            return True
        return self.principal.may(role, name) if name else self.principal.may_somewhere(role)

    def may_open(self, page: str, role: str) -> bool:
        """Return whether the menu has this page, which needs this role."""
        return self.may_see_audit() if page == "audit" else self.may(role)

    def may_see_audit(self) -> bool:
        """Return whether the caller sees lines of the audit log: only with a known grant, and if read-only, too."""
        return self.principal.may_somewhere("admin")

    def link(self, page: str, /, **query: Any) -> str:
        """Return the address of a page."""
        words = {name: value for name, value in query.items() if value not in (None, "")}
        query_string = urlencode(words, doseq=True, errors="surrogateescape")  # A name may have any bytes.
        return f"{self.service.path}/console/{page}" + (f"?{query_string}" if words else "")

    def here(self, page: str, /, **changes: Any) -> str:
        """Return the address of this view with some arguments changed."""
        kept = {name: values for name, values in self.lists.items() if name not in ("part",)}
        return self.link(page, **(kept | changes))

    async def rows(self) -> list[QueueRow]:
        """Return all queues that the caller may see. Raises RefusedError."""
        self.service.check_lists(self.principal, self.address, INTERFACE)
        picture = await self.service.board.picture()
        return chosen_rows(list(picture.queues.values()), self.principal, {})


Page = Callable[[View], Awaitable[dict[str, Any]]]


def trouble_of(row: QueueRow) -> list[str]:
    """Return the problems of a queue as texts; empty without problems."""
    found = []
    if row.errored:
        found.append(f"{shown.number(row.errored)} errored")
    if row.paused != "none":
        found.append(f"paused ({row.paused})")
    if row.pending and not row.consumers and not row.running and not row.rate_out:
        found.append("no consumer")
    if row.oldest_ms is not None and row.oldest_ms >= 60_000:
        found.append(f"oldest {shown.span(row.oldest_ms)}")
    return found


async def overview(view: View) -> dict[str, Any]:
    """Depth, rates and errors of the whole cluster; queues with problems come first."""
    rows = await view.rows()
    picture = await view.service.board.picture()
    troubled = [(row, trouble_of(row)) for row in rows]
    troubled = sorted((pair for pair in troubled if pair[1]), key=lambda pair: (-pair[0].errored, -pair[0].pending))
    everything = view.principal.may_everywhere("read")
    totals = list(view.service.board.totals) if everything else []
    busy = sorted(rows, key=lambda row: -(row.rate_in + row.rate_out + row.pending / 1e9))[:TROUBLE_MAX]
    down = [seen for seen in picture.nodes if seen.look is None]
    return {
        "tiles": [
            ("Pending", sum(row.pending for row in rows), [each[0] for each in totals]),
            ("Running", sum(row.running for row in rows), []),
            ("Added per second", round(sum(row.rate_in for row in rows), 1), [each[1] for each in totals]),
            ("Delivered per second", round(sum(row.rate_out for row in rows), 1), [each[2] for each in totals]),
            ("Errored", sum(row.errored for row in rows), [each[3] for each in totals]),
        ],
        "oldest": max((row.oldest_ms or 0 for row in rows), default=0),
        "troubled": troubled[:TROUBLE_MAX],
        "troubled_count": len(troubled),
        "busy": [row for row in busy if row.rate_in or row.rate_out or row.pending],
        "nodes": picture.rows,
        "zones": zones_of(picture.rows),
        "everything": everything,
        "down": down,
        "queue_count": len(rows),
        "poll_ms": view.service.settings.poll_ms,
        "totals": [list(each) for each in totals],
    }


def zones_of(rows: list[NodeRow]) -> list[NodeRow]:
    """Return the sums of each zone; empty if all nodes are in one zone."""
    found: dict[str, NodeRow] = {}
    for row in rows:
        if row.is_up:
            found.setdefault(row.zone, NodeRow(row.zone or "none", zone=row.zone, is_up=True)).add(row)
    return [found[zone] for zone in sorted(found)] if len(found) > 1 else []


async def queues(view: View) -> dict[str, Any]:
    """All queues, with search, order, and a filter for errors."""
    await view.rows()
    args = {name: view.query.get(name) for name in ("match", "sort", "cursor", "status")}
    found: dict[str, Any] = await view.ask("list_queues", **args, limit=PAGE)
    histories = view.service.board.histories
    for row in found["queues"]:
        row["history"] = list(histories.get(row["name"], ()))
    return found | {"sorts": ("name", "pending", "running", "errored", "oldest", "rate")}


async def queue(view: View) -> dict[str, Any]:
    """One queue: figures, settings, jobs by state."""
    name = view.query.get("name", "")
    found = await view.ask("get_queue", queue=name)
    picture = await view.service.board.picture()
    row = picture.queues.get(name)
    return {
        "name": name,
        "found": found,
        "row": row,
        "history": list(view.service.board.histories.get(name, ())),
        "rates": [list(each) for each in zip(*view.service.board.rates.get(name, ()), strict=True)],
        "statuses": STATUSES,
        "settings_fields": SETTINGS_FIELDS,
        "poll_ms": view.service.settings.poll_ms,
    }


# Settings of a queue: field, label, hint.
SETTINGS_FIELDS: Final = (
    ("lease_ms", "Lease, ms", "a tenth of the TTL"),
    ("delay_ms", "Delay, ms", "0"),
    ("ttl_ms", "TTL, ms", "86400000"),
    ("replicate", "Copies", "a number, or quorum"),
    ("attempts", "Attempts (0: no limit)", "0"),
    ("backoff", "Back-off", "exponential:1000:60000:20"),
    ("dead_letter", "Queue for dead letters", ""),
    ("retention_ms", "Keep errored jobs, ms", ""),
    ("maxlen", "Most pending jobs (0: no limit)", "0"),
    ("maxsize", "Most bytes of a body (0: no limit)", "0"),
    ("require_meta", "Metadata names that jobs must have", "tenant, kind"),
)


def where_of(texts: list[str]) -> dict[str, str]:
    """Return the pairs of `name:value` texts. Raises RefusedError."""
    found: dict[str, str] = merged(Pairs(WHERE_MAX), "where", [text for text in texts if text])
    return found


async def jobs(view: View) -> dict[str, Any]:
    """Jobs of a queue by state, metadata, age and reason."""
    name, status = view.query.get("queue", ""), view.query.get("status") or "pending"
    if not name:
        rows = await view.rows()
        return {
            "queue": "",
            "names": [row.name for row in rows[:1000]],
            "status": status,
            "statuses": STATUSES,
            "where_max": WHERE_MAX,
            "jobs": None,
        }
    found = Filter.of(view)
    shown = await found.jobs(view, view.query.get("cursor"), PAGE)
    depth = await view.ask("depth", queue=name, where=found.where)
    return {
        "queue": name,
        "status": status,
        "statuses": STATUSES,
        "changed": CHANGED,
        "jobs": shown["jobs"],
        "cursor": shown["cursor"],
        "matching": shown["matching"] if found.is_search else depth[status],
        "depth": depth,
        "where": view.lists.get("where", []),
        "where_max": WHERE_MAX,
        "reason": found.reason,
        "age_s": view.query.get("age_s", ""),
        "reasons": [(each["reason"], each["jobs"]) for each in shown.get("reasons", ())],
        "looked_at": 0 if shown.get("is_complete", True) else shown["looked_at"],
        "nodes_missing": shown.get("nodes_missing", []),
        "has_bodies": view.may("bodies", name),
    }


@dataclass(slots=True)
class Filter:
    """The filter of the page of jobs.

    older_ms   the least milliseconds since the creation; None: any age
    """

    queue: str
    status: str
    where: dict[str, str]
    reason: str
    older_ms: int | None

    @classmethod
    def of(cls, view: View) -> Filter:
        """Return the filter of a request. Raises RefusedError."""
        age_s = view.query.get("age_s", "")
        if age_s and not (age_s.isascii() and age_s.isdigit() and len(age_s) < 12):
            raise RefusedError("ERR", "the age must be a number of seconds")
        status = view.query.get("status") or "pending"
        if status not in STATUSES:
            raise RefusedError("ERR", f"status must be one of {', '.join(STATUSES)}")
        return cls(
            view.query.get("queue", ""),
            status,
            where_of(view.lists.get("where", [])),
            view.query.get("reason", ""),
            int(age_s) * 1000 if age_s else None,
        )

    @property
    def is_search(self) -> bool:
        """Whether all jobs must be read, because nodes have no list of the jobs that match."""
        return bool(self.reason) or self.older_ms is not None

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of a search."""
        return {
            "queue": self.queue,
            "status": self.status,
            "where": self.where,
            "reason": self.reason,
            "older_ms": self.older_ms,
        }

    async def jobs(self, view: View, cursor: str | None, limit: int) -> dict[str, Any]:
        """Return a page of jobs. Errored jobs come from a search, which has their reasons. Raises RefusedError."""
        if self.is_search or self.status == "errored":
            try:
                found: dict[str, Any] = await view.ask("search_jobs", **self.args, cursor=cursor, limit=limit)
            except RefusedError as error:
                if self.is_search or error.code != "UNSUPPORTED":
                    raise
            else:
                return found
        listed = await view.ask(
            "list_jobs", queue=self.queue, status=self.status, where=self.where, cursor=cursor, limit=limit
        )
        return dict(listed)


async def job(view: View) -> dict[str, Any]:
    """One job: body, metadata, holders, timeline."""
    job_id = view.query.get("id", "")
    try:
        found = await view.ask("get_job", id=job_id)
    except RefusedError as error:
        if error.code != "NOJOB":
            raise
        found = None
    history: dict[str, Any] = {"events": [], "is_complete": False}
    queue_name = found["queue"] or "" if found else ""
    if view.may("bodies", queue_name):
        try:
            history = await view.ask("job_history", id=job_id)
        except RefusedError as error:  # If only the broker knows the rights of a user, it may allow SHOW and no events.
            if error.code != "NOPERM" or found is None:
                raise
    body = None
    if found is not None:
        if "body" in found:
            body = found["body"].encode()
        elif "body_base64" in found:
            body = base64.b64decode(found["body_base64"])
    return {
        "id": job_id,
        "found": found,
        "queue": queue_name,
        "history": history,
        "body": body,
        "text": shown.beginning(body) if body is not None else "",
        "json": shown.pretty(body) if body is not None else "",
        "hex": shown.hexdump(body) if body is not None else "",
    }


async def dead(view: View) -> dict[str, Any]:
    """Queues with errored jobs, and queues of dead letters."""
    rows = await view.rows()
    known = await view.ask("list_settings")
    targets: dict[str, list[str]] = {}
    for each in known["queues"]:
        if each["settings"]["dead_letter"]:
            targets.setdefault(each["settings"]["dead_letter"], []).append(each["name"])
    by_name = {row.name: row for row in rows}
    letters = [
        (name, sources, by_name.get(name)) for name, sources in sorted(targets.items()) if view.may("read", name)
    ]
    return {"errored": [row for row in rows if row.errored], "letters": letters}


async def nodes(view: View) -> dict[str, Any]:
    """The nodes: memory, journal, links."""
    return dict(await view.ask("list_nodes")) | {"poll_ms": view.service.settings.poll_ms}


async def operations(view: View) -> dict[str, Any]:
    """Bulk work of the last hour."""
    return dict(await view.ask("list_operations")) | {"poll_ms": view.service.settings.poll_ms}


async def add(view: View) -> dict[str, Any]:
    """A form for a new job. It may be filled with the values of another job."""
    names = ("queue", "body", "encoding", "meta", "priority", "delay_ms", "attempts", "retry_ms", "backoff")
    filled = {name: view.query.get(name, "") for name in names}
    left_out: list[str] = []
    source = view.query.get("from", "")
    if source:
        found = await view.ask("get_job", id=source)
        filled["queue"] = found["queue"] or ""
        if "body_base64" in found:
            filled["encoding"] = "base64"
        filled["body"] = found.get("body_base64") or found.get("body", "")
        if len(filled["body"]) > view.service.settings.body_max:
            raise RefusedError("TOOBIG", "the body of this job is too long for a form (body-max)")
        meta = found.get("meta") or {}
        # The form has one pair per line, and these pairs can't be written in that way.
        left_out = [name for name, value in meta.items() if not _is_line(name, value)]
        filled["meta"] = "\n".join(f"{name}:{value}" for name, value in meta.items() if name not in left_out)
        for name in ("attempts", "retry_ms", "backoff"):
            filled[name] = str(found[name] or "")
        # The priority of a job that was added without one is its creation time.
        if found["priority"] is not None and found["priority"] != found["created_ms"]:
            filled["priority"] = str(found["priority"])
    return {"filled": filled, "left_out": left_out}


def _is_line(name: str, value: str) -> bool:
    return ":" not in name and f"{name}:{value}".strip().splitlines() == [f"{name}:{value}"]


async def locks(view: View) -> dict[str, Any]:
    """Locks with their owners."""
    try:
        return dict(await view.ask("list_locks", match=view.query.get("match"))) | {"has_voters": True}
    except NoVotersError:  # A cluster where no one has wanted locks yet.
        picture = await view.service.board.picture()
        ids = [seen.look.hello.id for seen in picture.nodes if seen.look is not None and seen.look.hello is not None]
        # Of two voters, none may fail.
        return {"locks": [], "total": 0, "has_voters": False, "nodes": ids[: VOTERS if len(ids) >= VOTERS else 1]}


async def schedules(view: View) -> dict[str, Any]:
    """Schedules with their next moments."""
    return dict(await view.ask("list_schedules", cursor=view.query.get("cursor"), limit=PAGE))


async def audit(view: View) -> dict[str, Any]:
    """The newest changes that this gateway made: all, or those that name only queues on which the caller is admin."""
    principal, cluster = view.principal, view.service.cluster_shown
    if not view.may_see_audit():
        view.service.audit_refused(principal, view.address, INTERFACE, "audit", {})
        raise forbidden(principal, "admin")
    lines = [line for line in view.service.audit.newest if line.get("cluster", "") == cluster]
    if not principal.may_everywhere("admin"):
        lines = [line for line in lines if _may_see_line(principal, line)]
    return {"lines": lines}


def _may_see_line(principal: Principal, line: dict[str, Any]) -> bool:
    names = [line[name] for name in NAMES if line.get(name)]
    return bool(names) and all(principal.may("admin", name) for name in names)


PAGES: Final[dict[str, tuple[str, Page]]] = {
    "": ("Overview", overview),
    "queues": ("Queues", queues),
    "queue": ("Queue", queue),
    "jobs": ("Jobs", jobs),
    "job": ("Job", job),
    "dead": ("Dead letters", dead),
    "schedules": ("Schedules", schedules),
    "locks": ("Locks", locks),
    "nodes": ("Nodes", nodes),
    "operations": ("Operations", operations),
    "add": ("Add a job", add),
    "audit": ("Audit", audit),
}
# Entries of the menu, with the role that a caller needs to use them.
MENU: Final = (
    ("", "Overview", "read"),
    ("queues", "Queues", "read"),
    ("jobs", "Jobs", "read"),
    ("dead", "Dead letters", "read"),
    ("schedules", "Schedules", "read"),
    ("locks", "Locks", "read"),
    ("nodes", "Nodes", "read"),
    ("operations", "Operations", "read"),
    ("add", "Add", "produce"),
    ("audit", "Audit", "admin"),
)
