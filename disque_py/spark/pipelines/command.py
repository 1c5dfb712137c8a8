"""The command `disque-pipeline <name> …`: the pipelines from a shell, or under spark-submit.

    disque-pipeline index --nodes 10.0.0.1:7711 --path /data/index
    disque-pipeline latency --path /data/index --by carrier
    spark-submit "$(disque-pipeline where)" index --nodes … --path s3://bucket/index

Wrong arguments give a usage error and status 2. Other errors give one sentence and status 1. Options, nodes, the
password and the index are checked before Spark starts: Spark takes half a minute to start, and its errors fill pages.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from disque_py import __version__
from disque_py.output_errors import is_output_error
from disque_py.program_commands import ProgramGroup
from disque_py.shell_scripts import SHELLS, completion_script
from disque_py.spark.program import SETTINGS, FailureError, files, folders, read_pairs

if TYPE_CHECKING:
    from disque_py.spark.pipelines.node_watch import NodeWatch
    from disque_py.spark.store import Store

PROGRAM: Final = "disque-pipeline"
SPAN: Final = re.compile(r"\d+ (?:milliseconds?|seconds?|minutes?|hours?)")
PASSWORD: Final = "DISQUECLI_AUTH"  # The same variable as for disque-cli.
WAIT_S: Final = 10
INTERRUPTED: Final = 130  # A shell's exit status after Ctrl-C.
# The last line of a Python traceback.
ERROR_LINE: Final = re.compile(r"[\w.]+(?:Error|Exception): \S")
# The system's words for ENOSPC in the errors of Java, Arrow and delta-rs.
DISK_FULL: Final = "No space left on device"
ISSUE_WORDS: Final = ("OptionError", "ClusterError", "TableError", "DataLossError", "GapError", "SchemaError",
    "IndexSchemaError", "NoLogError", "RefusedError",
)  # fmt: skip
Function = TypeVar("Function", bound=Callable[..., Any])


class Program(ProgramGroup):
    """The pipelines; turns expected errors into one line and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the pipeline that the arguments name."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except Exception as error:  # Spark's errors have no common type. Unexpected errors are raised again.
            sentence = sentence_of(error)
            if sentence is None or (isinstance(error, OSError) and is_output_error(error)):
                raise
            raise FailureError(PROGRAM, sentence) from error


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options that the two streaming pipelines share."""

    nodes: str
    path: str
    trigger: str
    once: bool
    checkpoint: str
    metrics_port: int | None
    metrics_file: str
    quiet: bool
    traceback: bool
    source: dict[str, str]

    @property
    def spark_trigger(self) -> str | None:
        """The time between batches; None: read everything that exists now, then end."""
        return None if self.once else self.trigger

    def source_options(self) -> dict[str, str]:
        """Return the options of the source, with the password of the environment unless --source has one."""
        source = dict(self.source)
        password = os.environ.get(PASSWORD, "")
        if password and not any(name.lower() == "disque.password" for name in source):
            source["disque.password"] = password
        return source


def read_span(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return a span of time for Spark's triggers. Raises click's usage error for any other text."""
    if not SPAN.fullmatch(value.strip()):
        raise click.BadParameter(f"'{value}' is not a span of time such as '2 seconds' or '1 minute'", ctx, param)
    return value.strip()


def read_day(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return a day as YYYY-MM-DD, or an empty text. Raises click's usage error for any other text."""
    try:
        return date.fromisoformat(value.strip()).isoformat() if value.strip() else ""
    except ValueError:
        raise click.BadParameter(f"'{value}' is not a day such as 2026-01-31", ctx, param) from None


traceback_option = click.option(
    "--traceback", is_flag=True, help="If Spark fails, also print its log of the failure and the whole error."
)


def index_path(function: Function) -> Function:
    """Add --path, which names an existing index."""
    option = click.option("--path", required=True, shell_complete=folders, help="Folder or URI of an index.")
    return option(function)


def stream_options(function: Function) -> Function:
    """Add the options of StreamOptions."""
    for option in (
        click.option(
            "--source", multiple=True, callback=read_pairs, metavar="NAME=VALUE",
            help="Option of disque-events; may be repeated. "
            f"{PASSWORD} in the environment keeps a password out of process lists.",
        ),
        traceback_option,
        click.option("--quiet", is_flag=True, help="Don't print a line per batch."),
        click.option(
            "--metrics-file", default="", shell_complete=files, help="Write Prometheus metrics into this file."
        ),
        click.option(
            "--metrics-port", type=click.IntRange(0, 65_535), help="Serve Prometheus metrics on this port of 127.0.0.1."
        ),
        click.option("--checkpoint", default="", shell_complete=folders, help="Checkpoints; by default below --path."),
        click.option("--once", is_flag=True, help="Read everything that exists now, then end."),
        click.option(
            "--trigger", default="2 seconds", callback=read_span, metavar="SPAN",
            help="Time between batches (2 seconds).",
        ),
        click.option("--path", required=True, shell_complete=folders, help="Folder or URI of the tables."),
        click.option("--nodes", required=True, help="host:port of one or more nodes, separated by commas."),
    ):  # fmt: skip
        function = option(function)
    return function


def batch_options(function: Function) -> Function:
    """Add the options of pipelines that read an index and end."""
    for option in (
        traceback_option,
        click.option(
            "--until", default="", callback=read_day, metavar="DAY", help="Events up to and including this day."
        ),
        click.option(
            "--since", default="", callback=read_day, metavar="DAY", help="Events from this day on, YYYY-MM-DD."
        ),
        click.option("--by", multiple=True, metavar="KEY", help="Also group by this key of the jobs' metadata."),
    ):
        function = option(function)
    return index_path(function)


@click.group(cls=Program, context_settings=SETTINGS, no_args_is_help=False)
@click.version_option(__version__, message=f"{PROGRAM} %(version)s")
def main() -> None:
    """Run Spark pipelines on the events of a Disque cluster."""


@main.command("index")
@stream_options
@click.option(
    "--sink", multiple=True, callback=read_pairs, metavar="NAME=VALUE", help="Option of disque-index; may be repeated."
)
def index_command(sink: dict[str, str], **words: Any) -> None:
    """Build tables from the events of all nodes.

    `history` has a row per event, and `current` a row per job.
    """
    options = StreamOptions(**words)

    def check() -> None:
        from disque_py.spark.index import writer_options
        from disque_py.spark.index_tables import CURRENT, check_complete, check_not_lost

        store, _, _ = writer_options({"path": options.path, **sink})
        check_not_lost(store)
        if store.under(CURRENT).exists():
            check_complete(store, store.under(CURRENT).table())
            _check_logs(options, store)

    def start(spark: Any, source: dict[str, str]) -> Any:
        from disque_py.spark.pipelines import index

        return index.run(
            spark, options.nodes, options.path,
            trigger=options.spark_trigger, checkpoint=options.checkpoint, source=source, sink=sink,
        )  # fmt: skip

    def between(has_ended: bool) -> None:
        if _checks_here():
            merge_waiting(options.path, sink, has_ended=has_ended)

    try:
        _stream("index", options, check, start, between)
    except Exception as error:  # Spark's errors have no common type.
        sentence = sentence_of(error)
        if sentence is None or not _checks_here():
            raise
        from disque_py.spark.index import writer_options
        from disque_py.spark.pipelines.index import checkpoint_of, place_in_index

        store, _, _ = writer_options({"path": options.path, **sink})
        more = place_in_index(store, sentence, checkpoint_of(options.path, options.checkpoint))
        raise FailureError(PROGRAM, sentence + more) from error


def _check_logs(options: StreamOptions, store: Store) -> None:
    """Raise TableError if a log was cut and the query would not notice it. Raises OptionError, ClusterError."""
    from contextlib import closing

    from disque_py.spark.events_planning import EventPlanner, event_options
    from disque_py.spark.pipelines.index import check_not_cut, checkpoint_of
    from disque_py.spark.store import Store

    source = options.source_options()
    checkpoint = Store(checkpoint_of(options.path, options.checkpoint))
    is_new = checkpoint.is_local and not (checkpoint.local_path / "offsets").exists()
    given = event_options({"bootstrapServers": options.nodes, **source}, is_stream=True)
    # With failOnDataLoss=false the source itself reads on, from its checkpoint. A new query may begin where it is told.
    if isinstance(given.starting, dict) if is_new else given.may_lose:
        return
    with closing(EventPlanner(given)) as planner:
        ends = planner.report()
    if ends is not None:
        check_not_cut(store, ends["nodes"])


def merge_waiting(path: str, sink: dict[str, str], *, has_ended: bool) -> None:
    """Merge the changes of old jobs that have waited for `mergeEvery`, or all of them when the query has ended.

    The batches alone are not enough, because Spark commits nothing while no event comes.
    """
    from disque_py.spark.index import writer_options
    from disque_py.spark.index_lock import write_lock
    from disque_py.spark.upkeep import settle

    store, retention, _ = writer_options({"path": path, **sink})
    with write_lock(store):
        settle(store, 0 if has_ended else retention.merge_every_s)


@main.command("recency")
@stream_options
@click.option("--limit", type=click.IntRange(1), default=100, help="Members per key (100).")
@click.option("--key", default="key", help="Name of the metadata pair that has the key (key).")
@click.option("--member", default="member", help="Name of the metadata pair that has the member (member).")
def recency_command(limit: int, key: str, member: str, **words: Any) -> None:
    """Keep the most recent members of each key.

    The members come from jobs that have `op` in their metadata.
    """
    options = StreamOptions(**words)

    def check() -> None:
        from disque_py.spark.pipelines.history import check_keys

        check_keys((key, member))

    def start(spark: Any, source: dict[str, str]) -> Any:
        from disque_py.spark.pipelines import recency

        return recency.run(
            spark, options.nodes, options.path, limit=limit, key=key, member=member,
            trigger=options.spark_trigger, checkpoint=options.checkpoint, source=source,
        )  # fmt: skip

    _stream("recency", options, check, start)


@main.command("depth")
@batch_options
@click.option("--bucket", type=click.IntRange(1), default=60, metavar="SECONDS", help="Length of a span (60).")
def depth_command(bucket: int, **words: Any) -> None:
    """Count the jobs in each state over time."""

    def run(spark: Any, path: str, **given: Any) -> Any:
        from disque_py.spark.pipelines import depth

        return depth.run(spark, path, bucket_s=bucket, **given)

    _batch("depth", run, **words)


@main.command("latency")
@batch_options
def latency_command(**words: Any) -> None:
    """Show how long jobs stayed in a state, by queue and hour."""

    def run(spark: Any, path: str, **given: Any) -> Any:
        from disque_py.spark.pipelines import latency

        return latency.run(spark, path, **given)

    _batch("latency", run, **words)


@main.command("errors")
@batch_options
def errors_command(**words: Any) -> None:
    """Count failures by queue, reason and worker."""

    def run(spark: Any, path: str, **given: Any) -> Any:
        from disque_py.spark.pipelines import errors

        return errors.run(spark, path, **given)

    _batch("errors", run, **words)


@main.command("upkeep")
@index_path
@click.option(
    "--current-retention",
    default="",
    metavar="SPAN",
    help="Remove ended jobs from current after this time, e.g. 7 days.",
)
@click.option(
    "--history-retention", default="", metavar="SPAN", help="Remove days from history after this time, e.g. 90 days."
)
def upkeep_command(path: str, current_retention: str, history_retention: str) -> None:
    """Compact an index and remove old rows.

    Stop pipelines that write the index first.
    """
    import time

    from disque_py.spark.delta_store import Store
    from disque_py.spark.index_lock import write_lock
    from disque_py.spark.index_schema import HISTORY, open_existing
    from disque_py.spark.options import Options
    from disque_py.spark.upkeep import retention_of, settle, tidy

    given = {"currentRetention": current_retention, "historyRetention": history_retention}
    options = Options("upkeep", {name: value for name, value in given.items() if value}, given)
    retention = retention_of(options)
    open_existing(Store(path), HISTORY)  # A wrong path is an error, not an empty index.
    with write_lock(Store(path)):
        settle(Store(path), 0)
        done = tidy(Store(path), retention, time.time())
    click.echo(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in done.items()))


@main.command("rebuild")
@index_path
def rebuild_command(path: str) -> None:
    """Rebuild the table `current` from `history`.

    Stop pipelines that write the index first.
    """
    from disque_py.spark.delta_store import Store
    from disque_py.spark.index_lock import write_lock
    from disque_py.spark.index_rebuild import rebuild

    with write_lock(Store(path)):
        events, jobs = rebuild(Store(path))
    click.echo(f"current: {jobs} jobs from {events} events of history")


@main.command()
def where() -> None:
    """Print the path of the file for spark-submit."""
    click.echo(os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py"))


@main.command()
def declarative() -> None:
    """Print the folder of the project for `spark-pipelines run`."""
    click.echo(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "declarative"))


@main.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script for TAB completion of disque-pipeline.

    For bash: `eval "$(disque-pipeline completion bash)"` in ~/.bashrc.
    """
    click.echo(completion_script(main, PROGRAM, shell))


def sentence_of(error: BaseException) -> str | None:
    """Return the sentence of an expected error, even if Spark has wrapped it; None for other errors."""
    if isinstance(error, ModuleNotFoundError) and error.name is not None and not error.name.startswith("disque_py"):
        return f"{error}; install it with: pip install 'disque-py[spark]'"
    if type(error).__name__ in (*ISSUE_WORDS, "NoJavaError") or isinstance(error, ImportError | OSError):
        return str(error)
    for line in str(error).splitlines():
        name, colon, text = line.strip().partition(": ")
        if colon and name.rpartition(".")[2] in ISSUE_WORDS and name.startswith("disque_py."):
            return text
    if DISK_FULL in str(error):
        return (
            "a disk is full (no space left on device): free space below --path, below --checkpoint, and in Spark's "
            "folder for temporary files, and start again; a batch that failed is repeated, and no event is lost or "
            "written twice"
        )
    return None


def reason_of(error: Exception) -> str:
    """Return the line that says why Spark failed: the last error of Python, or else Spark's own first line."""
    lines = [line.strip() for line in str(error).partition("\n\tat ")[0].splitlines() if line.strip()]
    found = [line for line in lines if ERROR_LINE.match(line)]
    return (found[-1] if found else lines[0] if lines else type(error).__name__).rstrip(".")


@contextmanager
def _plain_failures(traceback: bool) -> Iterator[None]:
    """Turn errors of Spark that nothing here expects into one sentence, unless the user wants all of them."""
    try:
        yield
    except Exception as error:  # Spark's errors have no common type.
        if traceback or not type(error).__module__.startswith(("pyspark.", "py4j.")) or sentence_of(error) is not None:
            raise
        raise FailureError(
            PROGRAM, f"Spark failed: {reason_of(error)}. Start it again with --traceback to see all of the error"
        ) from error


def _open_session(name: str, *, quiet: bool = False, traceback: bool = False) -> Any:
    from disque_py.spark.pipelines.session import hush_failures, open_session

    if not quiet:
        click.echo(f"{name}: Spark is starting …", err=True)
    spark = open_session(name)
    if not traceback:
        hush_failures(spark)
    return spark


def _checks_here() -> bool:
    """Return whether Spark has the same paths as this process. A Spark Connect server may run on another machine."""
    return "SPARK_REMOTE" not in os.environ


def _stream(
    name: str,
    options: StreamOptions,
    check: Callable[[], None],
    start: Callable[[Any, dict[str, str]], Any],
    between: Callable[[bool], None] = lambda has_ended: None,
) -> None:
    """Check options and nodes, start Spark and the query, and wait until it ends. Exit with 1 if nodes were missed.

    Raises OptionError, ClusterError, TableError, ImportError.
    """
    source = options.source_options()
    watch = None
    if _checks_here():
        from disque_py.spark.delta_store import Store

        for path in filter(None, (options.path, options.checkpoint, os.path.dirname(options.metrics_file))):
            Store(path).check_writable()
        check()
        watch = _watch(options.nodes, source)
    spark = _open_session(name, quiet=options.quiet, traceback=options.traceback)
    try:
        with _plain_failures(options.traceback):
            missed = _follow(spark, name, options, watch, lambda: start(spark, source), between)
    finally:
        spark.stop()
    if missed:
        click.echo(f"{PROGRAM}: {missed}", err=True)
        sys.exit(1)


def _watch(nodes: str, source: dict[str, str]) -> NodeWatch:
    """Return a watch over the nodes of a stream, after its first check. Raises OptionError, ClusterError."""
    from disque_py.spark.events_planning import EventPlanner, event_options
    from disque_py.spark.pipelines.node_watch import NodeWatch

    watch = NodeWatch(EventPlanner(event_options({"bootstrapServers": nodes, **source}, is_stream=True)))
    watch.look()
    return watch


def _follow(
    spark: Any,
    name: str,
    options: StreamOptions,
    watch: NodeWatch | None,
    start: Callable[[], Any],
    between: Callable[[bool], None],
) -> str:
    """Start a query and report its progress until it ends. With --once, return a sentence about nodes not read.

    `between(has_ended)` is called every WAIT_S seconds, and once after the query has ended by itself.
    """
    from disque_py.spark.progress import ProgressListener

    listener = ProgressListener(
        options.path, metrics_file=options.metrics_file, metrics_port=options.metrics_port, quiet=options.quiet
    )
    spark.streams.addListener(listener)
    query = start()
    if watch is not None:
        figure = "disque_pipeline_nodes_away"
        listener.note(name, figure, len(watch.missed))
        watch.start(lambda count: listener.note(name, figure, count))
    try:
        while not query.awaitTermination(WAIT_S):
            between(False)
    finally:
        query.stop()
        if watch is not None:
            watch.end()
        listener.close()
    between(True)
    return watch.sentence() if watch is not None and options.once else ""


def _batch(
    name: str, run: Callable[..., Any], path: str, by: tuple[str, ...], since: str, until: str, traceback: bool
) -> None:
    """Check the index and the keys, start Spark, and run a pipeline that ends. Raises OptionError, TableError."""
    if _checks_here():
        from disque_py.spark.delta_store import Store
        from disque_py.spark.index_tables import HISTORY, open_existing
        from disque_py.spark.options import check_days
        from disque_py.spark.pipelines.history import check_keys

        check_days(name, since, until)
        check_keys(by)
        open_existing(Store(path), HISTORY)
        Store(path).check_writable()
    spark = _open_session(name, traceback=traceback)
    try:
        with _plain_failures(traceback):
            rows = run(spark, path, by=by, since=since, until=until)
        click.echo(f"{name}: {len(rows)} rows in {path.rstrip('/')}/{name}")
    finally:
        spark.stop()
