"""The index pipeline: events of all nodes into `history` and `current`, without end or up to now.

One query, no state of its own: it may be stopped and killed at any point, its checkpoint may be lost
(then the logs are read again from the beginning, and the tables know what they have).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TRIGGER: Final = "2 seconds"


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
    """Start the query and return it.

    nodes        bootstrapServers
    path         of the index
    trigger      time between batches; None: everything there is now, then the query ends
    checkpoint   by default a folder in the index
    source, sink   further options of `disque-events` and `disque-index`
    """
    reader = spark.readStream.format("disque-events").option("bootstrapServers", nodes)
    # Nothing is done to the events on their way, so Spark need not take them apart.
    reader = reader.option("startingOffsets", "earliest").option("reader", "spark-index").option("rows", "slices")
    for name, value in (source or {}).items():
        reader = reader.option(name, value)
    writer = reader.load().writeStream.format("disque-index").option("path", path).queryName("index")
    writer = writer.option("checkpointLocation", checkpoint or f"{path.rstrip('/')}/_checkpoint")
    # Losses that the source may pass over are gaps to the sink.
    if str((source or {}).get("failOnDataLoss", "true")).lower() == "false":
        writer = writer.option("gaps", "allow")
    for name, value in (sink or {}).items():
        writer = writer.option(name, value)
    writer = writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)
    return writer.start()
