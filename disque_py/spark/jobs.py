"""`format("disque")`: one name for two things, as Kafka's: `readStream` consumes jobs, `write` makes them.

Thin: jobs_reading.py fetches, sink.py writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from disque_py.client import Address
from disque_py.spark.job_tokens import Share
from disque_py.spark.jobs_reading import ARROW_SCHEMA, FORMAT, SPARK_SCHEMA, JobOptions, JobPlanner, fetch, job_options
from disque_py.spark.options import OptionError, check_own_schema
from disque_py.spark.sink import JobStreamWriter, JobWriter, sink_options


class JobPartition(InputPartition):
    """A share of a batch, the offset its tokens follow from, and its node's address."""

    def __init__(self, offset: dict[str, Any], share: Share, address: Address | None) -> None:
        super().__init__(share)
        self.offset = {"id": offset["id"], "n": offset["n"]}
        self.share = share
        self.address = address


class JobStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Jobs of queues as rows."""

    def __init__(self, options: JobOptions) -> None:
        self._options = options
        self._kept: JobPlanner | None = None

    @property
    def _planner(self) -> JobPlanner:
        # Made where it is used: connections and threads can't travel.
        if self._kept is None:
            self._kept = JobPlanner(self._options)
        return self._kept

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 — Spark's name
        """Note how many jobs wait now."""
        self._planner.freeze()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Before the first batch."""
        return self._planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 — Spark's name
        """Everything: maxJobsPerTrigger is applied by ourselves: an empty batch must pass any limit."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """The next batch."""
        return self._planner.latest(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Its tasks."""
        return [JobPartition(end, share, address) for share, address in self._planner.shares(end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        if isinstance(partition, JobPartition):
            yield from fetch(self._options, partition.offset, partition.share, partition.address)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge."""
        self._planner.commit(end)

    def stop(self) -> None:
        """End what runs beside."""
        self._planner.stop()


class JobSource(DataSource):
    """Queues of a cluster."""

    @classmethod
    def name(cls) -> str:
        """The word in format(…)."""
        return FORMAT

    def schema(self) -> str:
        """Of the rows that are read."""
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """There is none: a job that is read is taken, and only a stream knows when it may be acknowledged."""
        raise OptionError(
            f"{FORMAT}: queues are read by streams only; use spark.readStream, with trigger(availableNow=True)"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 — Spark's name
        """For spark.readStream."""
        check_own_schema(FORMAT, schema.fieldNames(), ARROW_SCHEMA.names)
        return JobStreamReader(job_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For df.write."""
        return JobWriter(sink_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 — Spark's name
        """For df.writeStream."""
        return JobStreamWriter(sink_options(self.options, schema, overwrite=overwrite))
