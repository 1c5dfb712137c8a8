"""commands/options.py: integers, cursors and ids as clients write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copies import make_id
from disque_py.commands.options import (
    INT64_MAX,
    INT64_MIN,
    read_cursor,
    read_ids,
    read_integer,
    read_timeout,
    value_of,
)
from disque_py.core.errors import CommandError


def refused(call, *arguments):
    with pytest.raises(CommandError) as caught:
        call(*arguments)
    return caught.value.text


@pytest.mark.parametrize(
    ("word", "value"),
    [(b"0", 0), (b"7", 7), (b"1024", 1024), (b"1025", 1025), (b"+7", 7), (b"-7", -7), (b"007", 7), (b"-0", 0),
     (b"", 0), (b"\0", 0), (b"7\0", 7), (b"7\0abc", 7), (b"9223372036854775807", INT64_MAX),
     (b"-9223372036854775808", INT64_MIN), (b"0" * 39 + b"5", 5)],
)  # fmt: skip
def test_integers_are_read(word, value):
    assert read_integer(word) == value


@pytest.mark.parametrize(
    "word",
    [b" 7", b"7 ", b"7\n", b"\n", b"1_000", b"0x10", b"1e3", b"1.0", b"--1", b"+-1", b"+", b"-", b"seven", b"\xb2",
     "٣".encode(), b"9223372036854775808", b"-9223372036854775809", b"9" * 100],
)  # fmt: skip
def test_malformed_integers_are_refused(word):
    """Spec R2."""
    assert refused(read_integer, word) == "ERR value is not an integer or out of range"


def test_commands_may_have_a_text_of_their_own():
    assert refused(read_integer, b"x", "ERR MINE") == "ERR MINE"


@settings(max_examples=200, deadline=None)
@given(value=st.integers(INT64_MIN, INT64_MAX))
def test_every_integer_of_64_bits_can_be_written(value):
    assert read_integer(b"%d" % value) == value


@settings(max_examples=200, deadline=None)
@given(word=st.binary(max_size=6))
def test_any_bytes_are_an_integer_or_refused(word):
    head = word.partition(b"\0")[0]
    digits = head[1:] if head[:1] in (b"+", b"-") else head
    if head and not (digits and all(48 <= char <= 57 for char in digits)):
        assert refused(read_integer, word)
    else:
        assert read_integer(word) == int(head or b"0")


@pytest.mark.parametrize(("word", "value"), [(b"0", 0), (b"1500", 1500), (b"", 0), (b"+3", 3)])
def test_timeouts_are_read(word, value):
    assert read_timeout(word) == value


@pytest.mark.parametrize(
    ("word", "text"),
    [(b"-1", "ERR timeout is negative"), (b"x", "ERR timeout is not an integer or out of range"),
     (b"1.5", "ERR timeout is not an integer or out of range"),
     (b"9223372036854775808", "ERR timeout is not an integer or out of range")],
)  # fmt: skip
def test_invalid_timeouts_are_refused(word, text):
    assert refused(read_timeout, word) == text


@pytest.mark.parametrize(
    ("word", "value"),
    [(b"0", 0), (b"", 0), (b"42", 42), (b"-1", 2**64 - 1), (b"-2", 2**64 - 2), (b"18446744073709551615", 2**64 - 1),
     (b"5\0x", 5)],
)  # fmt: skip
def test_cursors_are_unsigned_and_wrap(word, value):
    assert read_cursor(word) == value


@pytest.mark.parametrize("word", [b"x", b"COUNT", b"18446744073709551616", b" 1", b"1.0"])
def test_invalid_cursors_are_refused(word):
    assert refused(read_cursor, word) == "ERR invalid cursor or option name"


def test_ids_are_read_all_or_none():
    ids = [make_id(1), make_id(2)]
    assert read_ids([b"ACKJOB", *ids]) == ids
    assert read_ids([b"ACKJOB"]) == []
    assert refused(read_ids, [b"ACKJOB", ids[0], b"nonsense"]) == "BADID Invalid Job ID format."


def test_an_option_with_a_value_may_not_be_the_last_word():
    assert value_of([b"GETJOB", b"COUNT", b"5"], 1) == b"5"
    assert refused(value_of, [b"GETJOB", b"COUNT"], 1) == "ERR syntax error"
