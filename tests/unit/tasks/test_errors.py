"""The errors of tasks."""

from __future__ import annotations

from disque_py.tasks import SerializerError, TaskCanceledError, TaskError, TaskFailedError


def test_a_failure_shows_type_message_and_calls():
    error = TaskFailedError("ValueError", "no total", "  at shop:14 in bill")
    assert str(error) == "ValueError: no total\n  at shop:14 in bill"
    assert str(TaskFailedError("KeyError", "")) == "KeyError"


def test_programs_may_catch_all_of_them():
    assert issubclass(TaskCanceledError, TaskError)
    assert issubclass(SerializerError, (TaskError, ValueError))
