"""Commands whose work runs as a task: their words, and the task."""

from __future__ import annotations

import pytest

from disque_py.client import task_commands
from request_words import words_of


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (task_commands.purge("q", where={"a": "b"}, status="errored"), "QPURGE q WHERE a b STATUS errored"),
        (task_commands.purge("q", wait=False), "QPURGE q ASYNC"),
        (task_commands.move("q", "r", limit=5, rate=10), "QMOVE q r LIMIT 5 RATE 10"),
        (task_commands.redrive("q", where={"a": "b"}, to="r", rate=1, wait=False),
         "QREDRIVE q WHERE a b TO r RATE 1 ASYNC"),
        (task_commands.tasks(), "QTASK LIST"),
        (task_commands.task("t"), "QTASK SHOW t"),
        (task_commands.cancel_task(b"t"), "QTASK CANCEL t"),
    ],
)  # fmt: skip
def test_arguments_become_words(request_, wire):
    """Spec R8."""
    assert words_of(request_) == wire


def test_a_rebalance_names_zones_and_may_go_on_alone():
    assert words_of(task_commands.rebalance("q")) == "QREBALANCE q"
    assert words_of(task_commands.rebalance("q", zones=["a", "eu/b"], wait=False)) == "QREBALANCE q ZONES a eu/b ASYNC"


def test_the_answer_is_a_task():
    reply = [b"task", b"t", b"jobs", 4, b"failed", 1, b"nodes", 2, b"nodes-missing", []]
    task = task_commands.rebalance("q").read(reply)
    assert (task.command, task.queue, task.jobs, task.failed) == ("qrebalance", "q", 4, 1)
