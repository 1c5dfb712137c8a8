"""resp/replies.py: replies as bytes."""

from __future__ import annotations

import hiredis
import pytest

from disque_py.resp import replies


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (replies.OK, b"+OK\r\n"),
        (replies.simple("PONG"), b"+PONG\r\n"),
        (replies.simple(b"D-1"), b"+D-1\r\n"),
        (replies.error("ERR because"), b"-ERR because\r\n"),
        (replies.error("ERR a\r\nb\nc"), b"-ERR a  b c\r\n"),
        (replies.integer(0), b":0\r\n"),
        (replies.integer(-7), b":-7\r\n"),
        (replies.bulk(b""), b"$0\r\n\r\n"),
        (replies.bulk("é"), b"$2\r\n\xc3\xa9\r\n"),
        (replies.bulk(b"\r\n\0"), b"$3\r\n\r\n\0\r\n"),
        (replies.array([]), b"*0\r\n"),
        (replies.array([replies.integer(1), replies.OK]), b"*2\r\n:1\r\n+OK\r\n"),
        (replies.bulk_array([b"a", "b"]), b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
    ],
)
def test_each_type_has_its_form(data, expected):
    assert data == expected


def test_bytes_that_are_not_text_come_back_unchanged():
    """Error texts quote the client's bytes unchanged."""
    word = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert replies.error(f"ERR unknown command '{word}'") == b"-ERR unknown command '\xff\xfe'\r\n"
    assert replies.bulk(word) == b"$2\r\n\xff\xfe\r\n"


def test_nil_is_written_in_the_protocol_of_the_client():
    """Spec R4."""
    assert (replies.nil_bulk(2), replies.nil_bulk(3)) == (b"$-1\r\n", b"_\r\n")
    assert (replies.nil_array(2), replies.nil_array(3)) == (b"*-1\r\n", b"_\r\n")


def test_pairs_are_a_flat_array_or_a_map():
    pairs = [("a", replies.integer(1)), (b"b", replies.bulk("x"))]
    assert replies.pairs(pairs, 2) == b"*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$1\r\nx\r\n"
    assert replies.pairs(pairs, 3) == b"%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$1\r\nx\r\n"


def test_arrays_may_be_nested():
    reader = hiredis.Reader()
    reader.feed(replies.array([replies.array([replies.integer(1)]), replies.NIL_BULK, replies.EMPTY_ARRAY]))
    assert reader.gets() == [[1], None, []]
