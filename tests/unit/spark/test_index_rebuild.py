"""index_rebuild.py: `current` is rebuilt from history, and never begun anew silently."""

from __future__ import annotations

import random
import shutil

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark import index_rebuild
from disque_py.spark.delta_store import Store, TableError
from disque_py.spark.index_merge import CurrentMerge
from disque_py.spark.index_rebuild import rebuild
from disque_py.spark.index_schema import open_existing
from index_events import batch, event, index, rows

LOST = "has events in its table history and no table current.*disque-pipeline rebuild"


def make(path, seed: int = 0) -> None:
    """Seven jobs in five batches; some events lack a queue, some a creation time."""
    rng = random.Random(seed)
    seq = 0
    for _ in range(5):
        made = []
        for number in range(7):
            seq += 1
            fields = {"queue": rng.choice([None, f"q{seq}"]), "ctime": rng.choice([None, number])}
            made.append(event(seq, f"D-{number}", rng.randrange(4), meta=rng.choice([None, {"k": str(seq)}]), **fields))
        made.append(event(seq + 1, "x") | {"job_id": None, "version": None, "to_state": None})
        seq += 1
        index(path, batch(*made))


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize("seed", range(3))
def test_a_lost_table_is_rebuilt_as_it_was(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(index_rebuild, "ROWS", 10)
    make(tmp_path, seed)
    before = rows(tmp_path, "current")
    shutil.rmtree(tmp_path / "current")
    assert rebuild(Store(str(tmp_path))) == (40, 7)
    assert rows(tmp_path, "current") == before
    assert rebuild(Store(str(tmp_path))) == (40, 7)  # A second rebuild does no harm.
    assert rows(tmp_path, "current") == before


def test_batches_wait_for_the_end_of_a_rebuild_that_was_interrupted(tmp_path, monkeypatch):
    """The table has some of its jobs, so it is not missing."""
    make(tmp_path)
    shutil.rmtree(tmp_path / "current")
    with monkeypatch.context() as broken:
        broken.setattr(CurrentMerge, "merge", failing(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            rebuild(Store(str(tmp_path)))
    with pytest.raises(TableError, match=r"rebuild was interrupted or still runs.*disque-pipeline rebuild"):
        index(tmp_path, batch(event(41, "D-0", 9)))
    rebuild(Store(str(tmp_path)))
    index(tmp_path, batch(event(41, "D-0", 9)))
    assert len(rows(tmp_path, "current")) == 7


def test_a_table_that_a_killed_rebuild_has_just_made_is_not_taken_for_a_complete_one(tmp_path, monkeypatch):
    make(tmp_path)
    shutil.rmtree(tmp_path / "current")
    with monkeypatch.context() as killed:
        killed.setattr(index_rebuild, "_note", failing(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            rebuild(Store(str(tmp_path)))
    with pytest.raises(TableError, match="rebuild was interrupted or still runs"):
        index(tmp_path, batch(event(41, "D-0", 9)))


def test_a_batch_never_begins_a_lost_table_anew(tmp_path):
    """The new table would hold the jobs of that batch alone, and look complete."""
    make(tmp_path)
    shutil.rmtree(tmp_path / "current")
    with pytest.raises(TableError, match=LOST):
        index(tmp_path, batch(event(41, "D-0", 9)))
    with pytest.raises(TableError, match=LOST):
        open_existing(Store(str(tmp_path)), "current")
    rebuild(Store(str(tmp_path)))
    index(tmp_path, batch(event(41, "D-0", 9)))
    assert len(rows(tmp_path, "current")) == 7


def test_columns_that_a_query_has_added_are_rebuilt_too(tmp_path):
    import pyarrow as pa

    index(tmp_path, batch(event(1, "a")).append_column("tenant", pa.array(["t"])))
    shutil.rmtree(tmp_path / "current")
    rebuild(Store(str(tmp_path)))
    assert rows(tmp_path, "current")[0]["tenant"] == "t"


def test_there_is_nothing_to_rebuild_without_a_history(tmp_path):
    with pytest.raises(TableError, match="has no table history"):
        rebuild(Store(str(tmp_path)))
