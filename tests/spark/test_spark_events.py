"""Event logs as a DataFrame; the streaming side is in test_spark_index.py."""

from __future__ import annotations

import pytest

from spark_stub import StubCluster


def test_a_batch_read_is_everything_in_the_logs(spark):
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.events(4)
        read = (
            spark.read.format("disque-events").option("bootstrapServers", cluster.servers).option("minPartitions", "4")
        )
        rows = read.load().select("node", "seq", "meta", "ts").collect()
        assert sorted((row.node, row.seq) for row in rows) == [
            (node.id, seq) for node in cluster.nodes for seq in range(4)
        ]


def test_logs_without_an_event_give_no_rows(spark):
    with StubCluster() as cluster:
        assert spark.read.format("disque-events").option("bootstrapServers", cluster.servers).load().count() == 0


def test_other_columns_in_schema_are_refused(spark):
    with pytest.raises(Exception, match=r"the source defines its columns, and .schema\(a\) has others"):
        spark.read.format("disque-events").schema("a int").option("bootstrapServers", "a").load().count()


def test_options_that_make_no_sense_are_one_sentence(spark):
    with pytest.raises(Exception, match="has no option 'startingoffset'; did you mean startingOffsets"):
        spark.read.format("disque-events").option("bootstrapServers", "a").option("startingOffset", "1").load().count()
