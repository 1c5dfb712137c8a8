"""disque-admin schedule …: list, show, set, pause, resume, delete, run, next.

Nodes share schedules, so any node can answer. The nodes read cron expressions and time zones, and calculate the next
times; this program only prints them. `--json` also prints fields that only a newer broker has.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from disque_py.cli.admin.access import open_node
from disque_py.cli.admin.display import body_text, body_text_whole, print_fields, print_object, print_rows
from disque_py.cli.admin.values import span_text
from disque_py.cli.visible import visible
from disque_py.client import ScheduleInfo, schedule_commands
from disque_py.client.one_node import OneNode
from disque_py.client.protocol import text
from disque_py.client.request import Request

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
NAME = click.argument("name")


@click.group(short_help="Manage schedules, which add jobs regularly.")
def schedule() -> None:
    """Manage schedules, which add jobs at the times of a cron expression, or at a fixed interval."""


@schedule.command("list", short_help="Show the schedules of the cluster.")
@click.argument("pattern", default="*")
@JSON
@click.pass_context
def list_schedules(ctx: click.Context, pattern: str, as_json: bool) -> None:
    """Show the schedules whose names match PATTERN."""
    with open_node(ctx) as node:
        names = node.run(schedule_commands.schedules(pattern))
        known = [info for info in (node.run(schedule_commands.schedule_info(name)) for name in names) if info]
    if as_json:
        for info in known:
            print_object(_object(info))
        return
    rows = [
        (
            info.name,
            _rule(info),
            info.time_zone,
            info.queue,
            "paused" if info.paused else _time(info.next),
            _time(info.last),
            info.fired,
            info.missed,
        )
        for info in known
    ]
    print_rows(
        ("schedule", "when", "zone", "queue", "next (UTC)", "last (UTC)", "fired", "missed"), rows, ("fired", "missed")
    )


@schedule.command()
@NAME
@JSON
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show the schedule NAME, and its next ticks."""
    with open_node(ctx) as node:
        info = node.run(schedule_commands.schedule_info(name))
        ticks = node.run(schedule_commands.next_ticks(name, 5))
    if info is None:
        raise _unknown(name)
    if as_json:
        print_object(_object(info))
        return
    print_fields(
        {
            "schedule": info.name,
            "when": _rule(info),
            "time zone": info.time_zone,
            "missed ticks": f"catch up {info.catchup}",
            "overlap": info.overlap,
            "queue": info.queue,
            "body": body_text(info.body),
            "options": " ".join(info.options),
            "paused": "yes" if info.paused else None,
            "next (UTC)": ", ".join(_time(tick) for tick in ticks),
            "last (UTC)": _time(info.last),
            "last job": info.last_id,
            "fired": info.fired,
            "missed": info.missed,
            "nodes behind": info.behind or None,
        }
    )


@schedule.command("set", short_help="Set a schedule.")
@NAME
@click.argument("queue")
@click.argument("body", default="")
@click.option("--cron", help="A cron expression of five fields, or of six with seconds first.")
@click.option("--every", help="Time between two ticks: 30s, 5m, 2h.")
@click.option("--tz", default="UTC", show_default=True, help="Time zone of the expression.")
@click.option(
    "--catchup",
    type=click.Choice(["last", "all", "none"]),
    default="last",
    show_default=True,
    help="Missed ticks that get their job later.",
)
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip"]),
    default="allow",
    show_default=True,
    help="skip: no job while the previous one is not over.",
)
@click.option("--option", "options", multiple=True, metavar="'WORD VALUE'", help="Option of ADDJOB; may be repeated.")
@click.pass_context
def set_schedule(
    ctx: click.Context,
    name: str,
    queue: str,
    body: str,
    cron: str | None,
    every: str | None,
    tz: str,
    catchup: str,
    overlap: str,
    options: tuple[str, ...],
) -> None:
    """Add a job with BODY to QUEUE at each tick of --cron or --every. An older schedule NAME is replaced.

    For example: disque-admin schedule set nightly reports --cron '30 2 * * *' --tz Europe/Berlin --option 'RETRY 600'
    """
    if (cron is None) == (every is None):
        raise click.UsageError("Give either --cron or --every.")
    when = ["CRON", cron] if cron is not None else ["EVERY", every or ""]
    words = ["SCHEDULE", "SET", name, *when, "TZ", tz, "CATCHUP", catchup, "OVERLAP", overlap, "QUEUE", queue]
    words += ["BODY", body, *(word for option in options for word in option.split())]
    with open_node(ctx) as node:
        node.run(Request(tuple(word.encode("utf-8", "surrogateescape") for word in words), text))
        ticks = node.run(schedule_commands.next_ticks(name, 3))
    click.echo(visible(f"'{name}' is set. Next (UTC): {', '.join(map(_time, ticks)) or 'never'}"))


@schedule.command()
@NAME
@click.pass_context
def pause(ctx: click.Context, name: str) -> None:
    """Stop the schedule NAME until it is resumed."""
    with open_node(ctx) as node:
        _change(node, name, schedule_commands.pause_schedule(name))
    click.echo(visible(f"'{name}' is paused."))


@schedule.command()
@NAME
@click.pass_context
def resume(ctx: click.Context, name: str) -> None:
    """Resume the schedule NAME. Ticks during the pause are skipped."""
    with open_node(ctx) as node:
        _change(node, name, schedule_commands.resume_schedule(name))
        ticks = node.run(schedule_commands.next_ticks(name, 1))
    click.echo(visible(f"'{name}' is resumed. Next (UTC): {', '.join(map(_time, ticks)) or 'never'}"))


@schedule.command()
@NAME
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.pass_context
def delete(ctx: click.Context, name: str, yes: bool) -> None:
    """Delete the schedule NAME. Its jobs stay."""
    if not yes:
        click.confirm(visible(f"Delete the schedule '{name}'?"), abort=True)
    with open_node(ctx) as node:
        _change(node, name, schedule_commands.delete_schedule(name))
    click.echo(visible(f"'{name}' is deleted."))


@schedule.command()
@NAME
@click.pass_context
def run(ctx: click.Context, name: str) -> None:
    """Add a job of the schedule NAME now, in addition to its ticks."""
    with open_node(ctx) as node:
        click.echo(node.run(schedule_commands.run_schedule(name)))


@schedule.command("next", short_help="Show the next ticks.")
@NAME
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="Number of ticks.")
@click.pass_context
def next_ticks(ctx: click.Context, name: str, count: int) -> None:
    """Show the next ticks of the schedule NAME, in UTC."""
    with open_node(ctx) as node:
        ticks = node.run(schedule_commands.next_ticks(name, count))
        if not ticks and node.run(schedule_commands.schedule_info(name)) is None:
            raise _unknown(name)
    for tick in ticks:
        click.echo(_time(tick))


def _change(node: OneNode, name: str, request: Request[bool]) -> None:
    if not node.run(request):
        raise _unknown(name)


def _unknown(name: str) -> click.ClickException:
    return click.ClickException(f"There is no schedule '{name}'.\n`disque-admin schedule list` shows all schedules.")


def _rule(info: ScheduleInfo) -> str:
    return info.cron if info.cron is not None else f"every {span_text(info.every)}" if info.every else ""


def _time(moment: datetime | None) -> str:
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


def _object(info: ScheduleInfo) -> dict[str, Any]:
    values: dict[str, Any] = asdict(info)
    more: dict[str, Any] = values.pop("more")
    values["body"] = body_text_whole(info.body)
    values["every"] = None if info.every is None else info.every.total_seconds()
    for name in ("next", "last"):
        values[name] = None if values[name] is None else values[name].isoformat()
    return values | more
