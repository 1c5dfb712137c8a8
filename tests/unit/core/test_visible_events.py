"""Lines of events that a client may see."""

from __future__ import annotations

import json

from disque_py.core.visible_events import visible


def line(seq, queue, meta=()):
    fields = {
        "seq": seq,
        "ts": 5,
        "job_id": "D-",
        "ctime": 1,
        "queue": queue,
        "meta": dict(meta),
        "event": "added",
        "v": 1,
    }
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def is_mine(name):
    return name.startswith(b"mine")


def test_lines_of_other_queues_are_left_out():
    """Spec US6."""
    data = line(1, "mine") + line(2, "other") + line(3, None) + line(4, 'mine"q\u00e9')
    assert visible(data, is_mine) == line(1, "mine") + line(3, None) + line(4, 'mine"q\u00e9')


def test_the_end_of_a_reply_says_how_far_the_log_was_read():
    data = line(1, "mine") + line(2, "other", {"k": "secret"})
    first, last = visible(data, is_mine).splitlines()
    assert json.loads(first)["seq"] == 1
    assert json.loads(last) == {
        "seq": 2, "ts": 5, "job_id": None, "ctime": None, "queue": None, "meta": {}, "event": "hidden", "v": 1,
    }  # fmt: skip
    assert visible(data, is_mine, says_end=False) == line(1, "mine")


def test_a_field_of_metadata_is_not_taken_for_the_queue():
    data = line(1, "other", {',"queue":"mine': "x"})
    assert b"other" not in visible(data, is_mine)


def test_a_name_that_is_not_text_is_hidden():
    assert b'"hidden"' in visible(line(1, "mine\ufffd"), is_mine)


def test_an_empty_reply_stays_empty():
    assert visible(b"", is_mine) == b""
