"""index_sorting.py: one number per row sorts as the columns do."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa
import pyarrow.compute as pc

from disque_py.spark.index_newest import with_final
from disque_py.spark.index_sorting import ORDER, sort_by_job, take_rows
from index_events import batch, event

KEYS = [(name, "ascending") for name in ("job_id", *ORDER)]


def by_columns(rows: pa.Table) -> pa.Table:
    return rows.take(pc.sort_indices(rows, sort_keys=KEYS))


@pytest.mark.parametrize("version_max", [5, 2**62])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_sorted_as_their_columns_compare(seed, version_max):
    """Some versions leave enough bits for the other columns, some don't."""
    rng = random.Random(seed)
    batches = [
        batch(
            *(
                event(
                    seq, rng.choice(["a", "b", "é", "D-17", None]), rng.randint(1, version_max),
                    to_state=rng.choice(["pending", "completed", "canceled", None]),
                )
                for seq in rng.sample(range(100), 30)
            ),
            node=node,
        )
        for node in ("n2", "n1", "n3")
    ]  # fmt: skip
    rows = with_final(pa.Table.from_batches(batches))
    assert sort_by_job(rows).to_pylist() == by_columns(rows).to_pylist()


def test_rows_without_a_version_are_the_oldest_of_their_job_and_those_of_the_node_come_last():
    """Only older tables have such rows. They won for ever before."""
    rows = [
        event(1, "a", 3),
        event(2, "a", 2) | {"version": None},
        event(3, None) | {"version": None},
        event(4, "a", 5),
    ]
    found = sort_by_job(with_final(pa.Table.from_batches([batch(*rows)])))
    assert found["seq"].to_pylist() == [2, 1, 4, 3]


def test_columns_with_one_value_in_all_rows_stay_correct():
    rows = pa.table(
        {
            "text": ["x", "y", "x"],
            "same": ["x", "x", "x"],
            "null": pa.nulls(3, pa.string()),
            "some": ["x", None, "x"],
            "empty": pa.array([[], [], []], pa.map_(pa.string(), pa.string())),
            "maps": pa.array([[], [("k", "v")], []], pa.map_(pa.string(), pa.string())),
        }
    )
    order = [2, 0, 1]
    assert take_rows(rows, pa.array(order)).to_pylist() == [rows.to_pylist()[at] for at in order]
    assert take_rows(rows.slice(1), pa.array([1, 0])).to_pylist() == [rows.to_pylist()[at] for at in (2, 1)]


def test_no_rows_and_one_row_are_sorted():
    rows = with_final(pa.Table.from_batches([batch(event(1, "a"))]))
    assert sort_by_job(rows) == rows
    assert len(sort_by_job(rows.slice(0, 0))) == 0
