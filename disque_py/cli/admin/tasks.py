"""Tasks of the broker (QPURGE, QMOVE, QREDRIVE, QREBALANCE), started and followed from the command line.

The program starts a task with ASYNC, and the reply is the task's id. Then it repeats QTASK SHOW until the task is over,
and shows a bar. So Ctrl-C ends the bar and not the task, and `disque-admin task` finds the task later.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from disque_py.cli.address import ADDRESS_DEFAULT
from disque_py.client import Address, Task, commands
from disque_py.client.one_node import OneNode

if TYPE_CHECKING:
    from disque_py.client.arguments import Where
    from disque_py.client.request import Request
    from disque_py.event_format import JobStatus

LOOK_EVERY_S: Final = 0.2
# Work that ends within this time needs no bar.
SHOWN_AFTER_S: Final = 0.5
RUNNING: Final = "running"


def count(node: OneNode, queue: str, where: Where, status: JobStatus | None, limit: int | None = None) -> int:
    """Return how many jobs a task concerns, as far as the nodes know before it starts."""
    total = node.run(commands.qlen(queue, where=where, status=status or "pending", cluster=True))
    return total if limit is None else min(total, limit)


def count_failed(node: OneNode, queue: str, where: Where, limit: int | None = None) -> int:
    """Return how many jobs a redrive may change: errored jobs, and pending ones, which may be dead letters."""
    total = count(node, queue, where, "errored") + count(node, queue, where, "pending")
    return total if limit is None else min(total, limit)


def as_object(task: Task) -> dict[str, Any]:
    """Return a task for programs."""
    return {
        "id": task.id,
        "command": task.command,
        "queue": task.queue,
        "state": task.state,
        "jobs": task.jobs,
        "failed": task.failed,
        "nodes": task.nodes,
        "nodes_missing": task.nodes_missing,
        "started_ms": task.started,
    }


def run_task(ctx: click.Context, node: OneNode, request: Request[Task], total: int, done: str, *, detach: bool) -> None:
    """Start a task and follow it to its end. The exit status is 1 if it did not do everything.

    request   the command with `wait=False`
    done      the word for its result, such as "moved"
    """
    task = node.run(request)
    if detach:
        click.echo(task.id)
        return
    follow_task(ctx, node, task.id, total, done)


def follow_task(ctx: click.Context, node: OneNode, task_id: str, total: int | None, done: str) -> None:
    """Show a task's progress until it is over, then its result."""
    console = Console(stderr=True)
    began_s = time.monotonic()
    bar: Progress | None = None
    try:
        while True:
            task = node.run(commands.task(task_id))
            if task is None or task.state != RUNNING:
                break
            if bar is None and console.is_terminal and time.monotonic() - began_s > SHOWN_AFTER_S:
                columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
                bar = Progress(*columns, console=console, transient=True)
                row = bar.add_task(done, total=total or None)
                bar.start()
            if bar is not None:
                bar.update(row, completed=task.jobs + task.failed, total=max(total or 0, task.jobs + task.failed))
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        program = _program_for(node.address)
        raise click.ClickException(
            f"The task goes on. `{program} task wait {task_id}` follows it, `{program} task cancel {task_id}` stops it."
        ) from None
    finally:
        if bar is not None:
            bar.stop()
    if task is None:
        raise click.ClickException(
            f"The node no longer knows task {task_id}, because the node was restarted or an hour has passed"
        )
    click.echo(result_text(task, done))
    if task.state != "done" or task.failed or task.nodes_missing:
        ctx.exit(1)


def _program_for(address: Address) -> str:
    """Return the beginning of a command line for this node. Other nodes don't know its tasks."""
    if address == ADDRESS_DEFAULT:
        return "disque-admin"
    return f"disque-admin -u unix://{address.path}" if address.path else f"disque-admin -u disque://{address}"


def result_text(task: Task, done: str) -> str:
    """Return a task's result as text, with the next step if something is left to do."""
    lines = [f"{_jobs(task.jobs)} {done}"]
    if task.failed:
        lines.append(
            f"{_jobs(task.failed)} left out: a worker had them, or they were moving between nodes. Repeat the command"
        )
    if task.nodes_missing:
        names = " ".join(node[:8] for node in task.nodes_missing)
        lines.append(f"These nodes took no part: {names}. Repeat the command when they are linked")
    if task.state != "done":
        lines.append(f"The task was {task.state}. Finished changes stay")
    return "\n".join(lines)


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"
