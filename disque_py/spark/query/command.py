"""The command `disque-query <path> …`: an index in the terminal, or as an HTML report.

    disque-query /data/index depth
    disque-query /data/index trace D-1fc4…
    disque-query /data/index report --out report.html

Wrong arguments give one sentence and status 2, other errors one sentence and status 1.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from disque_py.spark.query.questions import Answer


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        "disque-query", description="Ask the indexes that the Spark pipelines keep; needs no Spark."
    )
    top.add_argument("path", help="folder or URI of an index")
    _add_common(top)
    top.set_defaults(format="table", timing=False, storage=[], storage_behind=[])
    questions = top.add_subparsers(dest="question", required=True, metavar="question")
    trace = questions.add_parser("trace", help="the events of a job")
    trace.add_argument("job_id")
    depth = questions.add_parser("depth", help="jobs by queue and state, now and over time")
    depth.add_argument("--over-time", action="store_true", help="curves instead of the table")
    depth.add_argument(
        "--by-node",
        action="store_true",
        help="also by the node that wrote the newest event; shows the jobs of a dead node",
    )
    depth.add_argument("--queue", default="", help="only this queue (with --over-time)")
    latency = questions.add_parser("latency", help="time in each state: percentiles")
    latency.add_argument("--hourly", action="store_true", help="a row per hour")
    errors = questions.add_parser("errors", help="failures and their number")
    for question in (depth, latency, errors):
        question.add_argument(
            "--by", action="append", default=[], metavar="KEY", help="also by a key of the jobs' meta"
        )
    sql = questions.add_parser("sql", help="any SQL of DuckDB; the tables are history and current")
    sql.add_argument("statement")
    report = questions.add_parser("report", help="an HTML file with charts")
    report.add_argument("--out", default="report.html", help="name of the file (report.html)")
    report.add_argument("--by", action="append", default=[], metavar="KEY", help="time in states also by a key of meta")
    for question in questions.choices.values():
        _add_common(question, behind="_behind")
    return top


def _add_common(words: argparse.ArgumentParser, behind: str = "") -> None:
    """Add the options that may stand before or behind the question. An absent one does not reset the other."""
    absent = argparse.SUPPRESS
    words.add_argument(
        "--storage", action="append", default=absent, dest=f"storage{behind}", metavar="NAME=VALUE",
        help="setting of an object store",
    )  # fmt: skip
    words.add_argument("--format", choices=("table", "json", "csv"), default=absent, help="how rows are printed")
    words.add_argument("--timing", action="store_true", default=absent, help="say how long the query took, on stderr")


def main(argv: Sequence[str] | None = None) -> int:
    """Answer a question and return the exit status."""
    words = parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # For characters that the locale can't show.
    try:
        return _answer(words)
    except BrokenPipeError:
        return 0  # The reader of the output has ended, such as `| head`.
    except ImportError as error:
        print(f"disque-query: {error}; install it with: pip install 'disque-py[query]'", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"disque-query: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        if type(error).__name__ not in ("TableError", "OptionError") and not type(error).__module__.startswith(
            "_duckdb"
        ):
            raise
        print(f"disque-query: {str(error).strip()}", file=sys.stderr)
        return 1


def _answer(words: argparse.Namespace) -> int:
    from disque_py.spark.query import plots, questions
    from disque_py.spark.query.tables import open_index

    storage = dict(pair.partition("=")[::2] for pair in words.storage + words.storage_behind)
    with open_index(words.path, storage) as db:
        began = time.perf_counter()
        if words.question == "report":
            return _report(db, words)
        if words.question == "trace":
            answer = questions.trace(db, words.job_id)
        elif words.question == "depth" and words.over_time:
            answer = questions.depth_over_time(db, words.queue)
        elif words.question == "depth":
            answer = questions.depth(db, words.by, by_node=words.by_node)
        elif words.question == "latency":
            answer = questions.latency(db, words.by, hourly=words.hourly)
        elif words.question == "errors":
            answer = questions.errors(db, words.by)
        else:
            answer = questions.ask(db, words.statement)
        if words.timing:
            print(f"{(time.perf_counter() - began) * 1000:.1f} ms", file=sys.stderr)
    if words.format != "table":
        _print_rows(answer, words.format)
    elif words.question == "depth" and words.over_time:
        print(plots.curves(answer, shutil.get_terminal_size().columns - 20), end="")
    else:
        print(plots.table(answer), end="")
        if words.question == "errors" and answer.rows:
            print("\n" + plots.bars(answer, "error", "failures"), end="")
    if words.question == "trace" and not answer.rows:
        print(f"disque-query: the index has no event of {words.job_id}", file=sys.stderr)
        return 1
    note = questions.pending_note(answer) if words.question == "trace" and words.format == "table" else ""
    if note:
        print(f"disque-query: {note}", file=sys.stderr)
    return 0


def _print_rows(answer: Answer, form: str) -> None:
    if form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
        return
    for row in answer.rows:
        print(json.dumps(dict(zip(answer.columns, row, strict=True)), default=str))


def _report(db: Any, words: argparse.Namespace) -> int:
    from disque_py.spark.query import questions, report

    latency = questions.latency(db, words.by)
    errors = questions.errors(db)
    parts = [
        ("Depth over time", report.lines(questions.depth_over_time(db))),
        ("Jobs now", report.table(questions.depth(db))),
        ("Time in each state: 95th percentile, ms", report.bars(latency, ["queue", "state", *words.by], "p95_ms")),
        ("Time in each state", report.table(latency)),
        ("Failures", report.bars(errors, ["queue", "error"], "failures") + report.table(errors)),
    ]
    html = report.page(f"Disque: {words.path}", questions.summary(db), parts)
    Path(words.out).write_text(html, encoding="utf-8")
    print(words.out)
    return 0
