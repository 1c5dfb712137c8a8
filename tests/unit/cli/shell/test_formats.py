"""formats.py: the four ways to print a reply (spec X2)."""

from __future__ import annotations

import json

import pytest

from disque_py.cli.shell.formats import CSV, FORMATTED, JSON, RAW, Style, as_csv, as_formatted, as_json, as_raw
from disque_py.cli.shell.replies import ReplyParser


def reply(data):
    parser = ReplyParser()
    parser.feed(data)
    return parser.take()


JOBS = reply(b"*2\r\n*3\r\n$1\r\nq\r\n$2\r\nD-\r\n$4\r\nbody\r\n*3\r\n$1\r\nq\r\n:5\r\n$-1\r\n")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"+PONG\r\n", b"PONG\n"),
        (b'$5\r\na"\n\x00\xc3\r\n', b'"a\\"\\n\\x00\\xc3"\n'),
        (b":12\r\n", b"(integer) 12\n"),
        (b"$-1\r\n", b"(nil)\n"),
        (b"-ERR no\r\n", b"(error) ERR no\n"),
        (b"-ERR no '\x1b[2J'\r\n", b"(error) ERR no '\\x1b[2J'\n"),
        (b"+\xc2\x9b2J\r\n", b"\\x9b2J\n"),
        (b"=9\r\ntxt:a\n\x1bcd\r\n", b"a\n\\x1bcd\n"),
        (b"*0\r\n", b"(empty list or set)\n"),
        (b"*-1\r\n", b"(nil)\n"),
        (b"%1\r\n$1\r\na\r\n:1\r\n", b'1# "a" => (integer) 1\n'),
        (b"%0\r\n", b"(empty hash)\n"),
        (b"#t\r\n", b"(true)\n"),
        (b",1.5\r\n", b"(double) 1.5\n"),
    ],
)
def test_the_formatted_output_is_for_people(data, text):
    """Spec X2."""
    assert as_formatted(reply(data)) == text


def test_nested_arrays_are_indented_under_their_index():
    assert as_formatted(JOBS).decode() == (
        '1) 1) "q"\n   2) "D-"\n   3) "body"\n2) 1) "q"\n   2) (integer) 5\n   3) (nil)\n'
    )


def test_numbers_are_aligned_to_the_right():
    lines = as_formatted(reply(b"*10\r\n" + b":1\r\n" * 10)).splitlines()
    assert lines[0] == b" 1) (integer) 1"
    assert lines[9] == b"10) (integer) 1"


def test_the_raw_output_is_the_flattened_values():
    assert as_raw(JOBS, b"\n") == b"q\nD-\nbody\nq\n5\n"
    assert as_raw(JOBS, b"|") == b"q|D-|body|q|5|"


def test_raw_ends_with_one_line_end_and_errors_with_two():
    style = Style(RAW)
    assert style.render([b"QLEN"], reply(b":3\r\n")) == b"3\n"
    assert style.render([b"GETJOB"], reply(b"*-1\r\n")) == b"\n"
    assert style.render([b"QLEN"], reply(b"-ERR x\r\n")) == b"ERR x\n\n"


def test_csv_quotes_strings_and_statuses():
    assert as_csv(reply(b"*3\r\n+a\r\n:1\r\n$3\r\nx,y\r\n")) == b'"a",1,"x,y"'
    assert as_csv(reply(b"-ERR no\r\n")) == b'ERROR,"ERR no"'
    assert as_csv(reply(b"$-1\r\n")) == b"NIL\n"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n*1\r\n_\r\n", {"a": 1, "b": [None]}),
        (b"-ERR no\r\n", {"error": "ERR no"}),
        (b"$2\r\n\xff!\r\n", "\\xff!"),
        (b"*2\r\n,inf\r\n,0.5\r\n", ["inf", 0.5]),
        (b"#f\r\n", False),
    ],
)
def test_json_is_one_value_on_one_line(data, value):
    line = as_json(reply(data))
    assert json.loads(line) == value
    assert b"\n" not in line


@pytest.mark.parametrize(
    "command",
    [
        [b"show", b"D-"],
        [b"QSTAT", b"q"],
        [b"queue", b"GET", b"q"],
        [b"config", b"get", b"*"],
        [b"BATCH", b"show", b"b"],
        [b"BATCH", b"WAIT", b"b"],
        [b"SCHEDULE", b"GET", b"s"],
    ],
)
def test_json_makes_an_object_of_names_and_values(command):
    line = Style(JSON).render(command, reply(b"*4\r\n$3\r\nlen\r\n:1\r\n$4\r\nmeta\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"))
    assert json.loads(line) == {"len": 1, "meta": {"a": "b"}}


def test_json_of_jscan_has_an_object_per_job():
    scanned = reply(b"*2\r\n$1\r\n0\r\n*1\r\n*2\r\n$2\r\nid\r\n$2\r\nD-\r\n")
    assert json.loads(Style(JSON).render([b"JSCAN", b"0"], scanned)) == ["0", [{"id": "D-"}]]
    names = reply(b"*2\r\n$1\r\n0\r\n*1\r\n$2\r\nD-\r\n")
    assert json.loads(Style(JSON).render([b"JSCAN", b"0"], names)) == ["0", ["D-"]]


@pytest.mark.parametrize("data", [b"*-1\r\n", b"-BADID no\r\n", b"*1\r\n:1\r\n"])
def test_json_leaves_replies_without_pairs_as_they_are(data):
    assert Style(JSON).render([b"SHOW", b"D-"], reply(data)) == as_json(reply(data)) + b"\n"


@pytest.mark.parametrize(
    "words",
    [
        [b"info"],
        [b"INFO", b"jobs"],
        [b"cluster", b"nodes"],
        [b"CLUSTER", b"INFO"],
        [b"client", b"list"],
        [b"latency", b"doctor"],
    ],
)
def test_text_replies_are_raw_also_on_a_terminal(words):
    for name in (FORMATTED, CSV):
        assert Style(name).render(words, reply(b"$3\r\na\nb\r\n")) == b"a\nb\n"


def test_json_stays_json_for_text_replies():
    assert Style(JSON).render([b"INFO"], reply(b"$3\r\na\nb\r\n")) == b'"a\\nb"\n'


def test_other_subcommands_are_formatted():
    assert Style(FORMATTED).render([b"CLUSTER", b"MYID"], reply(b"$1\r\na\r\n")) == b'"a"\n'


def test_text_for_people_keeps_its_line_ends_and_no_other_control_characters():
    """The text of INFO and CLIENT LIST repeats words of other programs."""
    text = reply(b"$16\r\na:1\r\nname=\x1b[2J\xff\r\n\r\n")
    assert Style(FORMATTED).render([b"INFO"], text) == b"a:1\nname=\\x1b[2J\\xff\n"
    assert Style(RAW).render([b"INFO"], text) == b"a:1\r\nname=\x1b[2J\xff\r\n"


def test_json_on_a_terminal_has_escapes_for_what_can_not_be_printed():
    assert as_json(reply(b"$5\r\n\xc2\x9b2J\x7f\r\n")) == b'"\\u009b2J\\u007f"'
