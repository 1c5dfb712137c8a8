"""index_changes.py: changes of old jobs wait, so that the cost of a batch follows the batch."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("duckdb", reason="the extra disque-py[spark] is not installed")

import duckdb
import numpy as np
from deltalake import DeltaTable

from disque_py.spark import index_changes, index_merge
from disque_py.spark.delta_store import Store
from disque_py.spark.index_changes import ChangesTable, choose, owners
from disque_py.spark.index_current import current_parts, read_part
from disque_py.spark.index_merge import SpanFile, span_files
from disque_py.spark.index_reading import schema_of
from disque_py.spark.index_schema import CHANGES, CURRENT
from disque_py.spark.query.tables import open_index
from disque_py.spark.upkeep import settle
from index_events import batch, event, index, rows

HOUR_S = 3_600
FILES = [SpanFile(name, 1, 50, at, at + 49) for name, at in zip("abcd", (0, 50, 100, 150), strict=True)]


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(index_merge, "FILE_ROWS", 10)
    monkeypatch.setattr(index_merge, "SMALL_ROWS", 3)
    monkeypatch.setattr(index_changes, "AT_ONCE_ROWS", 10)
    monkeypatch.setattr(index_changes, "ROWS_PER_CHANGE", 4)


def jobs(first: int, after: int, seq: int, **fields):
    """One event for each job of a span; job n was created at moment n."""
    return batch(*(event(seq + at - first, f"D-{at:03d}", ctime=at, **fields) for at in range(first, after)))


def acks(seq: int, *numbers: int):
    """The acks of these jobs; they lack queue and meta."""
    gone = {"to_state": "completed", "event": "acked", "queue": None, "meta": None}
    return batch(*(event(seq + at, f"D-{number:03d}", 2, ctime=number, **gone) for at, number in enumerate(numbers)))


def paths(path) -> set[str]:
    return {file.path for file in span_files(Store(str(path)).under(CURRENT).table())}


def seen(path) -> list[dict]:
    """The rows that Spark's reader gives, by job."""
    store = Store(str(path))
    schema = schema_of(store, CURRENT)
    found = [
        row for part in current_parts(store) for rows in read_part(store, part, schema) for row in rows.to_pylist()
    ]
    return sorted(found, key=lambda row: row["job_id"])


def asked(path) -> list[tuple]:
    """The rows that disque-query sees, by job."""
    with open_index(str(path)) as db:
        return db.execute("SELECT job_id, to_state, queue, version FROM current ORDER BY job_id").fetchall()


def test_scattered_acks_rewrite_the_newest_file_alone(tmp_path):
    index(tmp_path, jobs(0, 40, 1))
    before = paths(tmp_path)
    index(tmp_path, acks(41, 5, 15, 25, 35), merge_every_s=HOUR_S)
    assert len(before & paths(tmp_path)) == 3
    assert [row["to_state"] for row in rows(tmp_path, CURRENT)].count("completed") == 1
    assert [row["job_id"] for row in rows(tmp_path, CHANGES)] == ["D-005", "D-015", "D-025"]


def test_readers_see_changes_that_wait(tmp_path):
    index(tmp_path, jobs(0, 40, 1))
    index(tmp_path, acks(41, 5, 15, 25, 35), merge_every_s=HOUR_S)
    done = [f"D-{number:03d}" for number in (5, 15, 25, 35)]
    assert [row["job_id"] for row in seen(tmp_path) if row["to_state"] == "completed"] == done
    assert [row for row in asked(tmp_path) if row[1] == "completed"] == [(job, "completed", "q", 2) for job in done]
    assert len(seen(tmp_path)) == len(asked(tmp_path)) == 40
    assert {row["queue"] for row in seen(tmp_path)} == {"q"}


def test_settling_merges_all_that_waits(tmp_path):
    index(tmp_path, jobs(0, 40, 1))
    index(tmp_path, acks(41, 5, 15, 25, 35), merge_every_s=HOUR_S)
    settle(Store(str(tmp_path)), HOUR_S)
    assert len(rows(tmp_path, CHANGES)) == 3
    before = seen(tmp_path)
    settle(Store(str(tmp_path)), 0)
    assert rows(tmp_path, CHANGES) == []
    assert sorted(rows(tmp_path, CURRENT), key=lambda row: row["job_id"]) == seen(tmp_path) == before


def test_a_change_that_waited_long_enough_is_merged_by_the_next_batch(tmp_path, monkeypatch):
    index(tmp_path, jobs(0, 40, 1))
    index(tmp_path, acks(41, 5, 15, 25), merge_every_s=1)
    waiting = ChangesTable(Store(str(tmp_path))).oldest_ms()
    monkeypatch.setattr(index_merge.time, "time_ns", lambda: (waiting + 1000) * 1_000_000)
    index(tmp_path, jobs(40, 41, 44), merge_every_s=1)
    assert ChangesTable(Store(str(tmp_path))).oldest_ms() is None
    assert [row["to_state"] for row in rows(tmp_path, CURRENT)].count("completed") == 3


def test_a_file_with_many_changes_is_rewritten_at_once():
    changed = np.array([1, 2, 3, 60])
    chosen = choose(FILES, changed, np.full(4, 7), 7, 1000, 3)
    assert chosen.waits.tolist() == [True, True, True, True]
    many = np.arange(0, 13)
    assert not choose(FILES, many, np.full(13, 7), 7, 1000, 3).waits.any()


def test_a_file_waits_since_its_oldest_change():
    chosen = choose(FILES, np.array([1, 2, 60]), np.array([3, 7, 7]), 7, 1000, 3)
    assert chosen.since_ms.tolist() == [3, 3, 7]
    assert choose(FILES, np.array([1, 2, 60]), np.array([3, 7, 7]), 1003, 1000, 3).waits.tolist() == [
        False,
        False,
        True,
    ]


def test_rows_of_no_file_of_several_and_of_small_files_do_not_wait():
    small = SpanFile("e", 1, 2, 300, 310)
    doubled = SpanFile("f", 1, 50, 340, 399), SpanFile("g", 1, 50, 350, 380)
    files = [*FILES, small, *doubled]
    assert owners(files, np.array([49, 50, 250, 305, 345, 360, 390]), 3).tolist() == [0, 1, -1, -1, 5, -1, -1]
    assert owners([], np.array([1]), 3).tolist() == [-1]


@pytest.mark.parametrize("seed", range(3))
def test_any_batches_give_readers_the_newest_row_of_each_job(tmp_path, seed):
    """This holds whether changes wait, are merged, or came before."""
    rng = random.Random(seed)
    plain, held = tmp_path / "plain", tmp_path / "held"
    seq = known = 0
    for _ in range(10):
        new = range(known, known + rng.choice([0, 12]))
        known = max(known + len(new), 1)
        made = []
        for number in [*new, *(rng.randrange(known) for _ in range(rng.randrange(1, 9)))]:
            seq += 1
            fields = {"queue": rng.choice([None, "q", "r"]), "meta": rng.choice([None, {"k": str(seq)}])}
            ctime = number if rng.random() < 0.98 else None
            made.append(event(seq, f"D-{number:03d}", rng.randrange(1, 50), ctime=ctime, **fields))
        index(plain, batch(*made))
        index(held, batch(*made), merge_every_s=HOUR_S)
        assert seen(held) == rows(plain, CURRENT)
        assert asked(held) == asked(plain)
    settle(Store(str(held)), 0)
    assert rows(held, CURRENT) == rows(plain, CURRENT)


def test_the_view_of_the_documentation_shows_what_disque_query_shows(tmp_path):
    index(tmp_path, jobs(0, 40, 1))
    index(tmp_path, acks(41, 5, 15, 25, 35), merge_every_s=HOUR_S)
    page = (Path(__file__).parents[3] / "docs/spark.md").read_text(encoding="utf-8")
    sql = re.search(r"```sql\n(CREATE VIEW jobs.*?)```", page, re.DOTALL)
    assert sql is not None
    db = duckdb.connect()
    for name in (CURRENT, CHANGES):
        db.register(name, DeltaTable(str(tmp_path / name)).to_pyarrow_table())
    db.execute(sql[1])
    assert db.execute("SELECT job_id, to_state, queue, version FROM jobs ORDER BY job_id").fetchall() == asked(tmp_path)
