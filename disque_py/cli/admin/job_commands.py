"""disque-admin job …: add, show, peek, cancel, retry, promote, reschedule, move, wait.

Each command becomes a command of the broker, which is sent to one node. This node asks the others if need be, except
for `retry`, which needs a node that has the job. A command on several jobs prints how many it changed, and its exit
status is 1 if there are others. Ids, bodies and errors are printed without control characters (visible.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import timedelta

import click

from disque_py.cli.admin.access import complete_queue, open_node
from disque_py.cli.admin.display import (
    body_text,
    job_fields,
    job_object,
    pairs_text,
    print_fields,
    print_object,
    print_rows,
)
from disque_py.cli.admin.queue_commands import JSON, WHERE
from disque_py.cli.admin.values import pairs_of, read_span
from disque_py.cli.counting import counted_of
from disque_py.cli.visible import visible
from disque_py.client import Outcome, ReplyError, commands
from disque_py.client.one_node import OneNode
from disque_py.client.waiting import Waiting, is_older, outcome_of
from disque_py.event_format import JOB_STATUSES, JobStatus

ID = click.argument("job_id", metavar="ID")
IDS = click.argument("ids", metavar="ID…", nargs=-1, required=True)


@click.group()
def job() -> None:
    """Manage single jobs."""


@job.command()
@click.argument("queue", shell_complete=complete_queue)
@click.argument("body")
@click.option("--delay", callback=read_span, help="Queue the job after this time: 30s, 5m.")
@click.option(
    "--retry", callback=read_span, help="Deliver the job again after this time without an ack; 0: at most once."
)
@click.option("--ttl", callback=read_span, help="Delete the job after this time, even if it is not done.")
@click.option("--attempts", type=click.IntRange(0), help="Deliveries before the job is errored; 0: no limit.")
@click.option("--backoff", help="Delay after a failure, such as exponential:1000:60000:20.")
@click.option("--priority", type=int, help="Lower numbers are served first.")
@click.option("--meta", multiple=True, metavar="NAME=VALUE", help="Metadata; may be repeated.")
@click.option("--key", help="Add only one job per queue and key.")
@click.option("--replicate", type=click.IntRange(1), help="Number of copies.")
@click.pass_context
def add(
    ctx: click.Context,
    queue: str,
    body: str,
    delay: timedelta | None,
    retry: timedelta | None,
    ttl: timedelta | None,
    attempts: int | None,
    backoff: str | None,
    priority: int | None,
    meta: Sequence[str],
    key: str | None,
    replicate: int | None,
) -> None:
    """Add a job with BODY to QUEUE, and print its id. If BODY is -, it is read from standard input.

    Without an option the job gets the setting of its queue, or else the default of ADDJOB.
    """
    if body == "-" and sys.stdin is None:
        raise click.ClickException("There is no standard input to read the body from.")
    content = sys.stdin.buffer.read() if body == "-" else body.encode("utf-8", "surrogateescape")
    request = commands.add_job(
        queue,
        content,
        delay=delay,
        retry=retry,
        ttl=ttl,
        attempts=attempts,
        backoff=backoff,
        priority=priority,
        meta=pairs_of(meta, "--meta"),
        key=key,
        replicate=replicate,
    )
    with open_node(ctx) as node:
        click.echo(node.run(request))


@job.command()
@ID
@JSON
@click.pass_context
def show(ctx: click.Context, job_id: str, as_json: bool) -> None:
    """Show a job. Any node of the cluster may have it."""
    with open_node(ctx) as node:
        info = node.run(commands.show(job_id, cluster=True))
    if info is None:
        raise click.ClickException(
            f"No linked node has the job {job_id}.\nIt was acknowledged or its TTL is over: "
            f"`disque-admin job wait {job_id}` prints its end while nodes remember it; "
            "`disque-cli events --follow` and disque-query show the past of jobs."
        )
    if as_json:
        print_object(job_object(info))
    else:
        print_fields(job_fields(info))


@job.command(short_help="Show jobs of a queue without taking them.")
@click.argument("queue", shell_complete=complete_queue)
@click.option(
    "-n",
    "count",
    type=int,
    default=10,
    show_default=True,
    help="Number of jobs; a negative number counts from the end.",
)
@click.option("--status", type=click.Choice(JOB_STATUSES), help="Only jobs of this status; by default pending ones.")
@WHERE
@JSON
@click.pass_context
def peek(
    ctx: click.Context, queue: str, count: int, status: JobStatus | None, where: Sequence[str], as_json: bool
) -> None:
    """Show the first jobs of QUEUE in the whole cluster. They stay in the queue."""
    pairs = pairs_of(where, "--where")
    with open_node(ctx) as node:
        jobs = node.run(commands.qpeek(queue, count, where=pairs, status=status, withmeta=True, cluster=True))
    if as_json:
        for each in jobs:
            print_object({name: value for name, value in job_object(each).items() if value not in (None, {})})
        return
    if not jobs:
        click.echo(visible(f"No {status or 'pending'} jobs in '{queue}'; --status shows others"), err=True)
        return
    print_rows(("id", "meta", "body"), [(each.id, pairs_text(each.meta), body_text(each.body)) for each in jobs])


@job.command(short_help="Cancel jobs, on all nodes.")
@IDS
@click.pass_context
def cancel(ctx: click.Context, ids: Sequence[str]) -> None:
    """Cancel jobs, on all nodes. The worker of a running job is told. Exit status 1 if a job was over or unknown."""
    with open_node(ctx) as node:
        count = node.run(commands.cancel(*ids))
    click.echo(
        f"{counted_of(count, len(ids), 'job')} canceled"
        + ("" if count == len(ids) else "; the others were over, or unknown")
    )
    if count < len(ids):
        ctx.exit(1)


@job.command()
@IDS
@click.pass_context
def retry(ctx: click.Context, ids: Sequence[str]) -> None:
    """Queue jobs now. An errored job gets new attempts. Exit status 1 if a job was not queued."""
    count = 0
    with open_node(ctx) as node:
        for each in ids:
            count += node.run(commands.enqueue(each))
    click.echo(f"{counted_of(count, len(ids), 'job')} queued")
    if count < len(ids):
        click.echo(
            "The others are already queued, are over, or exist only on other nodes: see `disque-admin job show`",
            err=True,
        )
        ctx.exit(1)


@job.command()
@IDS
@click.pass_context
def promote(ctx: click.Context, ids: Sequence[str]) -> None:
    """End the delay of jobs, so that they are pending. Exit status 1 if a job had no delay."""
    with open_node(ctx) as node:
        count = node.run(commands.promote(*ids))
    click.echo(
        f"{counted_of(count, len(ids), 'job', 'is')} pending now"
        + ("" if count == len(ids) else "; the others had no delay")
    )
    if count < len(ids):
        ctx.exit(1)


@job.command()
@ID
@click.option("--delay", callback=read_span, help="Make the job pending after this time: 30s, 5m; 0: immediately.")
@click.option("--priority", type=int, help="Lower numbers are served first.")
@click.pass_context
def reschedule(ctx: click.Context, job_id: str, delay: timedelta | None, priority: int | None) -> None:
    """Give a waiting job another delay or priority. Exit status 1 if it is running, errored or over."""
    if delay is None and priority is None:
        raise click.UsageError("give --delay, --priority or both")
    with open_node(ctx) as node:
        is_changed = node.run(commands.reschedule(job_id, delay=delay, priority=priority))
    click.echo("rescheduled" if is_changed else "The job is running, errored, or over: nothing was changed")
    if not is_changed:
        ctx.exit(1)


@job.command()
@IDS
@click.option("--to", required=True, shell_complete=complete_queue, help="The queue to move them to.")
@click.pass_context
def move(ctx: click.Context, ids: Sequence[str], to: str) -> None:
    """Move jobs to another queue, on all nodes. Exit status 1 if a job was not moved."""
    with open_node(ctx) as node:
        count = node.run(commands.move_jobs(*ids, to=to))
    rest = "" if count == len(ids) else "; the others are running, are over, or are in that queue already"
    click.echo(visible(f"{counted_of(count, len(ids), 'job')} moved to '{to}'{rest}"))
    if count < len(ids):
        ctx.exit(1)


@job.command(short_help="Wait until a job is over.")
@ID
@click.option("--timeout", callback=read_span, help="Give up after this time: 30s, 5m.")
@click.pass_context
def wait(ctx: click.Context, job_id: str, timeout: timedelta | None) -> None:
    """Wait until a job is over, and print its end: completed, canceled, errored, expired or gone.

    A result follows `completed`, and the error follows `errored`. `gone` means that no node knows the job: nodes forget
    one without a result soon after its end. Exit status 1 if the job is errored, canceled or expired, or not over in
    time.
    """
    try:
        with open_node(ctx) as node:
            found = _outcome(node, job_id, timeout)
    except TimeoutError as error:
        raise click.ClickException(str(error)) from error
    detail = visible(found.error or "") or body_text(found.result, None)
    click.echo(found.status + (f": {detail}" if detail else ""))
    if found.status not in ("completed", "gone"):
        ctx.exit(1)


def _outcome(node: OneNode, job_id: str, timeout: timedelta | None) -> Outcome:
    """Return the end of a job. Raises TimeoutError; DisqueError."""
    waiting = Waiting(job_id, timeout, time.monotonic())
    try:
        ends = node.run(commands.wait_jobs(job_id, timeout=timeout))
        return outcome_of(ends[0], waiting.left_s(time.monotonic()))
    except ReplyError as error:
        if not is_older(error):
            raise
    while (found := waiting.outcome(node.run(commands.show(job_id, cluster=True)))) is None:
        time.sleep(waiting.pause_s(time.monotonic()))
    return found
