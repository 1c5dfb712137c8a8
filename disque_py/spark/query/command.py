"""The command `disque-query <path> …`: an index in the terminal, or as an HTML report.

    disque-query /data/index depth
    disque-query /data/index trace D-1fc4…
    disque-query /data/index report --out report.html

Wrong arguments give a usage error and status 2. Other errors give one sentence and status 1. A short answer takes less
time than loading the libraries, so each question imports only the modules that it needs.
"""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from disque_py import __version__
from disque_py.output_errors import is_output_error, naming
from disque_py.program_commands import ProgramGroup
from disque_py.shell_scripts import completion_option
from disque_py.spark.program import SETTINGS, FailureError, files, folders, read_pairs

if TYPE_CHECKING:
    from disque_py.spark.query.questions import Answer

PROGRAM: Final = "disque-query"
Function = TypeVar("Function", bound=Callable[..., Any])


class Shared:
    """The path, and the options that may come before or after the question."""

    def __init__(self) -> None:
        self.path = ""
        self.storage: dict[str, str] = {}
        self.format = "table"
        self.timing = False


class Program(ProgramGroup):
    """The questions; turns expected errors into one line and exit status 1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before the question. If options follow the path, move the path behind them.

        click takes the first word after a group's argument as the name of a command.
        """
        parser = self.make_parser(ctx)
        _, behind, _ = parser.parse_args(list(args))
        if behind and behind[0].startswith("-"):
            place = len(args) - len(behind) - 1
            words = args[:place] + behind
            # Without the path, click takes the question for the path. The path's new place is before the question.
            found, rest, _ = parser.parse_args(list(words))
            at = len(words) - len(rest) - isinstance(found.get("path"), str)
            args = [*words[:at], args[place], *words[at:]]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Answer the question."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # For characters that the locale can't show.
        try:
            return super().invoke(ctx)
        except ImportError as error:
            raise FailureError(PROGRAM, f"{error}; install it with: pip install 'disque-py[query]'") from error
        except OSError as error:
            if is_output_error(error):
                raise
            raise FailureError(PROGRAM, str(error)) from error
        except Exception as error:  # The extra packages may be missing, so their error types are compared by name.
            if type(error).__name__ not in ("TableError", "OptionError") and not type(error).__module__.startswith(
                "_duckdb"
            ):
                raise
            raise FailureError(PROGRAM, str(error).strip()) from error


def shared_options(function: Function) -> Function:
    """Add --storage, --format and --timing, before and after a question. A missing option doesn't reset a given one."""
    for option in (
        click.option(
            "--timing", is_flag=True, expose_value=False, callback=_keep, help="Print the query time on stderr."
        ),
        click.option(
            "--format", type=click.Choice(("table", "json", "csv")), expose_value=False, callback=_keep,
            help="Format of rows (table).",
        ),
        click.option(
            "--storage", multiple=True, expose_value=False, callback=_keep, metavar="NAME=VALUE",
            help="Setting of an object store; may be repeated.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def by_option(text: str) -> Callable[[Function], Function]:
    """Add --by, which may be repeated."""
    return click.option("--by", multiple=True, metavar="KEY", help=text)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    shared = ctx.ensure_object(Shared)
    if param.name == "storage":
        shared.storage.update(read_pairs(ctx, param, value))
    elif value:
        setattr(shared, str(param.name), value)


@click.group(cls=Program, context_settings=SETTINGS, no_args_is_help=False, subcommand_metavar="QUESTION [ARGS]...")
@click.version_option(__version__, message=f"{PROGRAM} %(version)s")
@completion_option(PROGRAM)
@click.argument("path", shell_complete=folders)
@shared_options
@click.pass_context
def main(ctx: click.Context, path: str) -> None:
    """Query the tables that `disque-pipeline index` keeps. It needs no Spark.

    PATH is the folder or URI of an index. --storage, --format and --timing may also follow PATH or QUESTION.
    """
    ctx.ensure_object(Shared).path = path


@main.command()
@click.argument("job_id")
@shared_options
@click.pass_obj
def trace(shared: Shared, job_id: str) -> None:
    """Show the events of a job."""
    from disque_py.spark.query import questions

    answer = _ask(shared, lambda db: questions.trace(db, job_id))
    _print(shared, answer)
    if not answer.rows:
        raise FailureError(PROGRAM, f"the index has no event of {job_id}")
    note = questions.pending_note(answer) if shared.format == "table" else ""
    if note:
        click.echo(f"{PROGRAM}: {note}", err=True)


@main.command()
@click.option("--over-time", is_flag=True, help="Show numbers over time instead of the current ones.")
@click.option(
    "--by-node", is_flag=True, help="Also by the node of each job's newest event; shows the jobs of a dead node."
)
@click.option("--queue", default="", help="Only this queue.")
@by_option("Also by a key of the jobs' meta.")
@shared_options
@click.pass_obj
def depth(shared: Shared, over_time: bool, by_node: bool, queue: str, by: tuple[str, ...]) -> None:
    """Count jobs by queue and state, now and over time."""
    from disque_py.spark.query import plots, questions

    if not over_time:
        _print(shared, _ask(shared, lambda db: questions.depth(db, by, by_node=by_node, queue=queue)))
        return
    if by or by_node:
        raise click.UsageError("--over-time shows states only; leave out --by and --by-node")
    answer = _ask(shared, lambda db: questions.depth_over_time(db, queue))
    if shared.format == "table":
        import shutil

        print(plots.curves(answer, shutil.get_terminal_size().columns - 20), end="")
    else:
        _print(shared, answer)


@main.command()
@click.option("--hourly", is_flag=True, help="Show a row per hour.")
@by_option("Also by a key of the jobs' meta.")
@shared_options
@click.pass_obj
def latency(shared: Shared, hourly: bool, by: tuple[str, ...]) -> None:
    """Show percentiles of the time in each state."""
    from disque_py.spark.query import questions

    _print(shared, _ask(shared, lambda db: questions.latency(db, by, hourly=hourly)))


@main.command()
@by_option("Also by a key of the jobs' meta.")
@shared_options
@click.pass_obj
def errors(shared: Shared, by: tuple[str, ...]) -> None:
    """Show failures and their number."""
    from disque_py.spark.query import plots, questions

    answer = _ask(shared, lambda db: questions.errors(db, by))
    _print(shared, answer)
    if shared.format == "table" and answer.rows:
        print("\n" + plots.bars(answer, "error", "failures"), end="")


def _statement(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return the statement. It may begin with a comment (`-- all jobs`). A single word with dashes is an option."""
    if not value.strip():
        raise click.BadParameter("is empty", ctx=ctx, param=param)
    if value.startswith("-") and len(value.split()) == 1:
        raise click.NoSuchOption(value, ctx=ctx)
    return value


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("statement", callback=_statement)
@shared_options
@click.pass_obj
def sql(shared: Shared, statement: str) -> None:
    """Run any SQL of DuckDB. The tables are history and current."""
    from disque_py.spark.query import questions

    _print(shared, _ask(shared, lambda db: questions.ask(db, statement)))


@main.command()
@click.option("--out", default="report.html", shell_complete=files, help="Name of the file (report.html).")
@by_option("Show the time in states also by a key of the jobs' meta.")
@shared_options
@click.pass_obj
def report(shared: Shared, out: str, by: tuple[str, ...]) -> None:
    """Write an HTML file with charts."""
    from pathlib import Path

    html = _ask(shared, lambda db: _report(db, shared.path, by))
    with naming(out):
        Path(out).write_text(html, encoding="utf-8")
    print(out)


def _report(db: Any, path: str, by: tuple[str, ...]) -> str:
    from disque_py.spark.query import questions, report

    latency = questions.latency(db, by)
    errors = questions.errors(db)
    parts = [
        ("Depth over time", report.lines(questions.depth_over_time(db))),
        ("Jobs now", report.table(questions.depth(db))),
        (
            "Time in each state: 95th percentile, ms",
            report.bars(latency, latency.columns[: latency.columns.index("jobs")], "p95_ms"),
        ),
        ("Time in each state", report.table(latency)),
        ("Failures", report.bars(errors, ["queue", "error"], "failures") + report.table(errors)),
    ]
    return report.page(f"Disque: {path}", questions.summary(db), parts)


Found = TypeVar("Found")


def _ask(shared: Shared, question: Callable[[Any], Found]) -> Found:
    """Return the answer to a question about the index. With --timing, print the time that it took."""
    from disque_py.spark.query.tables import open_index

    with open_index(shared.path, shared.storage) as db:
        began = time.perf_counter()
        answer = question(db)
        if shared.timing:
            click.echo(f"{(time.perf_counter() - began) * 1000:.1f} ms", err=True)
    return answer


def _print(shared: Shared, answer: Answer) -> None:
    """Print the rows in the format of --format."""
    if shared.format == "table":
        from disque_py.spark.query import plots

        print(plots.table(answer), end="")
    elif shared.format == "csv":
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([_flat(value) for value in row] for row in answer.rows)
    else:
        import json

        for row in answer.rows:
            fields = dict(zip(answer.columns, map(_plain, row), strict=True))
            print(json.dumps(fields, default=str, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return a value as JSON can have it: bytes as text, and null for a number that JSON doesn't know."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _flat(value: Any) -> Any:
    """Return a value as a field of CSV: maps and lists are JSON."""
    if isinstance(value, dict | list | tuple):
        import json

        return json.dumps(_plain(value), default=str)
    return _plain(value) if isinstance(value, bytes) else value
