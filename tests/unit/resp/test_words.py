"""Quotes and escapes in inline commands and in config lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_py.resp.words import UnbalancedQuotesError, quote_text, split_text, split_words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", []),
        (b"  \t ", []),
        (b" port\t7711  ", [b"port", b"7711"]),
        (b'a "b c" d', [b"a", b"b c", b"d"]),
        (b'logfile ""', [b"logfile", b""]),
        (rb'"\x41\n\r\t\b\a\\\"\q\x4"', [b'A\n\r\t\b\a\\"qx4']),
        (rb"'it\'s \n'", [rb"it's \n"]),
        (b'pre"fix" x', [b"prefix", b"x"]),
        (rb"back\slash", [rb"back\slash"]),
        (rb'"\xff"', [b"\xff"]),
    ],
)
def test_words_of_a_line(line, words):
    assert split_words(line) == words


@pytest.mark.parametrize("line", [b'"a', b"'a", b'"a"b', rb'"a\"', b"x 'a'\"b\""])
def test_a_quote_must_be_closed_and_end_its_word(line):
    with pytest.raises(UnbalancedQuotesError):
        split_words(line)


def test_words_without_special_characters_need_no_quotes():
    assert quote_text("/var/run/disque.pid") == "/var/run/disque.pid"
    assert quote_text("") == '""'
    assert quote_text('a "b"\n') == r'"a \"b\"\x0a"'


@given(st.lists(st.binary(max_size=20)))
def test_quoting_any_bytes_and_splitting_gives_them_back(words):
    texts = [word.decode("utf-8", "surrogateescape") for word in words]
    assert split_text(" ".join(map(quote_text, texts))) == texts
