"""tasks.py: tasks of the broker, started and followed."""

from __future__ import annotations

from disque_py.cli.address import Target
from disque_py.cli.admin import tasks
from disque_py.cli.admin.tasks import as_object, count, count_failed, result_text
from disque_py.cli.cluster.view import patient
from disque_py.client import Address, Task
from scripted_queues import answers, reply


def task(**changes):
    return Task(**{"id": "t", "command": "qmove", "queue": "q", "state": "done", "jobs": 5, "nodes": 3} | changes)


def test_programs_get_a_task_as_an_object():
    assert as_object(task(started=7)) == {
        "id": "t", "command": "qmove", "queue": "q", "state": "done", "jobs": 5, "failed": 0, "nodes": 3,
        "nodes_missing": [], "started_ms": 7,
    }  # fmt: skip


def test_a_limit_bounds_the_count(scripted):
    node = scripted(answers(QLEN=b":40\r\n"))
    with patient(Target(Address("127.0.0.1", node.port))) as connection:
        assert count(connection, "a", {}, None, limit=7) == 7
        assert count_failed(connection, "a", {}) == 80
    assert b" ".join(node.requests[-1]) == b"QLEN a STATUS pending CLUSTER"


def test_the_result_says_what_is_left_to_do():
    assert result_text(task(), "moved") == "5 jobs moved"
    text = result_text(task(failed=2, state="canceled", nodes_missing=["b" * 40]), "moved")
    assert "2 jobs left out" in text
    assert "These nodes took no part: bbbbbbbb" in text
    assert "The task was canceled" in text


def test_a_task_is_followed_until_it_is_over(admin):
    """The exit status is that of the task: it says whether everything was done."""
    states = iter(["running", "running", "done"])

    def show(words):
        return reply({"task": "t1", "state": next(states), "jobs": 5, "failed": 1, "nodes": 3, "nodes-missing": []})

    result = admin("queue move a b", QLEN=b":6\r\n", QMOVE=b"+t1\r\n", QTASK_SHOW=show)
    assert (result.exit_code, result.output.splitlines()[0]) == (1, "5 jobs moved")


def test_after_ctrl_c_the_next_commands_name_the_node_of_the_task(admin, monkeypatch):
    """No other node knows the task."""

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks.time, "sleep", interrupt)
    running = reply({"task": "t1", "state": "running", "jobs": 5, "failed": 0, "nodes": 3, "nodes-missing": []})
    result = admin("queue move a b", QLEN=b":6\r\n", QMOVE=b"+t1\r\n", QTASK_SHOW=running)
    assert f"`disque-admin -u disque://127.0.0.1:{result.node.port} task wait t1` follows it" in result.output


def test_a_task_that_its_node_forgot_is_an_error(admin):
    result = admin("queue move a b", QLEN=b":6\r\n", QMOVE=b"+t1\r\n", QTASK_SHOW=b"*-1\r\n")
    assert "The node no longer knows task t1" in result.output
