"""index_commit.py: a batch into both tables exactly once, newest wins."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa

from disque_py.spark import index_commit
from disque_py.spark.delta_store import Store, TableError
from disque_py.spark.index_commit import GapError, IndexCommit
from disque_py.spark.index_compaction import compact
from disque_py.spark.index_schema import HISTORY, IndexSchemaError, open_existing
from disque_py.spark.index_writing import IndexTask
from index_events import batch, event, index, rows

STATES = ("pending", "running", "pending", "completed")


def test_every_event_is_in_history_and_the_newest_in_current(tmp_path):
    done = index(tmp_path, batch(event(1, "a"), event(2, "b"), event(3, "a", 2, to_state="running")))
    assert (done.rows, done.jobs, done.newest_ms) == (3, 2, 1_700_000_000_003)
    assert [row["seq"] for row in rows(tmp_path, "history")] == [1, 3, 2]
    assert [(row["job_id"], row["to_state"], row["version"]) for row in rows(tmp_path, "current")] == [
        ("a", "running", 2),
        ("b", "pending", 1),
    ]


def test_a_batch_that_comes_again_changes_nothing(tmp_path):
    events = batch(event(1, "a"), event(2, "b"))
    index(tmp_path, events)
    done = index(tmp_path, events)
    assert (done.rows, done.dropped) == (0, 2)
    assert len(rows(tmp_path, "history")) == 2


def test_an_overlapping_batch_adds_only_new_events(tmp_path):
    index(tmp_path, batch(event(1, "a"), event(2, "b")))
    index(tmp_path, batch(event(2, "b"), event(3, "c")))
    assert [row["seq"] for row in rows(tmp_path, "history")] == [1, 2, 3]


def test_a_crash_between_the_two_commits_is_repaired_by_the_repetition(tmp_path):
    index(tmp_path, batch(event(1, "a")))
    events = batch(event(2, "a", 2, to_state="running"))
    index(tmp_path, events)
    max((tmp_path / "history" / "_delta_log").glob("*.json")).unlink()
    assert len(rows(tmp_path, "history")) == 1
    index(tmp_path, events)
    assert len(rows(tmp_path, "history")) == 2
    assert rows(tmp_path, "current")[0]["to_state"] == "running"


def test_events_of_a_node_are_in_history_only(tmp_path):
    started = event(1, "x") | {"job_id": None, "version": None, "queue": None, "event": "started", "to_state": None}
    index(tmp_path, batch(started))
    index(tmp_path, batch(event(2, "a")))
    assert (len(rows(tmp_path, "history")), len(rows(tmp_path, "current"))) == (2, 1)


def test_numbers_that_are_missing_are_an_error_unless_the_query_leaves_them_out(tmp_path):
    index(tmp_path, batch(event(1, "a")))
    with pytest.raises(GapError, match="events of node n1, log l1 up to 1, but the next that came is 5"):
        index(tmp_path, batch(event(5, "b")))
    with pytest.raises(GapError, match="of events 2 to 4 of node n1, log l1, only 2 came"):
        index(tmp_path, batch(event(2, "b"), event(4, "b")))
    index(tmp_path, batch(event(5, "b")), may_gap=True)
    assert [row["seq"] for row in rows(tmp_path, "history")] == [1, 5]


def test_another_log_of_the_same_node_begins_anew(tmp_path):
    index(tmp_path, batch(event(1, "a"), event(2, "b")))
    index(tmp_path, batch(event(1, "c"), log="l2"))
    assert [(row["job_id"], row["log"]) for row in rows(tmp_path, "history")] == [("a", "l1"), ("b", "l1"), ("c", "l2")]


def test_a_new_column_widens_both_tables(tmp_path):
    index(tmp_path, batch(event(1, "a")))
    wide = batch(event(2, "b"))
    index(tmp_path, wide.append_column("tenant", pa.array(["t"])))
    for table in ("history", "current"):
        assert [row["tenant"] for row in rows(tmp_path, table)] == [None, "t"]


def test_a_column_that_changes_its_type_is_refused(tmp_path):
    index(tmp_path, batch(event(1, "a")).append_column("tenant", pa.array(["t"])))
    with pytest.raises(IndexSchemaError, match="column tenant is int64"):
        index(tmp_path, batch(event(2, "a")).append_column("tenant", pa.array([7])))


@pytest.mark.parametrize("last", [{"meta": None}, {"queue": None}, {"priority": None}])
@pytest.mark.parametrize("seed", range(2))
def test_a_missing_value_never_replaces_the_value_of_an_older_event(tmp_path, seed, last):
    name = next(iter(last))
    values = {"meta": {"k": "2"}, "queue": "q2", "priority": 2}
    events = [
        batch(event(1, "a", 1, meta={"k": "1"}, queue="q1", priority=1), node="n1"),
        batch(event(1, "a", 2, **values), node="n2"),
        batch(event(1, "a", 3, **(values | last)), node="n3"),
    ]
    random.Random(seed).shuffle(events)
    for one in events:
        index(tmp_path, one)
    row = rows(tmp_path, "current")[0]
    assert row["version"] == 3
    assert row[name] == ([("k", "2")] if name == "meta" else values[name])


@pytest.mark.parametrize("seed", range(3))
def test_any_order_any_cut_any_repetition_gives_the_same_current(tmp_path, seed):
    """Jobs change on three nodes; versions tie, final states win, some events lack a queue."""
    rng = random.Random(seed)
    seqs = {"n1": 0, "n2": 0, "n3": 0}
    expected: dict[str, tuple] = {}
    queues: dict[str, tuple] = {}
    made = []
    for number in range(60):
        job_id, version = f"D-{number:03d}", 0
        for state in STATES[: rng.randint(1, 4)]:
            version += rng.random() > 0.2
            node = rng.choice(list(seqs))
            seqs[node] += 1
            queue = rng.choice([None, f"q{version}-{node}"])
            made.append((node, event(seqs[node], job_id, version, to_state=state, queue=queue)))
            key = (3 if state == "completed" else 0, version, node, seqs[node])
            expected[job_id] = max(expected.get(job_id, key), key)
            if queue is not None:
                queues[job_id] = max(queues.get(job_id, (key, queue)), (key, queue))
    rng.shuffle(made)
    made += rng.sample(made, 30)
    while made:
        part, made = made[:40], made[40:]
        by_node = {node: [one for where, one in part if where == node] for node in seqs}
        # Marks need logs in order. This test is about the merge, so every part is a log of its own.
        log = f"l{len(made)}"
        index(tmp_path, *(batch(*some, node=node, log=log) for node, some in by_node.items() if some), may_gap=True)
    found = {row["job_id"]: row for row in rows(tmp_path, "current")}
    assert {job: (row["final"], row["version"], row["node"], row["seq"]) for job, row in found.items()} == expected
    assert {job: row["queue"] for job, row in found.items() if row["queue"]} == {
        job: q for job, (_, q) in queues.items()
    }


def test_an_aborted_batch_leaves_no_file(tmp_path):
    index(tmp_path, batch(event(1, "a")))
    before = sorted(tmp_path.rglob("*.parquet"))
    part = IndexTask(Store(str(tmp_path))).write_all([batch(event(2, "b"))])
    IndexCommit(Store(str(tmp_path)), batch(event(2, "b")).schema, may_gap=False).abort([part])
    assert sorted(tmp_path.rglob("*.parquet")) == before


def test_an_abort_after_the_commit_leaves_the_files_that_the_table_has(tmp_path):
    events = batch(event(1, "a"))
    part = IndexTask(Store(str(tmp_path))).write_all([events])
    commit = IndexCommit(Store(str(tmp_path)), events.schema, may_gap=False)
    commit.commit([part])
    commit.abort([part])
    assert [row["seq"] for row in rows(tmp_path, "history")] == [1]


def test_an_abort_after_a_compaction_leaves_the_files_that_readers_may_have_listed(tmp_path):
    """The commit and the compaction succeeded, and a later step of the upkeep failed."""
    store, events = Store(str(tmp_path)), batch(event(2, "b"))
    index(tmp_path, batch(event(1, "a")))
    part = IndexTask(store).write_all([events])
    commit = IndexCommit(store, events.schema, may_gap=False)
    commit.commit([part])
    compact(store, HISTORY, open_existing(store, HISTORY))
    commit.abort([part])
    assert [(tmp_path / HISTORY / file.path).exists() for file in part.history] == [True]


def test_a_batch_that_another_query_committed_meanwhile_is_refused(tmp_path):
    """A query whose program was killed may still be committing its last batch while the next query repeats it."""
    store, events = Store(str(tmp_path)), batch(event(1, "a"), event(2, "b"))
    late = IndexTask(store).write_all([events])
    index(tmp_path, events)
    with pytest.raises(TableError, match="up to 2 from another query"):
        IndexCommit(store, events.schema, may_gap=False).commit([late])
    assert [row["seq"] for row in rows(tmp_path, "history")] == [1, 2]


def test_a_merge_that_another_machine_overtook_ends_with_one_sentence(tmp_path, monkeypatch):
    """The lock of an index works on one machine only."""
    index(tmp_path, batch(event(1, "a"), event(2, "b")))
    real = index_commit.read_staged
    others = iter([batch(event(1, "a", 3), node="n2")])

    def late(store, path):
        for other in others:
            index(tmp_path, other)
        return real(store, path)

    monkeypatch.setattr(index_commit, "read_staged", late)
    with pytest.raises(TableError, match=r"^disque-index: another query changed [^\n]*start this one again$"):
        index(tmp_path, batch(event(3, "a", 2)))
    index(tmp_path, batch(event(3, "a", 2)))
    assert [(row["job_id"], row["version"]) for row in rows(tmp_path, "current")] == [("a", 3), ("b", 1)]


def test_a_batch_that_another_query_commits_at_the_same_time_is_refused(tmp_path, monkeypatch):
    """On another machine, where the lock does not help."""
    store, events = Store(str(tmp_path)), batch(event(1, "a"))
    mine, other = IndexTask(store).write_all([events]), IndexTask(store).write_all([events])
    merge = IndexCommit._merge

    def slowly(commit, current, parts):
        if parts == [mine]:
            IndexCommit(store, events.schema, may_gap=False).commit([other])
        return merge(commit, current, parts)

    monkeypatch.setattr(IndexCommit, "_merge", slowly)
    with pytest.raises(TableError, match=r"another query changed .*; stop the other query"):
        IndexCommit(store, events.schema, may_gap=False).commit([mine])
    assert [row["seq"] for row in rows(tmp_path, "history")] == [1]


def test_a_path_that_the_driver_does_not_share_with_the_executors_is_one_sentence(tmp_path):
    part = IndexTask(Store(str(tmp_path))).write_all([batch(event(1, "a"))])
    for path in (tmp_path / "_staging").iterdir():
        path.unlink()
    with pytest.raises(TableError, match="the option path must name storage that the driver and all executors reach"):
        IndexCommit(Store(str(tmp_path)), batch(event(1, "a")).schema, may_gap=False).commit([part])


def test_a_column_of_parts_that_cannot_be_null_may_be_missing_later(tmp_path):
    """Spark makes such columns, for example by named_struct(), and the query may change."""
    parts = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    kind = pa.struct([pa.field("p", parts, nullable=False), pa.field("l", pa.list_(parts), nullable=False)])
    first = batch(event(1, "a"), event(2, "b"))
    value = {"p": {"a": 1}, "l": [{"a": 2}]}
    index(tmp_path, first.append_column("extra_parts", pa.array([value, value], kind)))
    index(tmp_path, batch(event(3, "a", 2), event(4, "c")))
    index(tmp_path, batch(event(5, "c", 2)).append_column("extra_parts", pa.array([value], kind)))
    found = {row["job_id"]: row["extra_parts"] for row in rows(tmp_path, "current")}
    assert found == {"a": None, "b": value, "c": value}
    assert [row["extra_parts"] for row in rows(tmp_path, "history")] == [value, None, value, None, value]
