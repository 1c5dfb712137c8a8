"""task_commands.py: disque-admin task."""

from __future__ import annotations

import json

from scripted_queues import reply

TASK = {"task": "t1", "command": "QMOVE", "queue": "a", "state": "done", "jobs": 1200, "failed": 0, "nodes": 3}
TASK |= {"nodes-missing": [], "started": 1_700_000_000_000}


def test_list_shows_a_row_per_task(admin):
    result = admin("task list", QTASK_LIST=reply([TASK]))
    assert result.output.splitlines()[1].split()[:5] == ["t1", "QMOVE", "a", "done", "1,200"]
    assert json.loads(admin("task list --json", QTASK_LIST=reply([TASK])).output)["jobs"] == 1200


def test_show_has_a_line_per_field(admin):
    lines = [line.split() for line in admin("task show t1", QTASK_SHOW=reply(TASK)).output.splitlines()]
    assert ["started", "(UTC)", "2023-11-14", "22:13:20"] in lines
    assert json.loads(admin("task show t1 --json", QTASK_SHOW=reply(TASK)).output)["id"] == "t1"


def test_an_unknown_task_is_an_error(admin):
    for line in ("task show t1", "task wait t1"):
        result = admin(line, QTASK_SHOW=b"$-1\r\n")
        assert (result.exit_code, "The node knows no task 't1'" in result.output) == (1, True)


def test_wait_ends_with_the_result(admin):
    assert admin("task wait t1", QTASK_SHOW=reply(TASK)).output == "1,200 jobs moved\n"


def test_the_exit_status_of_cancel_shows_whether_the_task_ran(admin):
    assert admin("task cancel t1", QTASK_CANCEL=b":1\r\n").exit_code == 0
    assert admin("task cancel t1", QTASK_CANCEL=b":0\r\n").exit_code == 1
