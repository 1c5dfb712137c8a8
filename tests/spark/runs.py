"""Helpers of the Spark tests: queries that run up to now, and tables read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from servers import Server, until
from spark_stub import StubCluster


def index(spark: Any, cluster: StubCluster, folder: Path, *, change: Any = None, **options: str) -> list[int]:
    """Index everything that exists now, and return the rows of each batch. `change` may replace the DataFrame."""
    reader = spark.readStream.format("disque-events").option("bootstrapServers", cluster.servers)
    reader = reader.option("startingOffsets", "earliest")
    sink = {}
    for name, value in options.items():
        if name in ("gaps", "compactEvery"):
            sink[name] = value
        else:
            reader = reader.option(name, value)
    frame = reader.load() if change is None else change(reader.load())
    writer = frame.writeStream.format("disque-index").option("path", str(folder / "index")).options(**sink)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def wait_readable(*servers: Server) -> None:
    """Wait until all events of these nodes can be read: after the next fsync of their log, at most a second later."""

    def is_readable(server: Server) -> bool:
        return bool(server.command("EVENTS", "INFO")[5] == int(server.info("events")["events_next_seq"]))

    until(lambda: all(map(is_readable, servers)))


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """Return a table of the index."""
    found: list[dict[str, Any]] = DeltaTable(str(folder / "index" / table)).to_pyarrow_table().to_pylist()
    return found


def places(folder: Path) -> list[tuple[str, str, int]]:
    """Return (node, log, seq) of the whole history, sorted. Each should be there once."""
    return sorted((row["node"], row["log"], row["seq"]) for row in rows(folder, "history"))


def all_places(cluster: StubCluster) -> list[tuple[str, str, int]]:
    """Return the events that the logs hold."""
    return sorted((node.id, node.log, node.first + at) for node in cluster.nodes for at in range(len(node.lines)))


def failing_once(frame: Any, marker: Path) -> Any:
    """Return the same rows, through a task whose first attempt fails after some of them."""
    place = str(marker)

    def once(batches: Any) -> Any:
        from pathlib import Path

        for batch in batches:
            yield batch
            if not Path(place).exists():
                Path(place).touch()
                raise RuntimeError("the task fails once")

    return frame.mapInArrow(once, frame.schema)


def forget_commit(folder: Path, batch: int) -> None:
    """Remove Spark's note that a batch is done, as after a crash between the sink and this note."""
    commits = folder / "checkpoint" / "commits"
    for name in (f"{batch}", f".{batch}.crc"):
        (commits / name).unlink(missing_ok=True)
