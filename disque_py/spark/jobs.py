"""The classes behind `format("disque")`: `readStream` consumes jobs, `write` and `writeStream` add them.

The classes only adapt: jobs_reading.py fetches, sink.py writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
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
    """A share of a batch, the offset that determines its tokens, and the address of its node.

    is_repeated   the batch may have been read before
    """

    def __init__(self, offset: dict[str, Any], share: Share, address: Address | None, *, is_repeated: bool) -> None:
        super().__init__(share)
        self.offset = {"id": offset["id"], "n": offset["n"]}
        self.share = share
        self.address = address
        self.is_repeated = is_repeated


class JobStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream that takes jobs from queues as rows, at least once."""

    def __init__(self, options: JobOptions) -> None:
        self._options = options
        self._kept: JobPlanner | None = None

    @property
    def _planner(self) -> JobPlanner:
        # Spark pickles the reader. Connections and threads can't be pickled, so they are made on first use.
        if self._kept is None:
            self._kept = JobPlanner(self._options)
        return self._kept

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 — Spark's name
        """Remember how many jobs wait now."""
        self._planner.freeze()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Return the offset before the first batch."""
        return self._planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 — Spark's name
        """Return no limit. The planner applies maxJobsPerTrigger itself, because empty batches must pass any limit."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Return the end of the next batch."""
        return self._planner.latest(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        is_repeated = self._planner.is_repeated(end)
        return [
            JobPartition(end, share, address, is_repeated=is_repeated) for share, address in self._planner.shares(end)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch the jobs of a task; runs on an executor."""
        if isinstance(partition, JobPartition):
            is_repeated = partition.is_repeated or _is_another_attempt()
            yield from fetch(
                self._options, partition.offset, partition.share, partition.address, is_repeated=is_repeated
            )

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge the jobs of the batch that Spark has committed."""
        self._planner.commit(end)

    def stop(self) -> None:
        """End the thread that extends leases, and close the connections."""
        self._planner.stop()


def _is_another_attempt() -> bool:
    """Return whether Spark has tried this task before."""
    context: Any = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


class JobSource(DataSource):
    """The format `disque`: the queues of a cluster. docs/spark.md lists its columns and options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for format(…)."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of rows that are read."""
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raise OptionError: reading takes jobs, and only a stream learns when they may be acknowledged."""
        raise OptionError(
            f"{FORMAT}: only streams read queues; use spark.readStream, with trigger(availableNow=True) to end it"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 — Spark's name
        """Return the reader for spark.readStream. Raises OptionError."""
        check_own_schema(FORMAT, schema.fieldNames(), ARROW_SCHEMA.names)
        return JobStreamReader(job_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer for df.write. Raises OptionError, SchemaError, ClusterError."""
        return JobWriter(sink_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 — Spark's name
        """Return the writer for df.writeStream. Raises OptionError, SchemaError, ClusterError."""
        return JobStreamWriter(sink_options(self.options, schema, overwrite=overwrite))
