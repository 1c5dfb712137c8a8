"""The formats of tasks and of their results."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest


def test_a_record_says_all_of_a_result(tasks):
    from disque_py.integrations.django.framework import TaskResultStatus
    from disque_py.integrations.django.records import body_of, change, record_of, result_of

    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    body = body_of(tasks.add.using(priority=5, run_after=now), [1], {"y": 2}, now)
    result = result_of(body, "D-id", "default")
    assert (result.task.func, result.task.priority, result.task.run_after) == (tasks.add.func, 5, now)
    change(result, status=TaskResultStatus.SUCCESSFUL, finished_at=now, worker_ids=["w"], _return_value=3)
    assert result_of(record_of(result, body), "D-id", "default") == result


def test_a_path_that_names_no_task_is_refused(site):
    from disque_py.integrations.django.records import result_of

    with pytest.raises(ValueError, match="is not a task"):
        result_of(b'{"task": "os.getpid"}', "D-id", "default")
