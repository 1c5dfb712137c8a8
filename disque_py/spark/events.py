"""`spark.read.format("disque-events")` and `spark.readStream`: the classes that Spark asks for.

Thin: events_reading.py does the work. Driver and executors each get a copy of the reader, made
once per query; nothing set later on one is seen by the other, so a reader carries its options and
nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from disque_py.client import Address
from disque_py.spark.event_offsets import EventRange
from disque_py.spark.event_schema import ARROW_SCHEMA, SPARK_SCHEMA
from disque_py.spark.event_slices import SLICE_SCHEMA, SLICE_SPARK_SCHEMA
from disque_py.spark.events_planning import FORMAT, EventOptions, EventPlanner, event_options
from disque_py.spark.events_reading import read_range
from disque_py.spark.options import OptionError, check_own_schema


class EventPartition(InputPartition):
    """A range of one log, and the address of its node."""

    def __init__(self, piece: EventRange, address: Address) -> None:
        super().__init__(piece)
        self.piece = piece
        self.address = address


class EventBatchReader(DataSourceReader):
    """Everything between two places, once."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of all nodes' logs; Spark makes one task of each."""
        # A list without partitions would become one task without a partition.
        planner = EventPlanner(self._options)
        try:
            planned = planner.batch()
        finally:
            planner.close()
        return [EventPartition(*item) for item in planned] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        if isinstance(partition, EventPartition):
            yield from read_range(self._options, partition.piece, partition.address)


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The logs of all nodes as a replayable stream."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options
        self._kept: EventPlanner | None = None

    @property
    def _planner(self) -> EventPlanner:
        # Made where it is used: connections can't travel.
        if self._kept is None:
            self._kept = EventPlanner(self._options)
        return self._kept

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 — Spark's name
        """Note where the logs end now."""
        self._planner.freeze()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Where a new query begins."""
        return self._planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 — Spark's name
        """What maxOffsetsPerTrigger says."""
        count = self._options.events_max
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """The end of the next batch; the limit is our own option, handed back."""
        return self._planner.latest(start)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 — Spark's name
        """Where the logs end now, for the lag in Spark's UI."""
        return self._planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The batch that ends at `end`, which says itself where it begins."""
        return [EventPartition(*item) for item in self._planner.ranges(end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        if isinstance(partition, EventPartition):
            yield from read_range(self._options, partition.piece, partition.address)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: a log is trimmed by its retention."""

    def stop(self) -> None:
        """Hang up."""
        self._planner.close()


class EventSource(DataSource):
    """The event logs of a cluster, read only."""

    @classmethod
    def name(cls) -> str:
        """The word in format(…)."""
        return FORMAT

    def schema(self) -> str:
        """Of events (event_schema.py), or of slices (event_slices.py) if option `rows` says so."""
        return SLICE_SPARK_SCHEMA if str(self.options.get("rows", "")).strip().lower() == "slices" else SPARK_SCHEMA

    def _check(self, schema: StructType) -> None:
        own = SLICE_SCHEMA if self.schema() == SLICE_SPARK_SCHEMA else ARROW_SCHEMA
        check_own_schema(FORMAT, schema.fieldNames(), own.names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For spark.read."""
        self._check(schema)
        return EventBatchReader(event_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 — Spark's name
        """For spark.readStream."""
        self._check(schema)
        return EventStreamReader(event_options(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """There is none."""
        raise OptionError(f"{FORMAT}: logs are written by nodes alone; to make jobs write to format('disque')")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 — Spark's name
        """There is none."""
        raise OptionError(f"{FORMAT}: logs are written by nodes alone; to make jobs write to format('disque')")
