"""index_newest.py: the newest event of each job, in whatever order events come."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa

from disque_py.spark.index_newest import newest, order_key, with_final
from disque_py.spark.index_sorting import sort_by_job
from index_events import batch, event


def newest_of(*batches: pa.RecordBatch) -> list[dict]:
    return newest(sort_by_job(with_final(pa.Table.from_batches(batches)))).to_pylist()


def test_the_final_state_wins_then_the_version_then_the_node():
    done = batch(event(1, "a", 2, to_state="completed"), event(2, "a", 9, to_state="errored"))
    tie = [batch(event(7, "b", 3), node="n1"), batch(event(1, "b", 3), node="n2")]
    assert [(row["to_state"], row["node"]) for row in newest_of(done, *tie)] == [("completed", "n1"), ("pending", "n2")]


def test_an_event_of_an_unknown_kind_leaves_the_state_and_its_version():
    """A later version of a node writes events that this version doesn't know."""
    unknown = event(2, "a", 9, event="unknown", to_state=None, queue="other")
    running = event(1, "a", 2, to_state="running", queue=None)
    for one, other in ((unknown, running), (running, unknown)):
        (row,) = newest_of(batch(one), batch(other, node="n2"))
        assert (row["to_state"], row["version"], row["queue"]) == ("running", 2, "other")
    assert [row["to_state"] for row in newest_of(batch(unknown))] == [None]


def test_keys_as_text_compare_as_the_order_does():
    events = [event(9, "a", 10), event(10, "a", 9), event(11, "a", 9), event(12, "a", 99, to_state=None)]
    rows = with_final(pa.Table.from_batches([batch(*events)]))
    keys = order_key(rows).to_pylist()
    assert sorted(keys) == [keys[3], keys[1], keys[2], keys[0]]


@pytest.mark.parametrize("seed", range(5))
def test_reducing_in_parts_is_reducing_at_once(seed):
    """This includes missing values, which come from the newest event that has one."""
    rng = random.Random(seed)
    batches = [
        batch(
            *(
                event(
                    seq, f"D-{rng.randint(0, 3)}", rng.randint(1, 5), queue=rng.choice([None, f"q{rng.randint(0, 9)}"]),
                    meta=rng.choice([None, {}, {"k": str(seq)}]), priority=rng.choice([None, seq]),
                    to_state=rng.choice([None, "pending", "running"]),
                )
                for seq in range(20)
            ),
            node=node,
        )
        for node in ("n1", "n2", "n3")
    ]  # fmt: skip
    whole = newest_of(*batches)
    rng.shuffle(batches)
    parts = [newest(sort_by_job(with_final(pa.Table.from_batches([one])))) for one in batches]
    first = newest(sort_by_job(pa.concat_tables(parts[:2])))
    again = newest(sort_by_job(pa.concat_tables([first, parts[2], first])))
    assert again.to_pylist() == whole


def test_no_events_give_no_rows():
    assert newest_of(batch(event(1, "a")).slice(0, 0)) == []
