"""Rows become jobs, through Spark."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from disque_py.spark import sink
from disque_py.spark.adding import ROUTE
from disque_py.spark.delta_store import Store, write_file
from disque_py.spark.job_columns import ADD_OPTIONS, SchemaError, add_words
from disque_py.spark.options import Options, cluster_options
from disque_py.spark.sink import SinkMessage, SinkOptions, add_rows, finish
from runs import failing_once
from spark_stub import StubCluster


def frame(spark, count=100):
    return spark.range(count).selectExpr(
        "cast(id as string) AS body", "concat('q', id % 2) AS queue", "id % 3 AS delay"
    )


def bodies(cluster):
    return sorted(int(argv[2]) for node in cluster.nodes for argv in node.added)


def write(data, cluster, **options):
    given = {"bootstrapServers": cluster.servers, **options}
    data.write.format("disque").options(**given).mode("append").save()


def test_a_dataframe_becomes_jobs(spark):
    with StubCluster(2) as cluster:
        write(frame(spark), cluster, retry="30")
        assert bodies(cluster) == list(range(100))
        argv = next(argv for node in cluster.nodes for argv in node.added if argv[2] == b"5")
        assert argv == [b"ADDJOB", b"q1", b"5", b"5000", b"DELAY", b"2", b"RETRY", b"30"]


def test_a_stream_becomes_jobs_with_keys_that_make_a_repetition_harmless(spark, tmp_path):
    with StubCluster() as cluster:
        source = tmp_path / "in"
        frame(spark, 20).select("body", "queue").write.parquet(str(source))

        def run():
            rows = spark.readStream.schema("body string, queue string").parquet(str(source))
            writer = rows.writeStream.format("disque").options(bootstrapServers=cluster.servers, autoKey="true")
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
            query.awaitTermination()

        run()
        for name in ("0", ".0.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink()
        run()
        assert bodies(cluster) == list(range(20))


def test_two_writes_in_one_batch_of_foreach_batch_make_the_jobs_of_both(spark, tmp_path):
    with StubCluster() as cluster:
        source = tmp_path / "in"
        frame(spark, 20).select("body", "queue").write.parquet(str(source))

        def twice(rows, _):
            write(rows.where("body < '6'"), cluster, autoKey="true")
            write(rows.where("body >= '6'"), cluster, autoKey="true")

        rows = spark.readStream.schema("body string, queue string").parquet(str(source))
        query = rows.writeStream.foreachBatch(twice).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        assert bodies(cluster) == list(range(20))


def test_a_task_that_fails_once_makes_each_job_once_if_rows_have_keys(spark, tmp_path):
    with StubCluster() as cluster:
        rows = frame(spark, 50).selectExpr("body", "queue", "body AS dedupKey")
        write(failing_once(rows, tmp_path / "failed"), cluster)
        assert (tmp_path / "failed").exists()
        assert bodies(cluster) == list(range(50))


def test_refused_rows_fail_the_write_or_are_skipped_or_go_to_a_table_with_their_reason(spark, tmp_path):
    with StubCluster() as cluster:
        cluster.nodes[0].refuse[b"q1"] = b"PAUSED queue q1 is paused"
        with pytest.raises(Exception, match=r"refused \d+ of \d+ rows, the first for queue 'q1' with: PAUSED"):
            write(frame(spark), cluster)
    # Use another cluster, because tasks of the failed write may still be adding jobs.
    with StubCluster() as cluster:
        cluster.nodes[0].refuse[b"q1"] = b"PAUSED queue q1 is paused"
        write(frame(spark), cluster, onError="skip")
        assert len(cluster.nodes[0].added) == 50
        write(frame(spark), cluster, onError="route", errorsPath=str(tmp_path / "refused"))
        routed = DeltaTable(str(tmp_path / "refused")).to_pyarrow_table().to_pylist()
        assert {(row["queue"], row["code"]) for row in routed} == {("q1", "PAUSED")}
        assert sorted(int(row["body"]) for row in routed) == list(range(1, 100, 2))
        with pytest.raises(Exception, match="column body is binary, but in the table of option errorsPath"):
            write(
                frame(spark).selectExpr("cast(body AS binary) AS body", "queue"),
                cluster,
                onError="route",
                errorsPath=str(tmp_path / "refused"),
            )
        assert len(cluster.nodes[0].added) == 100


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (("queue",), {}, "the column body is missing"),
        (("body",), {}, "there is no column queue and no option queue"),
        (("body", "queue", "delay AS wait"), {}, "the sink has no column 'wait'"),
        (("body", "queue", "cast(delay AS string) AS delay"), {}, "column delay is string, but must be"),
        (("body", "queue"), {"onErrors": "skip"}, "did you mean onError"),
        (("body", "queue"), {"bootstrapServers": "127.0.0.1:1"}, "no node of bootstrapServers can be reached"),
        (("body", "queue"), {"onError": "route"}, "needs the option errorsPath"),
        (("body", "queue"), {"errorsPath": "/nowhere"}, "option errorsPath needs onError=route, and onError is fail"),
    ],
)
def test_invalid_columns_and_options_are_refused_before_a_row_is_written(spark, columns, options, text):
    with StubCluster() as cluster:
        with pytest.raises(Exception, match=text):
            write(frame(spark).selectExpr(*columns), cluster, **options)
        assert cluster.nodes[0].added == []


def refused(store, **columns):
    """Finish a batch of one task whose only row was refused."""
    table = pa.table({name: [value] for name, value in columns.items()} | {"code": ["PAUSED"], "reason": ["no"]})
    options = SinkOptions(None, None, ROUTE, store, "run")
    finish(options, [SinkMessage(1, 0, Counter(PAUSED=1), [write_file(store, table)], table.schema)], "batch 1")


def test_refused_rows_may_have_more_columns_than_those_before_and_none_of_another_type(tmp_path):
    """Two queries may share a table; files of another type would make all of it unreadable."""
    store = Store(str(tmp_path))
    refused(store, body="a")
    refused(store, body="b", delay=1)
    refused(store, body="c")
    with pytest.raises(SchemaError, match="column body is binary, but in the table of option errorsPath"):
        refused(store, body=b"\xff")
    rows = store.table().to_pyarrow_table().to_pylist()
    assert sorted((row["body"], row["delay"]) for row in rows) == [("a", None), ("b", 1), ("c", None)]


def test_queries_that_share_a_table_of_refused_rows_may_add_columns_at_the_same_time(tmp_path):
    store = Store(str(tmp_path))
    refused(store, body="a")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: refused(store, body=name, **{name: 1}), "stuv"))
    assert sorted(row["body"] for row in store.table().to_pyarrow_table().to_pylist()) == list("astuv")


def test_refused_rows_are_written_before_they_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(sink, "ROUTED_BYTES", 1000)
    with StubCluster() as cluster:
        cluster.nodes[0].refuse[b"q"] = b"PAUSED queue q is paused"
        reach = cluster_options(Options("disque", {"bootstrapServers": cluster.servers}, ["bootstrapServers"]))
        words = add_words(Options("disque", {"queue": "q"}, ADD_OPTIONS))
        batches = iter([pa.record_batch({"body": ["x" * 600]})] * 5)
        done = add_rows(SinkOptions(reach, words, ROUTE, Store(str(tmp_path)), "run"), batches, is_stream=False)
    assert [file.rows for file in done.routed] == [2, 2, 1]
