"""disque-admin task …: list, show, wait, cancel.

A node knows only the tasks that it started itself, until one hour after their end. So these commands must be sent to
the node of the task (`-h`, `-p`). `wait` shows a bar (tasks.py), and Ctrl-C ends the bar and not the task.
"""

from __future__ import annotations

import click

from disque_py.cli.admin.access import open_node
from disque_py.cli.admin.display import print_fields, print_object, print_rows
from disque_py.cli.admin.queue_commands import JSON
from disque_py.cli.admin.tasks import as_object, follow_task
from disque_py.cli.check_journal.report import moment
from disque_py.cli.visible import visible
from disque_py.client import Task, commands

DONE = {"qpurge": "purged", "qmove": "moved", "qredrive": "redriven", "qrebalance": "handed over"}
UNKNOWN = "The node knows no task '{}'. A node knows only tasks that it started itself, until one hour after their end"


@click.group(short_help="Manage tasks: long work on queues.")
def task() -> None:
    """Manage tasks: long work on queues that the nodes do in the background.

    The node that started a task knows it until one hour after its end.
    """


@task.command("list")
@JSON
@click.pass_context
def list_all(ctx: click.Context, as_json: bool) -> None:
    """Show the tasks that this node started."""
    with open_node(ctx) as node:
        tasks = node.run(commands.tasks())
    if as_json:
        for view in tasks:
            print_object(as_object(view))
        return
    columns = ("task", "command", "queue", "state", "jobs", "failed", "started (UTC)")
    rows = [
        (view.id, view.command, view.queue, view.state, f"{view.jobs:,}", f"{view.failed:,}", _started(view))
        for view in tasks
    ]
    print_rows(columns, rows, right=("jobs", "failed"))


@task.command()
@click.argument("task_id", metavar="TASK")
@JSON
@click.pass_context
def show(ctx: click.Context, task_id: str, as_json: bool) -> None:
    """Show one task."""
    with open_node(ctx) as node:
        view = node.run(commands.task(task_id))
    if view is None:
        raise click.ClickException(UNKNOWN.format(task_id))
    if as_json:
        print_object(as_object(view))
        return
    print_fields(
        {
            "task": view.id,
            "command": view.command,
            "queue": view.queue,
            "state": view.state,
            "started (UTC)": _started(view),
            "jobs": f"{view.jobs:,}",
            "failed": f"{view.failed:,}",
            "nodes": view.nodes or None,
            "nodes missing": " ".join(view.nodes_missing),
        }
    )


@task.command()
@click.argument("task_id", metavar="TASK")
@click.pass_context
def wait(ctx: click.Context, task_id: str) -> None:
    """Wait until a task is over, with a progress bar. Exit status 1 if the task did not do everything."""
    with open_node(ctx) as node:
        view = node.run(commands.task(task_id))
        if view is None:
            raise click.ClickException(UNKNOWN.format(task_id))
        follow_task(ctx, node, task_id, None, DONE.get(view.command.split(" ")[0].lower(), "changed"))


@task.command()
@click.argument("task_id", metavar="TASK")
@click.pass_context
def cancel(ctx: click.Context, task_id: str) -> None:
    """Stop a task. Its finished changes stay."""
    with open_node(ctx) as node:
        if not node.run(commands.cancel_task(task_id)):
            raise click.ClickException(f"No task '{task_id}' runs on this node.")
    click.echo(visible(f"{task_id}: canceled. Finished changes stay"))


def _started(view: Task) -> str:
    return "" if view.started is None else moment(view.started)
