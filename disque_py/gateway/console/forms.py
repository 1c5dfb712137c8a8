"""Forms: the actions of a page, as operations of the table.

`do` is one operation. `bulk` is one operation on selected jobs, or on all that match a filter. Before a bulk operation,
a page shows the number of jobs. The number is counted again on execution, and the user has to type a number above a
hundred.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from disque_py.gateway.console.pages import Filter, View
from disque_py.gateway.fields import Argument, Octets, Pairs, Text, Texts, Whole, pairs_of
from disque_py.gateway.operations import BY_NAME
from disque_py.gateway.problems import RefusedError

TYPE_ABOVE: Final = 100
AT_ONCE: Final = 50
# Operations that pages have buttons for.
OFFERED: Final = frozenset(
    (
        "enqueue", "cancel", "promote", "reschedule", "requeue", "move_job", "pause", "resume", "purge_queue", "move",
        "redrive", "put_queue", "stop_operation", "run_schedule", "pause_schedule", "resume_schedule",
        "delete_schedule",
    )
)  # fmt: skip
# Bulk work: its buttons, and the operation on each job, or on all jobs of a queue.
BULK: Final = {"requeue": "Retry", "cancel": "Cancel", "delete": "Delete", "move": "Move"}
# An errored job is deleted by canceling it. So its copies go on all nodes, even on those that can't be reached now.
BULK_OPERATIONS: Final = {name: "cancel" if name == "delete" else name for name in BULK}
# The operation on a single job, if it has another name.
SINGLE_OPERATIONS: Final = {"move": "move_job"}


def form_args(name: str, lists: dict[str, list[str]]) -> dict[str, Any]:
    """Return the checked arguments of an operation from the fields of a form. Empty fields are left out.

    The form of settings has all of them, each with its value on the page in `was_<name>`. Settings that the user did
    not change are left out. Another user may have changed them since, and the queue of dead letters needs its own role.

    Raises RefusedError.
    """
    operation = BY_NAME.get(name)
    if operation is None or name not in OFFERED:
        raise RefusedError("NOTFOUND", "there is no such action")
    if name == "enqueue" and lists.get("encoding") == ["base64"]:
        lists = {**lists, "body_base64": lists.get("body", [""]), "body": []}
    args: dict[str, Any] = {}
    for argument in operation.arguments:
        texts = [text for text in lists.get(argument.name, []) if text]
        is_setting = name == "put_queue" and argument.place == "body"
        was = [text for text in lists.get(f"was_{argument.name}", []) if text] if is_setting else []
        if was and was == texts:
            continue
        if was and not texts and type(argument.kind) in _EMPTY:  # The user has emptied a setting.
            args[argument.name] = _EMPTY[type(argument.kind)]
            continue
        if not texts and not _is_empty_body(name, argument.name, lists):
            continue
        args[argument.name] = _value(argument, texts or [""])
    for argument in operation.arguments:
        if argument.required and argument.name not in args:
            raise RefusedError("ERR", f"{argument.name} is missing")
    return args


# The values of emptied settings, by kind.
_EMPTY: Final[dict[type, Any]] = {Whole: 0, Text: "", Texts: []}


def _is_empty_body(operation: str, field: str, lists: dict[str, list[str]]) -> bool:
    """Return whether this field is the body of a new job, which may be empty."""
    return operation == "enqueue" and field == ("body_base64" if "body_base64" in lists else "body")


def _value(argument: Argument, texts: list[str]) -> Any:
    kind = argument.kind
    if isinstance(kind, Pairs):
        lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
        return kind.read(argument.name, pairs_of(kind, argument.name, lines))
    if isinstance(kind, Texts):
        return kind.read(argument.name, [part.strip() for text in texts for part in text.split(",") if part.strip()])
    if isinstance(kind, Octets):
        return kind.read(argument.name, texts[0])
    return kind.read_text(argument.name, texts[0])


@dataclass(slots=True)
class Bulk:
    """Work on many jobs, before it is confirmed.

    action   one of BULK
    filter   the filter of the jobs
    count    the number of jobs
    ids      the selected jobs; empty: all jobs that match
    """

    action: str
    filter: Filter
    to: str
    ids: list[str]
    count: int

    @property
    def must_be_typed(self) -> bool:
        """Whether the user has to type the number."""
        return self.count > TYPE_ABOVE


async def bulk_of(view: View) -> Bulk:
    """Return the work of a form on the page of jobs, with the number of jobs now. Raises RefusedError."""
    query, lists = view.query, view.lists
    action, scope = query.get("do", ""), query.get("scope", "selected")
    if action not in BULK:
        raise RefusedError("NOTFOUND", "there is no such action")
    found = Filter.of(view)
    to = query.get("to", "")
    if action == "move" and not to:
        raise RefusedError("ERR", "move needs the name of the other queue")
    if scope == "selected":
        ids = lists.get("id", [])
        if not ids:
            raise RefusedError("ERR", "no job is selected")
        return Bulk(action, found, to, ids, len(ids))
    if not found.is_search:
        depth = await view.ask("depth", queue=found.queue, where=found.where)
        return Bulk(action, found, to, [], depth[found.status])
    searched = await found.jobs(view, None, 1)
    if not searched["is_complete"]:
        raise RefusedError(
            "CONFIRM", "not all jobs could be searched, because of search-max or a node that does not answer"
        )
    return Bulk(action, found, to, [], searched["matching"])


def check_number(bulk: Bulk, typed: str, counted: str) -> None:
    """Refuse work whose number was not confirmed, or has grown since the page showed it. Raises RefusedError."""
    if counted != str(bulk.count):
        raise RefusedError("CONFIRM", f"the number has changed: {bulk.count} jobs match now")
    if bulk.must_be_typed and typed.replace(" ", "").replace("\u202f", "") != str(bulk.count):
        raise RefusedError("CONFIRM", f"type the number {bulk.count} to confirm")


async def execute_bulk(view: View, bulk: Bulk) -> str:
    """Do the work. Return a sentence about it. Raises RefusedError."""
    operation = BULK_OPERATIONS[bulk.action]
    if not bulk.ids:
        return f"Operation {(await _change_all(view, bulk, operation))['id']} has started."
    single = SINGLE_OPERATIONS.get(operation, operation)
    more = {"to": bulk.to} if operation == "move" else {}
    changed, failed = 0, 0
    for start in range(0, len(bulk.ids), AT_ONCE):
        part = bulk.ids[start : start + AT_ONCE]
        results = await asyncio.gather(
            *(view.ask(single, id=job_id, **more) for job_id in part), return_exceptions=True
        )
        for result in results:
            if isinstance(result, RefusedError) and result.code == "NOPERM":
                raise result
            if isinstance(result, BaseException):
                failed += 1
            else:
                changed += result["changed"]
    rest = f" {failed} failed." if failed else ""
    return f"{changed} of {len(bulk.ids)} jobs changed.{rest}"


async def _change_all(view: View, bulk: Bulk, operation: str) -> Any:
    """Change all jobs that match: with one command if the nodes support the filter, else with a command per job."""
    found = bulk.filter
    args: dict[str, Any] = {"queue": found.queue, "where": found.where}
    more = {"to": bulk.to} if operation == "move" else {}
    if not found.is_search and operation == "move":
        return await view.ask("move", **args, **more, status=found.status)
    if not found.is_search and operation == "cancel":
        return await view.ask("purge_queue", **args, status=found.status, confirm=found.queue)
    if not found.is_search and found.status == "errored":
        return await view.ask("redrive", **args)
    # The number of jobs changes while the broker works, so only the number of a search is checked.
    expected = bulk.count if found.is_search else None
    return await view.ask("change_jobs", **found.args, **more, action=operation, expected=expected)
