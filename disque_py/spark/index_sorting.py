"""Fast sorting of rows by job, then in the documented order. Both indexes are sorted this way.

Most of the cost of sorting is comparing rows column by column, job ids first. So each id is replaced by its rank among
the ids of the rows. Rank, final, version, node and seq (those that differ between rows) become bits of one number, and
the numbers are sorted. If a number has too few bits for them, or if values are missing, Arrow compares the columns
instead. The rest of the cost is taking the rows in their new order. A column with the same value in all rows is not
touched. Needs pyarrow; knows no files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from disque_py.spark.index_schema import FINAL

JOB: Final = "job_id"
ORDER: Final = (FINAL, "version", "node", "seq")
# A signed 64 bit number has this many bits for values.
BITS: Final = 63

_Ints: TypeAlias = npt.NDArray[np.int64]


def sort_by_job(rows: pa.Table) -> pa.Table:
    """Sort by job, then in the documented order; rows without a job come last. Needs the column of `with_final`.

    A row without a version, which only older tables have, counts as version 0, so that any other event is newer.
    """
    if len(rows) < 2:
        return rows
    rows = rows.combine_chunks()
    order = _order(rows)
    if order is None:
        keys = rows.select([JOB, *ORDER])
        keys = keys.set_column(keys.column_names.index("version"), "version", pc.fill_null(keys["version"], 0))
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in (JOB, *ORDER)])
    return take_rows(rows, order)


def take_rows(rows: pa.Table, order: pa.Array | _Ints) -> pa.Table:
    """Return these rows of a table, in this order. No row may be taken twice."""
    indices = order if isinstance(order, pa.Array) else pa.array(order)
    columns = [column.slice(0, len(indices)) if _is_same(column) else column.take(indices) for column in rows.columns]
    return pa.table(columns, schema=rows.schema)


def _is_same(column: pa.ChunkedArray) -> bool:
    """Return whether all rows have the same value, as far as a quick check can tell."""
    if column.null_count:
        return bool(column.null_count == len(column))
    if pa.types.is_map(column.type):
        return all(chunk.offsets[0] == chunk.offsets[len(chunk)] for chunk in column.chunks)
    if not pa.types.is_string(column.type) or column[0] != column[len(column) - 1]:
        return False
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def _order(rows: pa.Table) -> _Ints | None:
    """Return the order of the rows, or None if it does not fit into one number."""
    final, version, node, seq = (rows[name] for name in ORDER)
    if final.null_count or node.null_count or seq.null_count:
        return None
    key = _bits_of([_ranks(rows[JOB]), final.to_numpy(), version.fill_null(0).to_numpy(), _ranks(node), seq.to_numpy()])
    return None if key is None else np.argsort(key)


def _ranks(column: pa.ChunkedArray) -> _Ints:
    """Return the rank of each text among all of them; nulls come last."""
    encoded = pc.dictionary_encode(column).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    count = len(encoded.dictionary)
    ranks = np.empty(count + 1, np.int64)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(count)
    ranks[count] = count
    found: _Ints = ranks[encoded.indices.fill_null(count).to_numpy()]
    return found


def _bits_of(columns: Iterable[npt.NDArray[np.signedinteger]]) -> _Ints | None:
    """Pack numbers into one, the first in its highest bits; return None if they need too many bits."""
    key: _Ints | None = None
    bits = 0
    for column in columns:
        low, high = int(column.min()), int(column.max())
        width = (high - low).bit_length()
        bits += width
        if bits > BITS:
            return None
        own = column.astype(np.int64) - low
        key = own if key is None else (key << width) | own
    return key
