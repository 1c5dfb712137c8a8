"""Results of the client library as JSON."""

from __future__ import annotations

from datetime import timedelta

from disque_py.client.results import Job, JobInfo, LockInfo, QueueSettings, Task, queue_settings
from disque_py.gateway import shapes


def info(**words):
    return JobInfo(
        "D-1", "q", "queued", 1, 60, 5_000_000, 0, 5, 0, 0, [], [], None, None, b"x", meta={"a": "b"}, **words
    )


def test_a_body_that_is_not_text_is_base64():
    assert shapes.body_of(b"\xff") == {"body_base64": "/w=="}
    assert shapes.body_of(b"hi") == {"body": "hi"}


def test_a_caller_without_bodies_sees_sizes_only():
    shape = shapes.job_info(info(error="why"), has_body=False)
    assert (shape["body_size"], shape["error"]) == (1, None)
    assert not {"body", "meta"} & shape.keys()


def test_a_caller_with_bodies_sees_all():
    shape = shapes.job_info(info(error="why", more={"result-x": b"1"}), has_body=True)
    assert (shape["body"], shape["meta"], shape["error"], shape["result_x"]) == ("x", {"a": "b"}, "why", "1")


def test_a_job_that_was_not_taken_has_no_attempt():
    assert shapes.job(Job("q", "D-1", b"x")) == {"id": "D-1", "queue": "q", "body": "x", "body_size": 1}


def test_bytes_that_are_not_text_are_replaced_wherever_they_are():
    assert shapes.as_text({"a\udcff": ["é\udcfe", b"\xff", 1, None]}) == {"a\ufffd": ["é\ufffd", b"\xff", 1, None]}


def test_times_of_settings_are_milliseconds():
    found = QueueSettings(
        timedelta(seconds=2),
        None,
        None,
        None,
        0,
        "",
        "",
        timedelta(days=7),
        0,
        0,
        [],
        [],
        "",
        "local",
        "simple",
        "none",
        1,
        0,
    )
    assert (shapes.settings(found)["lease_ms"], shapes.settings(found)["delay_ms"]) == (2000, None)


def test_caps_are_among_the_further_settings():
    """They have the names under which PUT accepts them."""
    pairs = {"rate": "100/10", "max-running": "3", "max-running-by": "host", "result-retention": "60", "later": "x"}
    flat = [word.encode() for pair in pairs.items() for word in pair]
    more = shapes.settings(queue_settings(flat))["more"]
    assert more.items() >= (pairs | {"result-retention": "60000ms", "rate-by": ""}).items()


def test_progress_and_result_are_for_callers_with_bodies():
    found = info(progress=40, progress_text="page 4", result=b"\xff", batch="b")
    shape = shapes.job_info(found, has_body=True)
    assert (shape["progress"], shape["progress_text"], shape["batch"]) == (40, "page 4", "b")
    assert shape["result_base64"] == "/w=="
    assert shapes.job_info(info(result=b"42"), has_body=True)["result"] == "42"
    shape = shapes.job_info(found, has_body=False)
    assert not {"progress", "progress_text", "result", "result_base64", "batch"} & shape.keys()


def test_a_long_operation_that_was_awaited_is_done():
    assert shapes.task(Task("t", "qmove", "q", None, jobs=4))["state"] == "done"


def test_a_lock_that_is_not_remembered_is_free():
    assert shapes.lock("l", None) == {"name": "l", "owner": None}
    assert shapes.lock("l", LockInfo("o", 7, 1, 5, 0))["fence"] == 7


def test_bytes_at_any_depth_become_text():
    assert shapes.readable([b"a", {b"k": b"\xff"}, 1]) == ["a", {"k": "�"}, 1]
