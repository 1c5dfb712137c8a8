"""depth, latency and errors, run again after more events came, give the same tables as one run over all events."""

from __future__ import annotations

import random
import shutil
from typing import Any

from disque_py.spark.pipelines import depth, errors, latency
from disque_py.spark.pipelines.history import CTIMES_PER_MS, Plan, history_view
from index_events import TS, batch, event, index
from made import make_index, make_moves

DAY_MS = 86_400_000
STATES = ("pending", "running", "errored", "pending", "running", "completed")


def days_of_events(rng: random.Random) -> list[list[tuple[str, dict[str, Any]]]]:
    """Return (node, event) of jobs on three days. Some jobs go on the next day; some events come late, twice, or
    without most fields.
    """
    days: list[list[tuple[str, dict[str, Any]]]] = [[], [], []]
    for number in range(40):
        at = entered = rng.randrange(DAY_MS * 2)
        before, ctime = None, (TS + at) * CTIMES_PER_MS
        for version, state in enumerate(STATES[: rng.randint(1, 6)], 1):
            fields = {
                "ctime": ctime, "event": state, "from_state": before, "to_state": state,
                "since": rng.choice([None, TS + entered]) if before else None, "queue": f"q{number % 2}",
                "error": "no fuel" if state == "errored" else None, "worker": f"w{number % 3}",
            }  # fmt: skip
            for node in rng.sample(["n1", "n2"], 2 if rng.random() < 0.2 else 1):
                moment = at + rng.randrange(3_000)
                # This event is read with the events of its day, or later.
                day = min(2, moment // DAY_MS + (rng.random() < 0.1))
                days[day].append((node, event(0, f"D-{number:03d}", version, ts=TS + moment, **fields)))
            before, entered = state, at
            at = min(at + rng.randrange(DAY_MS // 2), 3 * DAY_MS - 10_000)
    return days


def test_kept_and_new_rows_equal_those_computed_all_at_once(spark, tmp_path):
    seqs = {"n1": 0, "n2": 0}
    path = tmp_path / "index"
    first, second, third = days_of_events(random.Random(0))
    for events in (first + second, third):
        tasks = []
        for node in seqs:
            own = [one for where, one in events if where == node]
            for one in own:
                seqs[node] += 1
                one["seq"] = seqs[node]
            if own:
                tasks.append(batch(*own, node=node))
        index(path, *tasks)
        for pipeline in (depth, latency, errors):
            pipeline.run(spark, str(path))
    for pipeline, name in ((depth, "depth"), (latency, "latency"), (errors, "errors")):
        kept = pipeline.run(spark, str(path)).to_pylist()
        shutil.rmtree(path / name)
        whole = pipeline.run(spark, str(path)).to_pylist()
        assert sorted(map(str, kept)) == sorted(map(str, whole))


def test_two_pipelines_in_one_session_read_their_own_events(spark, tmp_path):
    """They shared the name of a view, so the first one read the index of the second."""
    one, other = make_index(tmp_path / "one"), make_moves(tmp_path / "other")

    def count(events):
        return spark.sql(f"SELECT DISTINCT job_id FROM {events}").count()

    with history_view(spark, one, Plan({}, {})) as events:
        alone = count(events)
        with history_view(spark, other, Plan({}, {})):
            assert count(events) == alone
        assert count(events) == alone
    assert [view.name for view in spark.catalog.listTables() if view.name.startswith("disque_events")] == []
