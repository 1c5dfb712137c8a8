"""resp.py: replies as bytes."""

from __future__ import annotations

import hiredis
import pytest

from disque_py import resp


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (resp.OK, b"+OK\r\n"),
        (resp.simple("PONG"), b"+PONG\r\n"),
        (resp.simple(b"D-1"), b"+D-1\r\n"),
        (resp.error("ERR because"), b"-ERR because\r\n"),
        (resp.error("ERR a\r\nb\nc"), b"-ERR a  b c\r\n"),
        (resp.integer(0), b":0\r\n"),
        (resp.integer(-7), b":-7\r\n"),
        (resp.bulk(b""), b"$0\r\n\r\n"),
        (resp.bulk("é"), b"$2\r\n\xc3\xa9\r\n"),
        (resp.bulk(b"\r\n\0"), b"$3\r\n\r\n\0\r\n"),
        (resp.array([]), b"*0\r\n"),
        (resp.array([resp.integer(1), resp.OK]), b"*2\r\n:1\r\n+OK\r\n"),
        (resp.bulk_array([b"a", "b"]), b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
    ],
)
def test_each_type_has_its_form(data, expected):
    assert data == expected


def test_bytes_that_are_no_text_come_back_as_they_were():
    """A client's own words in an error text, whatever they are."""
    word = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert resp.error(f"ERR unknown command '{word}'") == b"-ERR unknown command '\xff\xfe'\r\n"
    assert resp.bulk(word) == b"$2\r\n\xff\xfe\r\n"


def test_nil_is_written_in_the_protocol_of_the_client():
    """Spec R4."""
    assert (resp.nil_bulk(2), resp.nil_bulk(3)) == (b"$-1\r\n", b"_\r\n")
    assert (resp.nil_array(2), resp.nil_array(3)) == (b"*-1\r\n", b"_\r\n")


def test_pairs_are_a_flat_array_or_a_map():
    pairs = [("a", resp.integer(1)), (b"b", resp.bulk("x"))]
    assert resp.pairs(pairs, 2) == b"*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$1\r\nx\r\n"
    assert resp.pairs(pairs, 3) == b"%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$1\r\nx\r\n"


def test_arrays_may_be_nested():
    reader = hiredis.Reader()
    reader.feed(resp.array([resp.array([resp.integer(1)]), resp.NIL_BULK, resp.EMPTY_ARRAY]))
    assert reader.gets() == [[1], None, []]
