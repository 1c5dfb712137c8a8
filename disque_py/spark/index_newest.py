"""Reduction of events, or of rows of `current`, to the newest one of each job.

The order is (final, version, node, seq). A final state wins, then the higher version. On two sides of a network
partition, two nodes may issue the same version; then the node id decides. An event of a kind that this version does
not know has no state. Any other event of its job counts as newer, so the job keeps its state.

Taking the newest is commutative, associative and idempotent. So batches may come in any order, twice, or in parts.
Needs pyarrow; knows no files.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from disque_py.event_format import FINAL_RANKS_BY_NAME, UNKNOWN_RANK
from disque_py.spark.index_schema import FINAL, STICKY

# The largest 64 bit number has this many digits. Keys are compared as text.
DIGITS: Final = 19


def with_final(events: pa.Table) -> pa.Table:
    """Add the column `final`: the rank of the state that an event leads to."""
    ranks = pc.if_else(events["to_state"].is_null(), pa.scalar(UNKNOWN_RANK, pa.int32()), pa.scalar(0, pa.int32()))
    for state, rank in FINAL_RANKS_BY_NAME.items():
        ranks = pc.if_else(pc.equal(pc.fill_null(events["to_state"], ""), state), pa.scalar(rank, pa.int32()), ranks)
    return events.append_column(FINAL, ranks)


def newest(rows: pa.Table) -> pa.Table:
    """Return one row per job. `rows` are sorted by `sort_by_job`: events, or results of this function."""
    jobs = rows["job_id"].combine_chunks()
    if len(jobs) == 0:
        last = pa.array([], pa.bool_())
    else:
        last = pa.concat_arrays([_whole(pc.not_equal(jobs[1:], jobs[:-1])), pa.array([True])])
    winners = rows if pc.all(last).as_py() else rows.filter(last)
    for name in STICKY:
        winners = _fill(winners, rows, name)
    return winners


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _fill(winners: pa.Table, rows: pa.Table, name: str) -> pa.Table:
    """Fill column `name` where the newest event has no value: take it from the newest event that has one."""
    key = f"{name}_key"
    if key not in rows.column_names:
        rows = rows.append_column(key, pa.nulls(len(rows), pa.string()))
        winners = winners.append_column(key, pa.nulls(len(winners), pa.string()))
    if name not in rows.column_names:
        return winners
    # A row that took its value from another event may have an older value than a row before it.
    if not winners[name].null_count and winners[key].null_count == len(winners):
        return winners
    weak = winners.filter(pc.or_(winners[name].is_null(), winners[key].is_valid()))
    known = rows.filter(pc.and_(rows[name].is_valid(), pc.is_in(rows["job_id"], weak["job_id"].combine_chunks())))
    if not len(known):
        return winners
    known = known.set_column(known.column_names.index(key), key, pc.coalesce(known[key], order_key(known)))
    known = known.select(["job_id", name, key]).take(
        pc.sort_indices(known, sort_keys=[("job_id", "ascending"), (key, "ascending")])
    )
    jobs = _whole(known["job_id"])
    known = known.filter(pa.concat_arrays([_whole(pc.not_equal(jobs[1:], jobs[:-1])), pa.array([True])]))
    at = pc.index_in(winners["job_id"], _whole(known["job_id"]))
    use = pc.and_(at.is_valid(), pc.or_(winners[name].is_null(), winners[key].is_valid()))
    values = pc.if_else(use, known[name].take(_whole(at)), winners[name])
    found = known[key].take(_whole(at))
    # The newest event's own value needs no key.
    own = pc.equal(found, order_key(winners))
    keys = pc.if_else(pc.and_(use, pc.invert(pc.fill_null(own, False))), found, pc.if_else(use, None, winners[key]))
    winners = winners.set_column(winners.column_names.index(name), name, values)
    return winners.set_column(winners.column_names.index(key), key, keys.cast(pa.string()))


def order_key(rows: pa.Table) -> pa.ChunkedArray:
    """Return the documented order as text that compares the same way."""
    return pc.binary_join_element_wise(
        rows[FINAL].cast(pa.string()),
        pc.utf8_lpad(pc.fill_null(rows["version"], 0).cast(pa.string()), DIGITS, "0"),
        rows["node"],
        pc.utf8_lpad(rows["seq"].cast(pa.string()), DIGITS, "0"),
        "/",
    )
