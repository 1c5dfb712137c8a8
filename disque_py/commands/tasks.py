"""QPURGE, QMOVE, QREDRIVE, QREBALANCE, QTASK: work on the jobs of a queue, on all nodes (core/tasks.py).

The client waits for the end of its task; with ASYNC it gets the id of the task immediately. A client that hangs up does
not end its task. Spec MV5, MV8, ZN7.
"""

from __future__ import annotations

from typing import Final

from disque_py.commands.options import between
from disque_py.commands.subcommands import Form, run_form, syntax_error, text_of
from disque_py.commands.where import read_pair
from disque_py.core import incremental, task_state, tasks
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.filters import Filter
from disque_py.core.task_state import STATUSES, Task, Work
from disque_py.core.tasks import LIMIT_MAX, RATE_MAX
from disque_py.core.users import NO_NAME, may_name
from disque_py.core.versions import FLOWS, refuse_older
from disque_py.core.zones import Zone, zone_of
from disque_py.resp.replies import array, bulk, bulk_array, integer, nil_array, simple

STATUS_ERROR: Final = "ERR STATUS must be invisible, pending or errored"
LIMIT_ERROR: Final = f"ERR LIMIT must be a number from 1 to {LIMIT_MAX}"
RATE_ERROR: Final = f"ERR RATE must be a number from 1 to {RATE_MAX}"
SAME_ERROR: Final = "ERR the queues are the same"
NO_ZONE: Final = "ERR Unknown zone {}"
# Bytes of a wrong word that are quoted.
WORD_BYTES_MAX: Final = 64

QPURGE_WORDS: Final = frozenset((b"where", b"status"))
QMOVE_WORDS: Final = QPURGE_WORDS | {b"limit", b"rate"}
QREDRIVE_WORDS: Final = frozenset((b"where", b"to", b"limit", b"rate"))


def qpurge(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QPURGE queue [WHERE name value ...] [STATUS s] [ASYNC] → pairs about the task, or its id."""
    return _begin(broker, client, argv, task_state.PURGE, b"", 2, QPURGE_WORDS)


def qmove(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QMOVE from to [WHERE name value ...] [STATUS s] [LIMIT n] [RATE n] [ASYNC] → pairs about the task, or its id."""
    return _begin(broker, client, argv, task_state.MOVE, argv[2], 3, QMOVE_WORDS)


def qredrive(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QREDRIVE queue [WHERE name value ...] [TO queue] [LIMIT n] [RATE n] [ASYNC] → pairs about the task, or its id."""
    return _begin(broker, client, argv, task_state.REDRIVE, b"", 2, QREDRIVE_WORDS)


def qrebalance(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QREBALANCE queue [ZONES zone ...] [ASYNC] → pairs about the task, or its id.

    A zone is named as in `zone`, or as `datacenter/zone`.
    """
    end = len(argv)
    is_async = end > 2 and argv[-1].lower() == b"async"
    if is_async:
        end -= 1
    names = argv[3:end]
    if end > 2 and (argv[2].lower() != b"zones" or not names):
        raise syntax_error(argv[2])
    refuse_older(broker, FLOWS)
    work = Work(task_state.REBALANCE, argv[1], None, task_state.PENDING, b"")
    work.zones = _zones_of(broker, names)
    if is_async:
        return simple(tasks.begin(broker, None, work).id)
    return incremental.begin(broker, client, _finished(broker, client, tasks.begin(broker, client, work)))


def _zones_of(broker: Broker, names: list[bytes]) -> tuple[Zone, ...]:
    """Return the zones with these names. CommandError for a name that no node has."""
    found: dict[Zone, None] = {}
    members = [broker.me, *broker.members()]
    for name in names:
        word = name.decode("utf-8", "surrogateescape")
        named = [node for node in members if word in (node.zone, f"{node.datacenter}/{node.zone}")]
        if not named:
            raise CommandError(NO_ZONE.format(text_of(name[:WORD_BYTES_MAX])))
        found |= dict.fromkeys(map(zone_of, named))
    return tuple(found)


def _begin(
    broker: Broker, client: Client, argv: list[bytes], command: int, to: bytes, at: int, words: frozenset[bytes]
) -> bytes | None:
    pairs: dict[bytes, bytes] = {}
    status = task_state.PENDING
    limit = rate = 0
    end = len(argv)
    is_async = end > at and argv[-1].lower() == b"async"
    if is_async and end - at >= 2 and argv[-2].lower() in words and _is_complete(argv, at, end - 2, words):
        is_async = False  # It is the value of the option before it.
    if is_async:
        end -= 1
    while at < end:
        word = argv[at].lower()
        if word not in words:
            raise syntax_error(argv[at])
        if word == b"where":
            read_pair(pairs, argv[:end], at)
            at += 3
            continue
        value = argv[at + 1] if at + 1 < end else None
        if word == b"status":
            if value is None or value.lower() not in STATUSES:
                raise CommandError(STATUS_ERROR)
            status = value.lower()
        elif value is None:
            raise syntax_error(argv[at])
        elif word == b"limit":
            limit = between(value, 1, LIMIT_MAX, LIMIT_ERROR)
        elif word == b"rate":
            rate = between(value, 1, RATE_MAX, RATE_ERROR)
        else:
            to = value
        at += 2
    if command == task_state.MOVE and to == argv[1]:
        raise CommandError(SAME_ERROR)
    refuse_older(broker)
    work = Work(command, argv[1], Filter(pairs) if pairs else None, status, to)
    work.limit = limit
    work.rate = rate
    work.is_ordered = work.is_ordered or limit > 0 or rate > 0
    if is_async:
        return simple(tasks.begin(broker, None, work).id)
    return incremental.begin(broker, client, _finished(broker, client, tasks.begin(broker, client, work)))


def _is_complete(argv: list[bytes], at: int, end: int, words: frozenset[bytes]) -> bool:
    """Return whether the words from `at` to before `end` are whole options."""
    while at < end:
        at += 3 if argv[at].lower() == b"where" else 2
    return at == end


def _finished(broker: Broker, client: Client, task: Task) -> incremental.Steps:
    yield from tasks.wait(broker, client, task)
    return array(_result(broker, task))


def _result(broker: Broker, task: Task) -> list[bytes]:
    lost = task.lost()
    fields = (
        ("task", bulk(task.id)),
        ("jobs", integer(task.changed)),
        ("failed", integer(task.failed)),
        ("nodes", integer(sum([not helper.is_lost for helper in task.helpers.values()]))),
        ("nodes-missing", bulk_array(broker.sets.names(lost))),
    )
    return [part for name, value in fields for part in (bulk(name), value)]


def qtask(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QTASK LIST | SHOW id | CANCEL id: the tasks that were begun on this node."""
    return run_form(FORMS, broker, client, argv)


def _list(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """LIST: tasks that run, or were over within the last hour, oldest first."""
    return array([_shown(broker, task) for task in tasks.known(broker) if _is_visible(client, task)])


def _show(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """SHOW id: pairs, or nil."""
    task = tasks.find(broker, argv[2])
    if task is None:
        return nil_array(client.protocol)
    _refuse_hidden(client, task)
    return _shown(broker, task)


def _cancel(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """CANCEL id: 1 if the task ran. Finished changes stay."""
    task = tasks.find(broker, argv[2])
    if task is not None:
        _refuse_hidden(client, task)
    return integer(int(tasks.cancel(broker, argv[2])))


def _is_visible(client: Client, task: Task) -> bool:
    """Return whether a client may use the queues of a task."""
    return may_name(client, task.work.queue) and (not task.work.to or may_name(client, task.work.to))


def _refuse_hidden(client: Client, task: Task) -> None:
    if not _is_visible(client, task):
        raise CommandError(NO_NAME)


def _shown(broker: Broker, task: Task) -> bytes:
    fields = (
        ("command", bulk(task_state.COMMAND_NAMES[task.work.command])),
        ("queue", bulk(task.work.queue)),
        ("state", bulk(task.state_name)),
        ("started", integer(task.started_ms)),
    )
    return array([*_result(broker, task), *[part for name, value in fields for part in (bulk(name), value)]])


FORMS: Final = {
    b"list": Form(_list, 2, 2),
    b"show": Form(_show, 3, 3),
    b"cancel": Form(_cancel, 3, 3),
}
