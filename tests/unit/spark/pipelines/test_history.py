"""pipelines/history.py: keys of metadata as columns, and which days a result lacks."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa
import pyarrow.compute as pc

from disque_py.spark.delta_store import Store, TableError
from disque_py.spark.index_lock import write_lock
from disque_py.spark.options import OptionError
from disque_py.spark.pipelines import depth, errors, history, latency
from disque_py.spark.pipelines.history import CTIMES_PER_MS, Plan, columns_of, events_before, plan_of, save
from index_events import TS, batch, event, index


def test_keys_become_columns():
    assert columns_of(["carrier"]) == (", coalesce(meta['carrier'], '') AS `_meta_0`", ", `_meta_0`")
    assert columns_of([]) == ("", "")


@pytest.mark.parametrize("key", ["", "a'b", "a`b", "a\nb", "x" * 201])
def test_a_key_that_could_be_sql_is_refused(key):
    with pytest.raises(OptionError, match="can't be a key of metadata"):
        columns_of([key])


CONF = SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"})
DAY_MS = 86_400_000
MIDNIGHT = datetime(2023, 11, 16, tzinfo=UTC)


def made_of(path, name: str = "errors", moment: str = "hour", **options: Any) -> Plan:
    """As a pipeline does it: rows of every day, kept with what they were made of."""
    plan = plan_of(CONF, str(path), name, moment, options)
    moments = [datetime.fromisoformat(f"{day}T12:00:00+00:00") for day in plan.days]
    rows = pa.table({moment: pa.array(moments, pa.timestamp("us", "UTC"))})
    first = pa.scalar(plan.first, pa.timestamp("us", "UTC"))
    save(rows.filter(pc.greater_equal(rows[moment], first)) if plan.first else rows, str(path), name, plan)
    return plan_of(CONF, str(path), name, moment, options)


def test_only_days_from_the_first_changed_one_are_computed_again(tmp_path):
    index(tmp_path, batch(event(1, "a"), event(2, "b", ts=TS + DAY_MS)))
    assert plan_of(CONF, str(tmp_path), "errors", "hour", {}).first is None
    assert made_of(tmp_path).is_done
    index(tmp_path, batch(event(3, "c", ts=TS + 2 * DAY_MS), event(4, "a", 2, ts=TS + 2 * DAY_MS)))
    plan = plan_of(CONF, str(tmp_path), "errors", "hour", {})
    assert (plan.first, plan.since, len(plan.kept)) == (MIDNIGHT, "2023-11-16", 2)
    index(tmp_path, batch(event(5, "late", ts=TS + DAY_MS)))
    assert plan_of(CONF, str(tmp_path), "errors", "hour", {}).since == "2023-11-15"
    assert made_of(tmp_path).is_done


def test_the_files_of_earlier_runs_are_removed_and_the_next_run_finds_the_note(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "VACUUM_HOURS", 0)
    for number in range(1, 4):
        index(tmp_path, batch(event(number, "a", number)))
        assert made_of(tmp_path).is_done
    assert len(list((tmp_path / "errors").glob("*.parquet"))) == 1


@pytest.mark.parametrize(
    ("pipeline", "moment", "options"),
    [(depth, "at", {"by": [], "bucket": 60}), (latency, "hour", {"by": []}), (errors, "hour", {"by": []})],
)
def test_a_second_run_waits_for_the_first_and_then_has_nothing_to_compute(tmp_path, pipeline, moment, options):
    index(tmp_path, batch(event(1, "a")))
    name = pipeline.__name__.rpartition(".")[2]
    found: list[Any] = []
    second = threading.Thread(target=lambda: found.append(pipeline.run(CONF, str(tmp_path))))
    with write_lock(Store(str(tmp_path)).under(name)):
        second.start()
        second.join(0.1)
        assert second.is_alive()
        made_of(tmp_path, name, moment, **options)
    second.join()
    assert [len(rows) for rows in found] == [1]


def test_a_run_that_another_machine_overtook_ends_with_one_sentence(tmp_path, monkeypatch):
    """The lock works on one machine only."""
    index(tmp_path, batch(event(1, "a")))
    made_of(tmp_path)
    before = Store(str(tmp_path)).under("errors").table()
    made_of(tmp_path, by=["k"])
    write = history.write_deltalake
    monkeypatch.setattr(history, "write_deltalake", lambda _, *rows, **given: write(before, *rows, **given))
    with pytest.raises(TableError, match=r"^another program changed [^\n]*errors while[^\n]*has ended$"):
        made_of(tmp_path, by=["l"])
    assert plan_of(CONF, str(tmp_path), "errors", "hour", {"by": ["k"]}).is_done


def test_a_bucket_of_no_seconds_is_refused(tmp_path):
    index(tmp_path, batch(event(1, "a")))
    with pytest.raises(OptionError, match="bucket_s must be a number of seconds from 1 on, not 0"):
        depth.run(CONF, str(tmp_path), bucket_s=0)


def test_a_table_made_with_other_options_is_made_anew(tmp_path):
    index(tmp_path, batch(event(1, "a"), event(2, "b", ts=TS + DAY_MS)))
    made_of(tmp_path)
    assert plan_of(CONF, str(tmp_path), "errors", "hour", {"by": ["k"]}).kept is None
    elsewhere = SimpleNamespace(conf={"spark.sql.session.timeZone": "Asia/Kolkata"})
    assert plan_of(elsewhere, str(tmp_path), "errors", "hour", {}).kept is None
    assert plan_of(CONF, str(tmp_path), "errors", "hour", {}, since="2023-11-15").kept is None


def test_bounds_without_a_day_between_them_are_refused_and_the_table_stays(tmp_path):
    index(tmp_path, batch(event(1, "a")))
    made_of(tmp_path)
    with pytest.raises(OptionError, match="errors: since is 2023-11-15, which is after until, 2023-11-14; no day is"):
        plan_of(CONF, str(tmp_path), "errors", "hour", {}, since="2023-11-15", until="2023-11-14")
    assert made_of(tmp_path).is_done


def test_days_that_retention_removed_from_history_stay_in_the_results(tmp_path):
    index(tmp_path, batch(event(1, "a"), event(2, "b", ts=TS + DAY_MS)))
    made_of(tmp_path)
    Store(str(tmp_path)).under("history").table().delete("day < '2023-11-15'")
    plan = plan_of(CONF, str(tmp_path), "errors", "hour", {})
    assert (plan.is_done, len(plan.kept)) == (True, 2)


def test_only_jobs_that_go_on_are_read_of_earlier_days(tmp_path):
    old, new = {"ctime": TS * CTIMES_PER_MS}, {"ctime": (TS + 2 * DAY_MS) * CTIMES_PER_MS}
    later = {"ts": TS + 2 * DAY_MS}
    index(
        tmp_path,
        batch(event(1, "a", **old), event(2, "b", **old), event(3, "x", ctime=None)),
    )
    assert events_before(Store(str(tmp_path)), MIDNIGHT) is None
    index(tmp_path, batch(event(4, "a", 2, **old, **later), event(5, "c", **new, **later)))
    before = events_before(Store(str(tmp_path)), MIDNIGHT)
    assert [(row["job_id"], row["seq"]) for row in before.to_pylist()] == [("a", 1)]
    index(tmp_path, batch(event(6, "x", 2, ctime=None, **later)))
    assert set(events_before(Store(str(tmp_path)), MIDNIGHT)["job_id"].to_pylist()) == {"a", "x"}
