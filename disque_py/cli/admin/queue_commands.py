"""disque-admin queue …: list, show, set, reset, pause, resume, purge, move, redrive, rebalance.

Every command concerns the queue on all nodes. Figures come from QSTAT with CLUSTER. Settings and pauses are sent to one
node, which passes them on. If nodes have not confirmed a setting yet, the program prints their number. `purge`, `move`,
`redrive` and `rebalance` start a task and follow it (tasks.py). `purge` can't be undone, so it counts the jobs first
and asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click
from click.shell_completion import CompletionItem

from disque_py.cli.admin.access import advised, complete_queue, open_node
from disque_py.cli.admin.display import print_fields, print_object, print_rows
from disque_py.cli.admin.tasks import count, count_failed, run_task
from disque_py.cli.admin.values import pairs_of, settings_of_words
from disque_py.cli.counting import counted
from disque_py.cli.queue_display import age_text, console_for, footer, queue_table, settings_text
from disque_py.cli.queue_view import DEFAULTS, OldServerError, QueueWatch, all_settings, changed_settings
from disque_py.cli.shell.suggestions import closest
from disque_py.cli.visible import visible
from disque_py.client import QueueSettings, ReplyError, commands
from disque_py.client.arguments import PauseState
from disque_py.client.one_node import OneNode
from disque_py.event_format import JobStatus

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
QUEUE = click.argument("name", shell_complete=complete_queue)
WHERE = click.option(
    "--where", multiple=True, metavar="NAME=VALUE", help="Only jobs with this metadata; may be repeated."
)
LIMIT = click.option("--limit", type=click.IntRange(1), help="The most jobs.")
RATE = click.option("--rate", type=click.IntRange(1), help="The most jobs per second.")
DETACH = click.option("--detach", is_flag=True, help="Print the task's id, and don't wait for the task.")
# QPURGE and QMOVE do not touch jobs that a worker has, or that are over.
STATUS = click.option(
    "--status",
    type=click.Choice(["pending", "invisible", "errored"]),
    help="Only jobs of this status; by default pending ones.",
)
YES = click.option("--yes", is_flag=True, help="Don't ask.")


@click.group()
def queue() -> None:
    """Show and change queues: figures, settings, pauses and jobs."""


@queue.command("list", short_help="Show the queues of the whole cluster.")
@click.argument("pattern", default="*")
@JSON
@click.pass_context
def list_queues(ctx: click.Context, pattern: str, as_json: bool) -> None:
    """Show the queues of the whole cluster whose names match PATTERN, the longest first.

    `disque-cli --queues` shows the same table and refreshes it.
    """
    try:
        with QueueWatch(ctx.obj) as watching:
            look = watching.look(pattern)
    except OldServerError as error:
        raise click.ClickException(f"{error}\nThis server can't report figures of the whole cluster.") from error
    if as_json:
        for row in look.rows:
            print_object(row.as_object())
        return
    console = console_for()
    console.print(queue_table(look, width=console.size.width))
    console.print(footer(look))


@queue.command(short_help="Show figures and settings of a queue.")
@QUEUE
@JSON
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show figures and settings of the queue NAME."""
    with open_node(ctx) as node:
        stat = node.run(commands.qstat(name, cluster=True))
        settings = node.run(commands.queue_settings(name))
    if stat is None and settings is None:
        raise click.ClickException(f"No node knows the queue '{name}'.\n`disque-admin queue list` shows all queues.")
    if as_json:
        figures = None if stat is None else {key: value for key, value in asdict(stat).items() if key != "name"}
        print_object({"queue": name, "figures": figures, "settings": _settings_object(settings)})
        return
    fields: dict[str, object] = {"queue": name, "pending": 0}
    if stat is not None:
        fields |= {
            "pending": f"{stat.len:,}",
            "oldest": None if stat.oldest_ms is None else age_text(stat.oldest_ms),
            "running": f"{stat.running:,}",
            "invisible": f"{stat.invisible:,}",
            "errored": f"{stat.errored:,}",
            "consumers waiting": stat.blocked,
            "jobs in, out": f"{stat.jobs_in:,}, {stat.jobs_out:,}",
            "paused": stat.pause,
            "nodes": stat.nodes,
            "nodes missing": " ".join(stat.nodes_missing),
        }
    print_fields(fields)
    click.echo("\nsettings")
    changed = changed_settings(settings)
    shown = DEFAULTS if settings is None else all_settings(settings)
    print_rows(
        ("", "", ""),
        [(f"  {field}", value or "-", "" if field in changed else "default") for field, value in shown.items()],
        header=False,
    )
    if settings is not None and settings.behind:
        click.echo(
            f"Nodes that have not confirmed the newest settings: {settings.behind}. They were not linked, or are older"
        )


def _settings_object(settings: QueueSettings | None) -> dict[str, object] | None:
    if settings is None:
        return None
    return {**all_settings(settings), "paused": settings.paused, "behind": settings.behind}


def _complete_setting(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    if "=" in begun:
        return []
    return [CompletionItem(f"{name}=") for name in SETTING_NAMES if name.startswith(begun)]


SETTING_NAMES = tuple(
    name.replace("_", "-")
    for name in QueueSettings.__dataclass_fields__
    if name not in ("paused", "version", "behind", "more")
)


@queue.command("set", short_help="Set settings of a queue, on all nodes.")
@QUEUE
@click.argument("settings", nargs=-1, required=True, shell_complete=_complete_setting)
@click.pass_context
def set_settings(ctx: click.Context, name: str, settings: Sequence[str]) -> None:
    """Set SETTINGS (field=value …) of the queue NAME, on all nodes.

    For example: attempts=5 backoff=exponential:1000:60000 dead-letter=failed. An empty value resets a setting to its
    default.
    """
    words = settings_of_words(settings)
    with open_node(ctx) as node:
        try:
            node.run(commands.execute("QUEUE", "SET", name, *words))
        except ReplyError as error:
            raise click.ClickException(advised(error) + _meant(error, words[::2])) from error
        _tell_settings(node, name)


def _meant(error: ReplyError, names: Sequence[str]) -> str:
    """Return a question that names the setting most like a misspelled one; empty if none is like it."""
    if "unknown queue setting" not in str(error):
        return ""
    misspelled = next((name for name in names if name not in SETTING_NAMES), "")
    found = closest(misspelled, SETTING_NAMES)
    return f"\nDid you mean '{found}'?" if found else ""


@queue.command(short_help="Reset a queue's settings to their defaults.")
@QUEUE
@click.pass_context
def reset(ctx: click.Context, name: str) -> None:
    """Reset all settings of the queue NAME to their defaults. A pause stays."""
    with open_node(ctx) as node:
        before = changed_settings(node.run(commands.queue_settings(name)))
        node.run(commands.reset_queue(name))
    click.echo(visible(f"{name}: all defaults" + (f", was: {settings_text(before)}" if before else "")))


def _tell_settings(node: OneNode, name: str) -> None:
    settings = node.run(commands.queue_settings(name))
    click.echo(visible(f"{name}: {settings_text(changed_settings(settings)) or 'all defaults'}"))
    if settings is not None and settings.behind:
        click.echo(
            f"Nodes that have not confirmed it yet: {settings.behind}. They will get it when they are linked", err=True
        )


@queue.command(short_help="Pause a queue on all nodes.")
@QUEUE
@click.option("--only", type=click.Choice(["in", "out"]), help="Pause only producers (in) or consumers (out).")
@click.pass_context
def pause(ctx: click.Context, name: str, only: PauseState | None) -> None:
    """Pause the queue NAME on all nodes: no jobs are added, and none are delivered."""
    with open_node(ctx) as node:
        state = node.run(commands.pause(name, only or "all", bcast=True))
    ways = "in and out" if state == "all" else f"{state} only"
    click.echo(visible(f"{name} is paused, {ways}. `disque-admin queue resume {name}` ends it"))


@queue.command(short_help="End the pause of a queue.")
@QUEUE
@click.pass_context
def resume(ctx: click.Context, name: str) -> None:
    """End the pause of the queue NAME on all nodes."""
    with open_node(ctx) as node:
        node.run(commands.pause(name, "none", bcast=True))
    click.echo(visible(f"{name}: not paused"))


@queue.command(short_help="Cancel the jobs of a queue.")
@QUEUE
@WHERE
@STATUS
@YES
@DETACH
@click.pass_context
def purge(
    ctx: click.Context, name: str, where: Sequence[str], status: JobStatus | None, yes: bool, detach: bool
) -> None:
    """Cancel the jobs of the queue NAME. This can't be undone."""
    pairs = pairs_of(where, "--where")
    with open_node(ctx) as node:
        total = count(node, name, pairs, status)
        if not yes:
            kind = counted(total, f"{status or 'pending'} job") + (" with this metadata" if pairs else "")
            click.confirm(visible(f"Cancel {kind} of '{name}'? They can't be brought back"), abort=True)
        request = commands.purge(name, where=pairs, status=status, wait=False)
        run_task(ctx, node, request, total, "purged", detach=detach)


@queue.command(short_help="Move the jobs of a queue to another one.")
@click.argument("source", metavar="FROM", shell_complete=complete_queue)
@click.argument("to", shell_complete=complete_queue)
@WHERE
@STATUS
@LIMIT
@RATE
@DETACH
@click.pass_context
def move(
    ctx: click.Context,
    source: str,
    to: str,
    where: Sequence[str],
    status: JobStatus | None,
    limit: int | None,
    rate: int | None,
    detach: bool,
) -> None:
    """Move the jobs of the queue FROM to the queue TO. They keep their ids, priorities and attempts."""
    pairs = pairs_of(where, "--where")
    request = commands.move(source, to, where=pairs, status=status, limit=limit, rate=rate, wait=False)
    with open_node(ctx) as node:
        run_task(ctx, node, request, count(node, source, pairs, status, limit), "moved", detach=detach)


@queue.command(short_help="Queue failed jobs again with new attempts.")
@QUEUE
@WHERE
@click.option(
    "--to",
    shell_complete=complete_queue,
    help="The queue to move them to. By default dead letters go back to their queues.",
)
@LIMIT
@RATE
@DETACH
@click.pass_context
def redrive(
    ctx: click.Context,
    name: str,
    where: Sequence[str],
    to: str | None,
    limit: int | None,
    rate: int | None,
    detach: bool,
) -> None:
    """Queue the failed jobs of NAME again with new attempts: errored jobs there, dead letters where they came from."""
    pairs = pairs_of(where, "--where")
    request = commands.redrive(name, where=pairs, to=to, limit=limit, rate=rate, wait=False)
    with open_node(ctx) as node:
        run_task(ctx, node, request, count_failed(node, name, pairs, limit), "redriven", detach=detach)


@queue.command(short_help="Spread pending jobs evenly over the nodes.")
@QUEUE
@click.option(
    "--zone", "zones", multiple=True, metavar="[DATACENTER/]ZONE", help="Use only nodes of this zone; may be repeated."
)
@DETACH
@click.pass_context
def rebalance(ctx: click.Context, name: str, zones: Sequence[str], detach: bool) -> None:
    """Spread the pending jobs of the queue NAME evenly over the nodes."""
    request = commands.rebalance(name, zones=zones or None, wait=False)
    with open_node(ctx) as node:
        run_task(ctx, node, request, count(node, name, {}, None), "handed over", detach=detach)
