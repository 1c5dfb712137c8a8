"""The classes behind `format("disque-events")`, for `spark.read` and `spark.readStream`.

The classes only adapt: events_planning.py plans, events_reading.py reads. The driver and the executors each get a
copy of the reader, made once per query. A copy does not see a value that another copy sets later. So a reader carries
its options and nothing else.
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
    """A range of one log, with the address of its node."""

    def __init__(self, piece: EventRange, address: Address) -> None:
        super().__init__(piece)
        self.piece = piece
        self.address = address


class EventBatchReader(DataSourceReader):
    """The batch reader: all events between startingOffsets and endingOffsets, once."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return ranges of all nodes' logs. Spark makes one task of each."""
        # Spark turns an empty list into one task without a partition, so the list names that task itself.
        planner = EventPlanner(self._options)
        try:
            planned = planner.batch()
        finally:
            planner.close()
        return [EventPartition(*item) for item in planned] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the events of a range; runs on an executor."""
        if isinstance(partition, EventPartition):
            yield from read_range(self._options, partition.piece, partition.address)


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The logs of all nodes as a replayable stream."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options
        self._kept: EventPlanner | None = None

    @property
    def _planner(self) -> EventPlanner:
        # Spark pickles the reader. Connections can't be pickled, so they are made on first use.
        if self._kept is None:
            self._kept = EventPlanner(self._options)
        return self._kept

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 — Spark's name
        """Remember where the logs end now."""
        self._planner.freeze()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Return where a new query begins."""
        return self._planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 — Spark's name
        """Return the limit of option maxOffsetsPerTrigger."""
        count = self._options.events_max
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Return the end of the next batch. Spark's `limit` only repeats our own option."""
        return self._planner.latest(start)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 — Spark's name
        """Return where the logs end now, for the lag in Spark's UI."""
        return self._planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of the batch that ends at `end`. The offset itself says where the batch begins."""
        return [EventPartition(*item) for item in self._planner.ranges(end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the events of a range; runs on an executor."""
        if isinstance(partition, EventPartition):
            yield from read_range(self._options, partition.piece, partition.address)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: logs are trimmed by their retention, not by their readers."""

    def stop(self) -> None:
        """Close the connections."""
        self._planner.close()


class EventSource(DataSource):
    """The format `disque-events`: the event logs of a cluster, read only. docs/spark.md lists columns and options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for format(…)."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of events (event_schema.py), or of slices (event_slices.py) with option `rows=slices`."""
        return SLICE_SPARK_SCHEMA if str(self.options.get("rows", "")).strip().lower() == "slices" else SPARK_SCHEMA

    def _check(self, schema: StructType) -> None:
        own = SLICE_SCHEMA if self.schema() == SLICE_SPARK_SCHEMA else ARROW_SCHEMA
        check_own_schema(FORMAT, schema.fieldNames(), own.names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for spark.read. Raises OptionError."""
        self._check(schema)
        return EventBatchReader(event_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 — Spark's name
        """Return the reader for spark.readStream. Raises OptionError."""
        self._check(schema)
        return EventStreamReader(event_options(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raise OptionError: only nodes write event logs."""
        raise OptionError(f"{FORMAT}: only nodes write event logs; to add jobs, write to format('disque')")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 — Spark's name
        """Raise OptionError: only nodes write event logs."""
        raise OptionError(f"{FORMAT}: only nodes write event logs; to add jobs, write to format('disque')")
