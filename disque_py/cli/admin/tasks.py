"""Tasks of the broker (QPURGE, QMOVE, QREDRIVE, QREBALANCE), begun and followed from the command line.

Each is begun with ASYNC, which answers with the task's id. The program then asks QTASK SHOW until the task is over, and
shows a bar. So Ctrl-C ends the bar and not the task, and a second look finds the task again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from disque_py.client import commands
from disque_py.client.one_node import OneNode

LOOK_EVERY_S: Final = 0.2
# Work that is over by then needs no bar.
SHOWN_AFTER_S: Final = 0.5
RUNNING: Final = "running"


@dataclass(slots=True)
class Task:
    """One command that becomes a task.

    done      the word for its result, as "moved"
    command   the command's name, and `names` the queues behind it
    """

    done: str
    command: str
    names: tuple[str, ...]
    where: dict[str, str] = field(default_factory=dict)
    status: str | None = None
    to: str | None = None
    limit: int | None = None
    rate: int | None = None
    zones: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Return the command, which is answered with the task's id."""
        found = [self.command, *self.names, *self._where_words()]
        for word, value in (("STATUS", self.status), ("TO", self.to), ("LIMIT", self.limit), ("RATE", self.rate)):
            if value is not None:
                found += (word, str(value))
        if self.zones:
            found += ("ZONES", *self.zones)
        return [*found, "ASYNC"]

    def _where_words(self) -> list[str]:
        return [word for pair in self.where.items() for word in ("WHERE", *pair)]

    def count(self, node: OneNode, queue: str) -> int:
        """Return how many jobs the task is about, as far as the nodes know before it begins."""
        total = self._length(node, queue, self.status or "pending")
        return total if self.limit is None else min(total, self.limit)

    def count_failed(self, node: OneNode, queue: str) -> int:
        """Return the errored jobs of a queue and, where it has dead letters, its pending ones."""
        total = self._length(node, queue, "errored") + self._length(node, queue, "pending")
        return total if self.limit is None else min(total, self.limit)

    def _length(self, node: OneNode, queue: str, status: str) -> int:
        words = ("QLEN", queue, *self._where_words(), "STATUS", status, "CLUSTER")
        return int(node.run(commands.execute(*words)))


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as QTASK SHOW tells it."""

    id: str
    command: str
    queue: str
    state: str
    jobs: int
    failed: int
    nodes: int
    nodes_missing: list[str]
    started_ms: int | None

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.state == RUNNING

    def as_object(self) -> dict[str, Any]:
        """Return the task for programs."""
        return {name: getattr(self, name) for name in self.__slots__}


def read_task(flat: list[Any]) -> TaskView:
    """Return a task of its pairs; words that are missing are empty."""
    pairs = {bytes(name).decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    return TaskView(
        id=_text(pairs.get("task")),
        command=_text(pairs.get("command")),
        queue=_text(pairs.get("queue")),
        state=_text(pairs.get("state")) or "done",
        jobs=int(pairs.get("jobs") or 0),
        failed=int(pairs.get("failed") or 0),
        nodes=_count(pairs.get("nodes")),
        nodes_missing=[_text(node) for node in pairs.get("nodes-missing") or ()],
        started_ms=pairs.get("started"),
    )


def _text(value: Any) -> str:
    return (
        value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else "" if value is None else str(value)
    )


def _count(value: Any) -> int:
    """Return a number of nodes, told as a number or as their ids."""
    return len(value) if isinstance(value, list) else int(value or 0)


def look_at_task(node: OneNode, task_id: str) -> TaskView | None:
    """Return a task; None if the node does not know it: it is over for an hour, or another node began it."""
    reply = node.run(commands.execute("QTASK", "SHOW", task_id, repeat=True))
    return read_task(reply) if reply else None


def list_tasks(node: OneNode) -> list[TaskView]:
    """Return the tasks that the node began and still knows."""
    return [read_task(flat) for flat in node.run(commands.execute("QTASK", "LIST", repeat=True)) or ()]


def run_task(ctx: click.Context, node: OneNode, task: Task, total: int, *, detach: bool) -> None:
    """Begin a task and follow it to its end; exit status 1 if it did not do everything."""
    task_id = _text(node.run(commands.execute(*task.words())))
    if detach:
        click.echo(task_id)
        return
    follow_task(ctx, node, task_id, total, task.done)


def follow_task(ctx: click.Context, node: OneNode, task_id: str, total: int | None, done: str) -> None:
    """Show a task until it is over, then its result."""
    console = Console(stderr=True)
    began_s = time.monotonic()
    bar: Progress | None = None
    try:
        while True:
            view = look_at_task(node, task_id)
            if view is None or not view.is_running:
                break
            if bar is None and console.is_terminal and time.monotonic() - began_s > SHOWN_AFTER_S:
                columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
                bar = Progress(*columns, console=console, transient=True)
                row = bar.add_task(done, total=total or None)
                bar.start()
            if bar is not None:
                bar.update(row, completed=view.jobs + view.failed, total=max(total or 0, view.jobs + view.failed))
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        raise click.ClickException(
            f"The task goes on. `disque-admin task wait {task_id}` follows it, `disque-admin task cancel {task_id}` "
            "ends it."
        ) from None
    finally:
        if bar is not None:
            bar.stop()
    if view is None:
        raise click.ClickException(f"The node no longer knows task {task_id}. It was started again, or forgot it")
    click.echo(result_text(view, done))
    if view.state != "done" or view.failed or view.nodes_missing:
        ctx.exit(1)


def result_text(view: TaskView, done: str) -> str:
    """Return the end of a task in words, with the next step where something is left."""
    lines = [f"{view.jobs:,} jobs {done}"]
    if view.failed:
        lines.append(
            f"{view.failed:,} jobs left out: a worker has them, or they were changing nodes. Repeat the command"
        )
    if view.nodes_missing:
        names = " ".join(node[:8] for node in view.nodes_missing)
        lines.append(f"Nodes that took no part: {names}. Repeat the command when they are linked")
    if view.state != "done":
        lines.append(f"The task was {view.state}. Changes that were made stay")
    return "\n".join(lines)
