"""The command `disque-pipeline <name> …`: the pipelines from a shell, or under spark-submit.

    disque-pipeline index --nodes 10.0.0.1:7711 --path /data/index
    disque-pipeline latency --path /data/index --by carrier
    spark-submit "$(disque-pipeline where)" index --nodes … --path s3://bucket/index

Wrong arguments give one sentence and status 2, other errors one sentence and status 1. Options, nodes, the password
and a missing index are checked before Spark starts: Spark takes half a minute to start, and its errors fill pages.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from disque_py.spark.pipelines.node_watch import NodeWatch

SPAN: Final = re.compile(r"\d+ (?:milliseconds?|seconds?|minutes?|hours?)")
PASSWORD: Final = "DISQUECLI_AUTH"  # As disque-cli has it.
ISSUE_WORDS: Final = ("OptionError", "ClusterError", "TableError", "DataLossError", "GapError", "SchemaError",
    "IndexSchemaError", "NoLogError", "RefusedError",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser("disque-pipeline", description="Spark pipelines on the events of a Disque cluster.")
    names = top.add_subparsers(dest="name", required=True, metavar="name")
    index = names.add_parser("index", help="events of all nodes into the tables history and current")
    recency = names.add_parser("recency", help="the most recent members of each key, from jobs with op in their meta")
    for stream in (index, recency):
        stream.add_argument("--nodes", required=True, help="host:port of some nodes, with commas")
        stream.add_argument("--path", required=True, help="folder or URI of the tables")
        stream.add_argument("--trigger", type=span, default="2 seconds", help="time between batches (2 seconds)")
        stream.add_argument("--once", action="store_true", help="read everything that there is now, then end")
        stream.add_argument("--checkpoint", default="", help="by default a folder below --path")
        stream.add_argument("--metrics-port", type=int, help="serve Prometheus text on 127.0.0.1")
        stream.add_argument("--metrics-file", default="", help="write Prometheus text into a file")
        stream.add_argument("--quiet", action="store_true", help="no line per batch")
        stream.add_argument(
            "--source", action="append", default=[], metavar="NAME=VALUE",
            help=f"option of disque-events; {PASSWORD} in the environment keeps a password out of process lists",
        )  # fmt: skip
    index.add_argument("--sink", action="append", default=[], metavar="NAME=VALUE", help="option of disque-index")
    recency.add_argument("--limit", type=int, default=100, help="members per key (100)")
    recency.add_argument("--key", default="key", help="the key of meta that names the key")
    recency.add_argument("--member", default="member", help="the key of meta that names the member")
    for name, text in (
        ("depth", "the number of jobs in each state over time"),
        ("latency", "how long jobs stayed in a state, by queue and hour"),
        ("errors", "failures by queue, reason and worker"),
    ):
        batch = names.add_parser(name, help=text)
        batch.add_argument("--path", required=True, help="folder or URI of an index")
        batch.add_argument("--by", action="append", default=[], metavar="KEY", help="also by a key of the jobs' meta")
        batch.add_argument("--since", default="", metavar="DAY", help="events from this day on, YYYY-MM-DD")
        batch.add_argument("--until", default="", metavar="DAY", help="events up to this day, included")
        if name == "depth":
            batch.add_argument("--bucket", type=int, default=60, metavar="SECONDS", help="length of a span (60)")
    upkeep = names.add_parser("upkeep", help="compact an index and drop old rows, while no query writes")
    upkeep.add_argument("--path", required=True, help="folder or URI of an index")
    upkeep.add_argument("--current-retention", default="", metavar="SPAN", help="ended jobs leave current, e.g. 7 days")
    upkeep.add_argument("--history-retention", default="", metavar="SPAN", help="days leave history, e.g. 90 days")
    rebuild = names.add_parser("rebuild", help="make a lost table current from history, while no query writes")
    rebuild.add_argument("--path", required=True, help="folder or URI of an index")
    names.add_parser("where", help="print the file to give to spark-submit")
    names.add_parser("declarative", help="print the folder of the project for spark-pipelines run")
    return top


def span(text: str) -> str:
    """Return a span of time as Spark's triggers take it. Raises ArgumentTypeError, whose text argparse shows."""
    if not SPAN.fullmatch(text.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is no span of time such as '2 seconds' or '1 minute'")
    return text.strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a pipeline and return the exit status."""
    words = parser().parse_args(argv)
    here = os.path.dirname(os.path.abspath(__file__))
    if words.name == "where":
        print(os.path.join(here, "__main__.py"))
        return 0
    if words.name == "declarative":
        print(os.path.join(os.path.dirname(here), "declarative"))
        return 0
    try:
        if words.name == "rebuild":
            return _rebuild(words)
        return _upkeep(words) if words.name == "upkeep" else _run(words)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        print(f"disque-pipeline: {sentence}", file=sys.stderr)
        return 1


def sentence_of(error: BaseException) -> str | None:
    """Return the sentence of an error that has one, also where Spark has wrapped the error; None for other errors."""
    if type(error).__name__ in (*ISSUE_WORDS, "NoJavaError") or isinstance(error, ImportError | OSError):
        return str(error)
    for line in str(error).splitlines():
        name, colon, text = line.strip().partition(": ")
        if colon and name.rpartition(".")[2] in ISSUE_WORDS and name.startswith("disque_py."):
            return text
    return None


def _upkeep(words: argparse.Namespace) -> int:
    import time

    from disque_py.spark.delta_store import Store
    from disque_py.spark.index_schema import HISTORY, open_existing
    from disque_py.spark.options import Options
    from disque_py.spark.upkeep import retention_of, tidy

    given = {"currentRetention": words.current_retention, "historyRetention": words.history_retention}
    options = Options("upkeep", {name: value for name, value in given.items() if value}, given)
    retention = retention_of(options)
    open_existing(Store(words.path), HISTORY)  # A wrong path is an error, not an empty index.
    done = tidy(Store(words.path), retention, time.time())
    print(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in done.items()))
    return 0


def _rebuild(words: argparse.Namespace) -> int:
    from disque_py.spark.delta_store import Store
    from disque_py.spark.index_rebuild import rebuild

    events, jobs = rebuild(Store(words.path))
    print(f"current: {jobs} jobs from {events} events of history")
    return 0


def _run(words: argparse.Namespace) -> int:
    from disque_py.spark.pipelines.session import open_session

    source, sink = _pairs(words, "source"), _pairs(words, "sink")
    password = os.environ.get(PASSWORD, "")
    if password and not any(name.lower() == "disque.password" for name in source):
        source["disque.password"] = password
    watch = None
    if "SPARK_REMOTE" not in os.environ:  # The server of Spark Connect may see other paths.
        watch = _check(words, source, sink)
    if not getattr(words, "quiet", False):
        print(f"{words.name}: Spark is starting …", file=sys.stderr, flush=True)
    spark = open_session(words.name)
    try:
        if words.name in ("index", "recency"):
            return _stream(spark, words, source, sink, watch)
        rows = _batch(spark, words)
        print(f"{words.name}: {len(rows)} rows in {words.path.rstrip('/')}/{words.name}")
        return 0
    finally:
        spark.stop()


def _check(words: argparse.Namespace, source: dict[str, str], sink: dict[str, str]) -> NodeWatch | None:
    """Check before Spark starts what Spark would find wrong later; return the watch over the nodes of a stream.

    Raises OptionError, ClusterError, TableError, ImportError.
    """
    from disque_py.spark.delta_store import Store
    from disque_py.spark.events_planning import EventPlanner, event_options
    from disque_py.spark.index_tables import HISTORY, check_not_lost, open_existing
    from disque_py.spark.pipelines.history import check_keys
    from disque_py.spark.pipelines.node_watch import NodeWatch

    if words.name not in ("index", "recency"):
        check_keys(words.by)
        open_existing(Store(words.path), HISTORY)
        Store(words.path).check_writable()
        return None
    for path in filter(None, (words.path, words.checkpoint, os.path.dirname(words.metrics_file))):
        Store(path).check_writable()
    if words.name == "index":
        from disque_py.spark.index import writer_options

        store, _, _ = writer_options({"path": words.path, **sink})
        check_not_lost(store)
    else:
        check_keys((words.key, words.member))
    options = event_options({"bootstrapServers": words.nodes, **source}, is_stream=True)
    watch = NodeWatch(EventPlanner(options))
    watch.look()
    return watch


def _pairs(words: argparse.Namespace, name: str) -> dict[str, str]:
    from disque_py.spark.options import OptionError

    found = {}
    for pair in getattr(words, name, ()):
        option, equals, value = pair.partition("=")
        if not equals:
            raise OptionError(f"--{name} takes NAME=VALUE, not {pair!r}")
        found[option] = value
    return found


def _stream(
    spark: Any, words: argparse.Namespace, source: dict[str, str], sink: dict[str, str], watch: NodeWatch | None
) -> int:
    from disque_py.spark.pipelines import index, recency
    from disque_py.spark.progress import ProgressListener

    listener = ProgressListener(
        words.path, metrics_file=words.metrics_file, metrics_port=words.metrics_port, quiet=words.quiet
    )
    spark.streams.addListener(listener)
    trigger = None if words.once else words.trigger
    if words.name == "index":
        query = index.run(
            spark, words.nodes, words.path, trigger=trigger, checkpoint=words.checkpoint, source=source, sink=sink
        )
    else:
        query = recency.run(
            spark, words.nodes, words.path, limit=words.limit, key=words.key, member=words.member,
            trigger=trigger, checkpoint=words.checkpoint, source=source,
        )  # fmt: skip
    if watch is not None:
        figure = "disque_pipeline_nodes_away"
        listener.note(words.name, figure, len(watch.missed))
        watch.start(lambda count: listener.note(words.name, figure, count))
    try:
        query.awaitTermination()
    finally:
        query.stop()
        if watch is not None:
            watch.end()
        listener.close()
    missed = watch.sentence() if watch is not None and words.once else ""
    if missed:
        print(f"disque-pipeline: {missed}", file=sys.stderr)
    return 1 if missed else 0


def _batch(spark: Any, words: argparse.Namespace) -> Any:
    from disque_py.spark.pipelines import depth, errors, latency

    if words.name == "depth":
        return depth.run(spark, words.path, by=words.by, bucket_s=words.bucket, since=words.since, until=words.until)
    run = latency.run if words.name == "latency" else errors.run
    return run(spark, words.path, by=words.by, since=words.since, until=words.until)
