"""Schedules as a program declares them and as the cluster stores them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from disque_py.client.schedule_commands import ScheduleInfo
from disque_py.tasks import App, tick_of
from disque_py.tasks.schedules import Plan, glob_of

app = App(queue="q")


@app.task
def report(day="today"):
    return day


def info(**changes):
    """Return the schedule below as a node shows it."""
    fields = {
        "name": "tasks:report", "cron": "30 2 * * *", "every": None, "time_zone": "Europe/Berlin", "catchup": "last",
        "overlap": "skip", "queue": "q", "body": b'{"task":"report","args":["now"]}',
        "options": ["RETRY", "60", "TTL", "604800", "ATTEMPTS", "5"], "paused": False, "next": None, "last": None,
        "last_id": None, "fired": 3, "missed": 0, "behind": 0,
    }  # fmt: skip
    return ScheduleInfo(**{**fields, **changes})


def plan(**changes):
    fields = {"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "overlap": "skip", "args": ("now",)}
    return Plan("tasks:report", report, **{**fields, **changes})


def test_a_schedule_that_is_there_is_left_alone():
    assert plan().is_installed(info())
    assert plan(cron=None, every=90).is_installed(info(cron=None, every=timedelta(seconds=90)))


@pytest.mark.parametrize(
    "changes",
    [
        {"cron": "31 2 * * *"},
        {"cron": None, "every": 60},
        {"time_zone": "UTC"},
        {"catchup": "all"},
        {"overlap": "allow"},
        {"args": ("then",)},
    ],
)
def test_a_schedule_that_differs_is_set(changes):
    assert not plan(**changes).is_installed(info())


def test_other_options_of_its_jobs_are_a_difference():
    assert not plan().is_installed(info(options=["RETRY", "60", "TTL", "604800"]))
    assert not plan().is_installed(None)


def test_a_schedule_is_set_with_the_options_of_its_task():
    words = b" ".join(plan().request().argv).decode()
    assert words.startswith("SCHEDULE SET tasks:report CRON 30 2 * * * TZ Europe/Berlin CATCHUP last OVERLAP skip")
    assert words.endswith("RETRY 60 TTL 604800 ATTEMPTS 5")


def test_options_about_one_call_are_refused():
    with pytest.raises(ValueError, match="key"):
        Plan("tasks:report", report.options(key="k"), every=30)
    with pytest.raises(ValueError, match="either"):
        plan(every=30)


def test_a_pattern_matches_the_name_only():
    assert glob_of("shop*[1]") == "shop\\*\\[1\\]"


def test_the_planned_moment_is_in_the_metadata():
    assert tick_of({"x-disque-tick": "1796088600000"}) == datetime.fromtimestamp(1796088600, UTC)
    assert tick_of({}) is None
