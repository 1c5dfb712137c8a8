"""pipelines/recency.py: the tables, batch by batch, without Spark."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("duckdb", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa

from disque_py.spark.delta_store import Store, TableError
from disque_py.spark.options import OptionError
from disque_py.spark.pipelines import recency
from disque_py.spark.pipelines.recency import apply, bucket_of, latest, run_on

SCHEMA = pa.schema([("key", pa.string()), ("member", pa.string()), ("at_ms", pa.int64()), ("op", pa.string())])


def changes(*rows: tuple) -> pa.Table:
    """A batch as `newest_of` gives it: the newest change per link and member."""
    best: dict[tuple, tuple] = {}
    for op, key, member, at_ms in rows:
        place = (key, member)
        best[place] = max(best.get(place, (at_ms, op)), (at_ms, op))
    return pa.table(
        [[k for k, _ in best], [m for _, m in best], [at for at, _ in best.values()], [op for _, op in best.values()]],
        schema=SCHEMA,
    )


def test_adds_removes_and_uploads_move_members(tmp_path):
    path = str(tmp_path)
    apply(path, changes(("add", "u", "a", 1), ("add", "u", "b", 2), ("add", "v", "a", 3)), 10)
    assert latest(path, "u", 5) == [("b", 2), ("a", 1)]
    apply(path, changes(("upload", None, "a", 9)), 10)
    assert (latest(path, "u", 1), latest(path, "v", 1)) == ([("a", 9)], [("a", 9)])
    apply(path, changes(("remove", "u", "a", 10)), 10)
    assert latest(path, "u", 5) == [("b", 2)]
    assert latest(path, "nobody", 5) == []


def test_numbers_of_members_that_mean_nothing_are_refused(tmp_path):
    path = str(tmp_path)
    apply(path, changes(("add", "u", "a", 1)), 10)
    assert latest(path, "u", 0) == []
    for key in ("u", "nobody"):
        with pytest.raises(OptionError, match="count must be 0 or more, not -1"):
            latest(path, key, -1)
    with pytest.raises(OptionError, match="limit must be a number of members from 1 on, not 0"):
        run_on(None, path, limit=0)


@pytest.mark.parametrize("name", ["ü 1", "key=v", "member=v", "at_ms=0"])
def test_the_folder_may_have_any_name(tmp_path, name):
    path = str(tmp_path / name)
    apply(path, changes(("add", "u", "a", 1)), 10)
    apply(path, changes(("add", "u", "b", 2)), 10)
    assert latest(path, "u", 5) == [("b", 2), ("a", 1)]


def test_upkeep_merges_small_files_and_removes_those_that_left_the_tables(tmp_path, monkeypatch):
    path = str(tmp_path)
    for at in range(3):
        apply(path, changes(("add", "u", f"m{at}", at), ("upload", None, f"m{at}", at)), 10)
    monkeypatch.setattr(recency, "VACUUM_HOURS", 0)
    recency.tidy(path)
    assert {name: len(list((tmp_path / name).rglob("*.parquet"))) for name in recency.SCHEMAS} == {
        "links": 1,
        "uploads": 1,
        "recency": 1,
    }
    assert latest(path, "u", 5) == [("m2", 2), ("m1", 1), ("m0", 0)]


def test_late_and_repeated_changes_change_nothing(tmp_path):
    """Spec E7."""
    path = str(tmp_path)
    apply(path, changes(("remove", "u", "a", 5)), 10)
    apply(path, changes(("add", "u", "a", 4), ("add", "u", "b", 5)), 10)
    apply(path, changes(("add", "u", "b", 5)), 10)
    assert latest(path, "u", 5) == [("b", 5)]


def test_two_writers_at_once_wait_for_each_other(tmp_path):
    """A pipeline is started a second time, or again while the last batch of a killed one is still running."""
    path = str(tmp_path)
    batches = [changes(("add", "u", f"m{at}", at), ("upload", None, f"m{at - 1}", 100 + at)) for at in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda batch: apply(path, batch, 10), batches))
    assert latest(path, "u", 10) == [("m7", 7) if at == 7 else (f"m{at}", 101 + at) for at in (6, 5, 4, 3, 2, 1, 0, 7)]


def test_a_batch_that_another_machine_overtook_ends_with_one_sentence(tmp_path):
    """The lock works on one machine only."""
    path = str(tmp_path)
    apply(path, changes(("add", "u", "a", 1)), 10)
    links = Store(path).under("links").table()
    apply(path, changes(("add", "u", "b", 2)), 10)
    with pytest.raises(TableError, match=r"^another program changed the recency tables[^\n]*start this one again$"):
        recency._merge(links, links.to_pyarrow_table(), "key member", "true")


def test_a_list_that_lost_too_many_members_is_filled_from_the_source(tmp_path):
    path = str(tmp_path)
    apply(path, changes(*(("add", "u", f"m{at:02d}", at) for at in range(30))), 5)
    apply(path, changes(*(("remove", "u", f"m{at:02d}", 50) for at in range(22, 30))), 5)
    assert [member for member, _ in latest(path, "u", 5)] == ["m21", "m20", "m19", "m18", "m17"]


@pytest.mark.parametrize("seed", range(2))
def test_any_order_and_any_repetition_ends_with_the_same_lists(tmp_path, seed):
    rng = random.Random(seed)
    rows = []
    for at in range(1, 121):
        op = rng.choice(["add", "add", "remove", "upload"])
        rows.append((op, None if op == "upload" else f"u{rng.randint(0, 2)}", f"m{rng.randint(0, 11)}", at))
    links: dict[tuple, tuple] = {}
    uploads: dict[str, int] = {}
    for op, key, member, at in rows:
        if op == "upload":
            uploads[member] = max(uploads.get(member, 0), at)
        else:
            links[key, member] = max(links.get((key, member), (0, "")), (at, op))
    shuffled = [*rows, *rng.sample(rows, 40)]
    rng.shuffle(shuffled)
    while shuffled:
        apply(str(tmp_path), changes(*shuffled[:27]), 4)
        shuffled = shuffled[27:]
    for key in ("u0", "u1", "u2"):
        members = [
            (max(at, uploads.get(member, 0)), member)
            for (who, member), (at, op) in links.items()
            if (who, op) == (key, "add")
        ]
        assert latest(str(tmp_path), key, 4) == [(member, at) for at, member in sorted(members, reverse=True)[:4]]


def test_keys_are_spread_over_buckets():
    assert len({bucket_of(f"user-{number}") for number in range(200)}) == 16
