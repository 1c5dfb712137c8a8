"""Tasks as bodies of jobs, and failures as NACK reasons."""

from __future__ import annotations

import pytest

from disque_py.tasks import App, JSONSerializer, SerializerError
from disque_py.tasks.messages import failure_text, own_calls, read_body, read_failure, write_body

JSON = JSONSerializer()


class TooLargeError(Exception):
    """An error that a program defines."""


def raised(error):
    """Return the error after it was raised, with its traceback."""
    try:
        raise error
    except type(error) as found:
        return found


def deep(count):
    """Raise an error below many nested calls."""
    if count:
        deep(count - 1)
    raise ValueError("deep")


def test_a_body_has_name_and_arguments():
    body = write_body(JSON, "add", (1, "x"), {"y": 2})
    assert body == b'{"task":"add","args":[1,"x"],"kwargs":{"y":2}}'
    assert read_body(JSON, body) == ("add", [1, "x"], {"y": 2})


def test_empty_arguments_are_left_out():
    assert write_body(JSON, "tick", (), {}) == b'{"task":"tick"}'
    assert read_body(JSON, b'{"task":"tick"}') == ("tick", [], {})


@pytest.mark.parametrize("body", [b"no json", b"[]", b'{"args":[]}', b'{"task":1}', b'{"task":"a","args":{}}'])
def test_another_body_is_refused(body):
    with pytest.raises(SerializerError):
        read_body(JSON, body)


def test_a_failure_keeps_type_message_and_calls():
    found = read_failure(failure_text(raised(TooLargeError("12 MB:\nsee the page"))))
    assert found.type_name == f"{__name__}.TooLargeError"
    assert found.message == "12 MB:\nsee the page"
    assert found.traceback.startswith(f"  at {__name__}:")
    assert found.traceback.endswith(" in raised")


def test_an_error_without_a_message_has_its_type():
    found = read_failure(failure_text(KeyError()))
    assert (found.type_name, found.message, found.traceback) == ("KeyError", "", "")


def test_a_reason_is_short_and_keeps_the_innermost_calls():
    with pytest.raises(ValueError, match="deep") as caught:
        deep(100)
    text = failure_text(caught.value)
    assert len(text.encode()) <= 1024
    assert text.split("\n")[1].endswith("in deep")
    assert len(failure_text(ValueError("ü" * 2000)).encode()) <= 1024


def test_reasons_of_other_programs_are_read():
    assert read_failure("no address given").message == "no address given"
    assert "no worker gave a reason" in read_failure(None).message


def test_calls_of_the_package_are_left_out():
    """Frames of the package are the same for every task."""
    app = App()
    with app.in_memory() as memory:
        app.task(name="deep")(deep).add(0)
    assert own_calls(memory.tasks[0].error).tb_frame.f_code.co_name == "deep"
    assert own_calls(raised(ValueError())).tb_frame.f_code.co_name == "raised"
