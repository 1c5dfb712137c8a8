"""Events through Spark into both indexes: the contract between Spark and the classes of index.py and events.py.

Duplicates, ties and crashes are tested without Spark, in tests/unit/spark/test_index_commit.py.
"""

from __future__ import annotations

import json
import shutil

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import index_events
from disque_py.spark.index import IndexSource
from disque_py.spark.options import OptionError
from disque_py.spark.pipelines import index as pipeline
from runs import all_places, forget_commit, index, places, rows
from spark_stub import StubCluster


def test_small_batches_a_restart_a_repeated_batch_and_a_lost_checkpoint_give_each_event_once(spark, tmp_path):
    with StubCluster(3) as cluster:
        for node in cluster.nodes:
            node.events(50)
        assert index(spark, cluster, tmp_path, maxOffsetsPerTrigger="100") == [100, 50]
        forget_commit(tmp_path, 1)
        cluster.nodes[0].events(5)
        assert index(spark, cluster, tmp_path) == [50, 5]
        assert places(tmp_path) == all_places(cluster)
        shutil.rmtree(tmp_path / "checkpoint")
        cluster.nodes[1].events(3)
        index(spark, cluster, tmp_path, minPartitions="6")
        assert places(tmp_path) == all_places(cluster)


def test_a_query_without_its_checkpoint_notices_a_log_that_was_cut(spark, tmp_path):
    """It left out the events after the cut, because the index has others with their numbers."""
    with StubCluster() as cluster:
        (node,) = cluster.nodes
        node.events(9)
        index(spark, cluster, tmp_path)
        shutil.rmtree(tmp_path / "checkpoint")
        del node.lines[4:]
        assert index(spark, cluster, tmp_path) == [4]  # These are the same.
        node.events(2, "D-after-the-cut-")
        with pytest.raises(StreamingQueryException, match=r"event 5 of node .* under this number: the log was cut"):
            index(spark, cluster, tmp_path)
        shutil.rmtree(tmp_path / "checkpoint")
        start = json.dumps({node.id: {"log": f"{node.log}.1", "next": 0}})
        assert index(spark, cluster, tmp_path, startingOffsets=start) == [6]
        assert len([row for row in rows(tmp_path, "current") if row["job_id"].startswith("D-after")]) == 2


def test_a_task_that_fails_once_rows_out_of_order_and_a_new_column(spark, tmp_path):
    marker = str(tmp_path / "failed")

    def fail_once(frame):
        def once(batches):
            from pathlib import Path

            for batch in batches:
                if not Path(marker).exists():
                    Path(marker).touch()
                    raise RuntimeError("the task fails once")
                yield batch

        shuffled = frame.withColumn("tenant", f.lit("t1")).repartition(3, f.rand(1))
        return shuffled.mapInArrow(once, shuffled.schema)

    with StubCluster() as cluster:
        for version in range(1, 5):
            for job in range(10):
                cluster.nodes[0].event(f"D-{job}", version, event=f"e{version}")
        index(spark, cluster, tmp_path, change=fail_once)
        assert places(tmp_path) == all_places(cluster)
        assert {(row["job_id"], row["event"], row["tenant"]) for row in rows(tmp_path, "current")} == {
            (f"D-{job}", "e4", "t1") for job in range(10)
        }


def test_a_continuous_query_sees_new_events(spark, tmp_path):
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        query = pipeline.run(spark, cluster.servers, str(tmp_path / "index"), trigger="100 milliseconds")
        try:
            query.processAllAvailable()
            node.events(7)
            query.processAllAvailable()
        finally:
            query.stop()
        assert places(tmp_path) == all_places(cluster)


def test_nodes_join_and_leave(spark, tmp_path):
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.events(10)
        index(spark, cluster, tmp_path)
        cluster.add_node().events(7)
        cluster.hidden.add(cluster.nodes[0].id)
        assert index(spark, cluster, tmp_path) == [7]
        assert places(tmp_path) == all_places(cluster)


def test_a_trimmed_log_ends_the_query_or_is_skipped_as_the_option_says(spark, tmp_path):
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(10)
        index(spark, cluster, tmp_path)
        node.events(10)
        node.trim(14)
        with pytest.raises(StreamingQueryException, match="events 10 to 13 of log log1a were trimmed"):
            index(spark, cluster, tmp_path)
        index(spark, cluster, tmp_path, failOnDataLoss="false", gaps="allow")
        assert [seq for *_, seq in places(tmp_path)] == [*range(10), *range(14, 20)]


def test_an_index_is_read_back_with_days_and_maps(spark, tmp_path):
    with StubCluster() as cluster:
        cluster.nodes[0].events(4)
        cluster.nodes[0].event("D-late", 1, ts=1_700_000_000_000 + 86_400_000, meta={"k": "v"})
        index(spark, cluster, tmp_path)
        read = spark.read.format("disque-index").option("since", "2023-11-15").load(str(tmp_path / "index"))
        row = read.collect()[0]
        assert (row.job_id, row.meta, str(row.day)) == ("D-late", {"k": "v"}, "2023-11-15")
        with pytest.raises(Exception, match="option since must be a day such as 2026-01-31, not 'soon'"):
            spark.read.format("disque-index").option("since", "soon").load(str(tmp_path / "index")).count()


def test_logs_are_not_written_and_an_index_is_written_by_streams_only(spark, tmp_path):
    rows = spark.range(1).selectExpr("'a' AS body")
    with pytest.raises(Exception, match="only nodes write event logs"):
        rows.write.format("disque-events").option("bootstrapServers", "a").mode("append").save()
    with pytest.raises(Exception, match="only streams write an index"):
        rows.write.format("disque-index").option("path", str(tmp_path)).mode("append").save()


@pytest.mark.parametrize(
    ("options", "text"),
    [({}, "has no table history"), ({"table": "future"}, "option table must be one of history, current")],
)
def test_an_index_that_is_not_there_is_one_sentence(spark, tmp_path, options, text):
    with pytest.raises(Exception, match=text):
        spark.read.format("disque-index").options(path=str(tmp_path), **options).load()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "current", "since": "2023-11-15"}, "options since and until choose days of history, and current"),
        ({"table": "current", "until": "2023-11-15"}, "options since and until choose days of history, and current"),
        ({"since": "2023-11-15", "until": "2023-11-14"}, "since is 2023-11-15, which is after until, 2023-11-14"),
    ],
)
def test_days_that_would_choose_nothing_or_be_ignored_are_refused(tmp_path, options, text):
    index_events.index(tmp_path, index_events.batch(index_events.event(1, "a")))
    source = IndexSource({"path": str(tmp_path), **options})
    with pytest.raises(OptionError, match=text):
        source.reader(source.schema())


@pytest.mark.parametrize(("column", "text"), [("nosuch", "does not exist"), ("job_id", "is string")])
def test_a_schema_with_a_column_that_the_table_does_not_have_is_refused(tmp_path, column, text):
    """It would be null in every row."""
    index_events.index(tmp_path, index_events.batch(index_events.event(1, "a")))
    source = IndexSource({"path": str(tmp_path)})
    with pytest.raises(OptionError, match=f"asks for {column} int, and in the table history it {text}"):
        source.reader(StructType([StructField(column, IntegerType())]))
    assert source.reader(StructType([StructField("queue", StringType())]))
