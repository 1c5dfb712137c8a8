"""Jobs become rows, through Spark."""

from __future__ import annotations

from functools import partial

import pytest

from runs import failing_once
from spark_stub import StubCluster


def consume(spark, cluster, folder, change=lambda frame: frame, **options):
    reader = spark.readStream.format("disque").options(bootstrapServers=cluster.servers, subscribe="work", **options)
    writer = change(reader.load()).writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [row.id for row in spark.read.parquet(str(folder / "out")).select("id").collect()]


def test_jobs_become_rows_and_all_are_acknowledged_the_last_batch_too(spark, tmp_path):
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.fill("work", 500, carrier="UA")
        found = consume(spark, cluster, tmp_path, maxJobsPerTrigger="300")
        acked = [job_id for node in cluster.nodes for job_id in node.acked]
        assert len(found) == 1000
        assert sorted(found) == sorted(acked) == sorted(set(found))


def test_a_filter_leaves_other_jobs_in_the_queue(spark, tmp_path):
    """The nodes filter; AvailableNow ends although other jobs wait."""
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.fill("work", 50, carrier="UA")
            node.fill("work", 30, carrier="DL")
        found = consume(spark, cluster, tmp_path, where="carrier=UA")
        assert len(found) == len(set(found)) == 100
        assert [len(node.jobs["work"]) for node in cluster.nodes] == [30, 30]


def test_available_now_reads_all_jobs_however_big_they_are(spark, tmp_path):
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.fill("work", 30, 100_000)
        found = consume(spark, cluster, tmp_path, maxBytesPerTrigger="4000000")
        assert len(found) == len(set(found)) == sum(len(node.acked) for node in cluster.nodes) == 60


def test_a_batch_that_is_repeated_gets_the_same_jobs_and_they_are_acknowledged_once(spark, tmp_path):
    """This is the state after a crash between the sink and Spark's note: no later batch, and no acknowledged job."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.fill("work", 200)
        real, node.on_acktoken = node.on_acktoken, lambda argv: b":0\r\n"
        first = consume(spark, cluster, tmp_path)
        node.on_acktoken = real
        for name in ("commits/0", "commits/.0.crc", "commits/1", "commits/.1.crc", "offsets/1", "offsets/.1.crc"):
            (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
        again = consume(spark, cluster, tmp_path)
        assert sorted(again) == sorted(first)
        assert sorted(node.acked) == sorted(first)


def test_a_task_that_fails_once_gets_the_same_jobs_again(spark, tmp_path):
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.fill("work", 200)
        change = partial(failing_once, marker=tmp_path / "failed")
        found = consume(spark, cluster, tmp_path, change=change)
        assert (tmp_path / "failed").exists()
        assert len(found) == 200
        assert sorted(found) == sorted(set(found)) == sorted(node.acked)


def test_a_task_that_fails_once_reads_all_tokens_that_its_batch_acknowledges(spark, tmp_path):
    """The jobs of the first token are over when the task is repeated, and the second token still has jobs."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.fill("work", 1500)
        real = node.on_getjob

        def forgetting(argv):
            token = argv[argv.index(b"TOKEN") + 1]
            if (tmp_path / "failed").exists() and len(node.tokens.get(token, ())) == 1000:
                del node.tokens[token]
            return real(argv)

        node.on_getjob = forgetting
        change = partial(failing_once, marker=tmp_path / "failed")
        found = consume(spark, cluster, tmp_path, change=change, minPartitions="1")
        assert sorted(found) == sorted(set(found)) == sorted(node.acked)
        assert len(found) == 500


def test_queues_cannot_be_a_batch_source(spark):
    with pytest.raises(Exception, match="only streams read queues"):
        spark.read.format("disque").option("bootstrapServers", "a").option("subscribe", "q").load().count()
