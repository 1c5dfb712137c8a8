# ruff: noqa: E402 — the import path comes first
"""Measure 300 acks of old jobs in the table `current`: waiting, merged immediately, and with deltalake's own merge.

    python tests/benchmarks/merge_figures.py [--rows 200000 1000000 5000000] [--rounds 3]

Needs the extra disque-py[spark], but no Spark and no node. *Scattered* acks belong to jobs from the whole table.
*Together* means jobs that were created one after another, such as those of a queue with a backlog. *Waiting* is the
index as it is: changes that would touch many files wait for `mergeEvery`. *Settling* merges the changes of all rounds.
*Depth* is this question of disque-query while changes wait. On a shared machine, compare the CPU times.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

import numpy as np
import pyarrow as pa

from disque_py.spark.delta_store import Store
from disque_py.spark.event_schema import ARROW_SCHEMA
from disque_py.spark.index_merge import CurrentMerge, span_files
from disque_py.spark.index_newest import newest, with_final
from disque_py.spark.index_schema import CURRENT, open_tables
from disque_py.spark.index_sorting import sort_by_job
from disque_py.spark.query.questions import depth
from disque_py.spark.query.tables import open_index
from disque_py.spark.upkeep import settle

BUILT_AT_A_TIME = 500_000
ACKS = 300
# Jobs were created a millisecond apart.
FIRST_CTIME = 1_700_000_000_000_000_000
STEP = 1_000_000
NEWER = (
    "s.final > t.final OR (s.final = t.final AND (s.version > t.version OR (s.version = t.version AND "
    "(s.node > t.node OR (s.node = t.node AND s.seq > t.seq)))))"
)


def events(numbers: np.ndarray, ids: list[str], state: str, version: int, seq: int) -> pa.Table:
    """Return the newest events of these jobs, reduced as a task does it."""
    count = len(numbers)
    created = FIRST_CTIME + numbers * STEP
    values: dict[str, Any] = {
        "node": ["a" * 40] * count,
        "log": ["log"] * count,
        "seq": np.arange(seq, seq + count),
        "ts": pa.array(created // 1000 + version * 1000).cast(pa.timestamp("us", "UTC")),
        "job_id": [ids[number] for number in numbers],
        "ctime": created,
        "queue": [f"q{number % 5}" for number in numbers],
        "version": np.full(count, version),
        "event": [state] * count,
        "to_state": [state] * count,
        "priority": created // STEP,
        "meta": [[("carrier", "UA")]] * count,
        "body_size": np.full(count, 75),
        "v": np.ones(count, np.int64),
    }
    columns = [pa.array(values.get(field.name, pa.nulls(count, field.type)), field.type) for field in ARROW_SCHEMA]
    return newest(sort_by_job(with_final(pa.table(columns, schema=ARROW_SCHEMA))))


def build(store: Store, rows: int) -> list[str]:
    """Build a table with this number of jobs, and return their ids."""
    open_tables(store, ARROW_SCHEMA)
    chance = np.random.default_rng(1)
    ids = [f"D-dcb833cf-{chance.bytes(12).hex()}-05a1" for _ in range(rows)]
    for at in range(0, rows, BUILT_AT_A_TIME):
        numbers = np.arange(at, min(rows, at + BUILT_AT_A_TIME))
        ours(store, events(numbers, ids, "pending", 1, at + 1))
    return ids


def ours(store: Store, rows: pa.Table) -> None:
    """Merge as the index does, without waiting changes."""
    CurrentMerge(store, store.under(CURRENT).table()).merge([rows])


def waiting(store: Store, rows: pa.Table) -> None:
    """Merge as the index does, with waiting changes."""
    CurrentMerge(store, store.under(CURRENT).table(), merge_every_s=86_400).merge([rows])


def timed(name: str, work: Callable[[], object]) -> None:
    """Do something once, and print the time and the CPU time."""
    cpu, began = time.process_time(), time.perf_counter()
    work()
    print(f"  {name:<21} {time.perf_counter() - began:6.2f} s, CPU {time.process_time() - cpu:6.2f} s", flush=True)


def ask_depth(store: Store) -> None:
    """Open the index, and ask for the depth as disque-query does."""
    with open_index(store.path) as db:
        depth(db)


def theirs(store: Store, rows: pa.Table) -> None:
    """Merge with deltalake's merge, with the same rule for newer rows."""
    merge = store.under(CURRENT).table().merge(rows, "t.job_id = s.job_id", source_alias="s", target_alias="t")
    merge.when_matched_update_all(NEWER).when_not_matched_insert_all().execute()


def written(store: Store) -> int:
    """Return the bytes of all data files, including files that left the table."""
    return sum(file.stat().st_size for file in store.local_path.rglob("*.parquet"))


def measure(rows: int, rounds: int) -> None:
    """Measure all merges on the same table."""
    with tempfile.TemporaryDirectory(prefix="disque-merge-") as folder:
        store, copy, other = Store(f"{folder}/ours"), Store(f"{folder}/theirs"), Store(f"{folder}/waiting")
        ids = build(store, rows)
        files = span_files(store.under(CURRENT).table())
        size = sum(file.size for file in files)
        print(f"{rows:,} rows, {len(files)} files, {size / 1e6:.1f} MB, load {os.getloadavg()[0]:.1f}", flush=True)
        for place in (copy, other):
            shutil.copytree(store.path, place.path)
        chance = np.random.default_rng(2)
        for where in ("scattered", "together"):
            for name, merge, place in (
                ("waiting", waiting, other),
                ("at once", ours, store),
                ("deltalake", theirs, copy),
            ):
                spent = []
                for round_number in range(rounds):
                    if where == "scattered":
                        numbers = np.sort(chance.choice(rows, ACKS, replace=False))
                    else:
                        numbers = np.arange(ACKS) + int(chance.integers(rows - ACKS))
                    batch = events(numbers, ids, "completed", 2, rows + 1 + round_number * ACKS)
                    before, cpu, began = written(place), time.process_time(), time.perf_counter()
                    merge(place, batch)
                    spent.append((time.perf_counter() - began, time.process_time() - cpu, written(place) - before))
                seconds, cpu, more = (statistics.median(column) for column in zip(*spent, strict=True))
                print(
                    f"  {where:<10} {name:<10} {seconds:6.2f} s, CPU {cpu:6.2f} s, {more / 1e6:6.1f} MB written",
                    flush=True,
                )
        timed("depth", lambda: ask_depth(store))
        timed("depth, some waiting", lambda: ask_depth(other))
        timed("settling", lambda: settle(other, 0))


def main() -> None:
    """Measure every size of the command line."""
    parser = argparse.ArgumentParser(description="Cost of a merge into current.")
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000, 5_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    words = parser.parse_args()
    for rows in words.rows:
        measure(rows, words.rounds)


if __name__ == "__main__":
    main()
