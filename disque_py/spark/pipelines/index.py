"""The index pipeline: events of all nodes into `history` and `current`, as a stream or once up to now.

The pipeline is one query, which keeps no state besides its checkpoint. It may be stopped or killed at any point. If
the checkpoint is lost, the logs are read again from the beginning, and events that the tables have are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from disque_py.spark.event_log import name_after_cut
from disque_py.spark.events_planning import CUT_SHORT
from disque_py.spark.index_tables import HISTORY
from disque_py.spark.index_writing import mark_name, newest_mark
from disque_py.spark.options import Options
from disque_py.spark.store import Store, TableError

TRIGGER: Final = "2 seconds"
# The limits of a batch. The driver merges a million new jobs in about a gigabyte. Without limits, the first batch would
# have all events of all logs, and a batch that needs too much memory is planned again after each start.
LIMITS: Final = {"maxOffsetsPerTrigger": "1000000", "maxBytesPerTrigger": str(256 << 20)}
# The part of an error about lost events (events_planning.py, events_reading.py) that names node, events and log.
LOSS: Final = re.compile(r"node (\w+): (?:events \d+ to (\d+) )?.*?\blog ([\w.]+)")


def run(
    spark: Any,
    nodes: str,
    path: str,
    *,
    trigger: str | None = TRIGGER,
    checkpoint: str = "",
    source: Mapping[str, str] | None = None,
    sink: Mapping[str, str] | None = None,
) -> Any:
    """Start the query and return it as a StreamingQuery.

    spark          a SparkSession with the data sources registered
    nodes          the option bootstrapServers: `host:port`, with commas
    path           folder or URI of the index
    trigger        time between batches, by default "2 seconds"; None: read everything that exists now, then end
    checkpoint     folder or URI of the checkpoint; by default `_checkpoint` in the index
    source, sink   further options of `disque-events` and `disque-index`; by default LIMITS, and none

    Raises OptionError, ClusterError, TableError or IndexSchemaError, wrapped by Spark.
    """
    reader = spark.readStream.format("disque-events").option("bootstrapServers", nodes)
    # The query does not change the events, so Spark need not convert them.
    reader = reader.option("startingOffsets", "earliest").option("reader", "spark-index").option("rows", "slices")
    for name, value in (LIMITS | dict(source or {})).items():
        reader = reader.option(name, value)
    writer = reader.load().writeStream.format("disque-index").option("path", path).queryName("index")
    writer = writer.option("checkpointLocation", checkpoint_of(path, checkpoint))
    # Events that the source skips look like gaps to the sink, so the sink must allow gaps.
    given = source or {}
    if not Options("disque-events", given, given).flag("failOnDataLoss", default=True):
        writer = writer.option("gaps", "allow")
    for name, value in (sink or {}).items():
        writer = writer.option(name, value)
    writer = writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)
    return writer.start()


def checkpoint_of(path: str, checkpoint: str) -> str:
    """Return the folder or URI of the query's checkpoint, which is `checkpoint` if that is not empty."""
    return checkpoint or f"{path.rstrip('/')}/_checkpoint"


def check_not_cut(store: Store, ends: Mapping[str, Any]) -> None:
    """Raise TableError if the index has events beyond the end of a node's log, because the log was cut.

    store   path of the index
    ends    node id → log and next number, as `EventPlanner.report` returns them

    A query whose checkpoint is lost, or older than the index, can't notice that. The index has the numbers of the log's
    next events, and would leave these out.
    """
    if not store.under(HISTORY).exists():
        return
    history = store.under(HISTORY).table()
    for node, end in ends.items():
        name, mark = newest_mark(history, node, end["log"])
        if mark >= end["next"]:
            after = name_after_cut(name)
            raise TableError(
                f"disque-index: {store.path} has events of node {node}, log {name}, up to {mark}, and the log ends "
                f"before {end['next']}: {CUT_SHORT}; to read the log again from its first event, set "
                "failOnDataLoss=false, or, if the checkpoint is lost or older than the index, remove it and set "
                f'startingOffsets={{"{node}": {{"log": "{after}", "next": 1}}}} and -2 for every other node'
            )


def place_in_index(store: Store, sentence: str, checkpoint: str) -> str:
    """Return how far the index has the log in which events were lost, for the end of the error's sentence.

    store        path of the index
    sentence     the error of the source `disque-events`
    checkpoint   folder or URI of the checkpoint, which may be older than the index

    The text is empty if the sentence is about something else, or if the index can't be read.
    """
    found = LOSS.search(sentence)
    try:
        if found is None or not store.under(HISTORY).exists():
            return ""
        mark = store.under(HISTORY).table().transaction_version(mark_name(found[1], found[3]))
    except TableError:
        return ""
    if mark is None:
        return f". The index has no event of log {found[3]}"
    if found[2] is None or mark < int(found[2]):
        return f". The index has log {found[3]} up to event {mark}"
    return (
        f". The index has log {found[3]} up to event {mark}, so it lacks none of these events: the checkpoint is older "
        f"than the index. Remove {checkpoint} and start again; events that the index has are left out"
    )
