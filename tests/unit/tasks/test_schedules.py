"""Schedules as a program declares them and as the cluster stores them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from client_node import Node
from disque_py.client import AsyncDisque, ReplyError
from disque_py.client.schedule_commands import ScheduleInfo
from disque_py.tasks import App, tick_of
from disque_py.tasks.schedules import Installed, Plan, glob_of, install

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


def test_a_span_that_no_command_takes_is_an_error_of_the_declaration():
    with pytest.raises(ValueError, match="every must be a whole number of seconds"):
        plan(cron=None, every=0.5)


def installed(refusal):
    """Install two schedules at a node that refuses the first."""

    def answer(words):
        is_bad = words[1:3] == [b"SET", b"tasks:bad"]
        return refusal if is_bad else {b"GET": b"*-1\r\n", b"SET": b"+OK\r\n", b"LIST": b"*0\r\n"}[words[1]]

    async def run():
        async with AsyncDisque(node.address) as client:
            return await install(client, "tasks", {"tasks:bad": plan(name="tasks:bad"), "tasks:good": plan()})

    def plan(name="tasks:good"):
        return Plan(name, report, "30 2 * * *")

    with Node(answers={"SCHEDULE": answer}) as node:
        return asyncio.run(run())


def test_a_schedule_that_the_cluster_refuses_keeps_no_other_out():
    assert installed(b"-ERR invalid\r\n") == Installed(["tasks:good"], [], [], {"tasks:bad": "ERR invalid"})


@pytest.mark.parametrize("text", ["MISCONF the disk is full", "ERR not while node ab runs an older version"])
def test_a_refusal_that_passes_is_an_error(text):
    """Then the worker tries again."""
    with pytest.raises(ReplyError, match=text):
        installed(f"-{text}\r\n".encode())
