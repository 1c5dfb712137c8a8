"""replies.py: bytes in chunks of any size become replies that keep their type."""

from __future__ import annotations

import pytest

from disque_py.cli.shell.replies import NotRespError, Reply, ReplyParser, encode

STREAM = b"+OK\r\n-ERR no\r\n:7\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n*1\r\n+x\r\n*0\r\n%1\r\n+k\r\n,1.5\r\n_\r\n#t\r\n"
REPLIES = [
    Reply("status", b"OK"),
    Reply("error", b"ERR no"),
    Reply("integer", b"7"),
    Reply("bulk", b"a\r\n"),
    Reply("nil"),
    Reply("array", b"", (Reply("array", b"", (Reply("status", b"x"),)), Reply("array"))),
    Reply("map", b"", (Reply("status", b"k"), Reply("double", b"1.5"))),
    Reply("nil"),
    Reply("boolean", b"t"),
]


def parse(portions):
    parser = ReplyParser()
    found = []
    for portion in portions:
        parser.feed(portion)
        while (reply := parser.take()) is not None:
            found.append(reply)
    return found


def test_a_stream_is_read_whole():
    assert parse([STREAM]) == REPLIES


def test_a_stream_is_read_byte_by_byte():
    assert parse([STREAM[i : i + 1] for i in range(len(STREAM))]) == REPLIES


def test_an_incomplete_reply_waits_for_its_rest():
    parser = ReplyParser()
    parser.feed(b"*2\r\n:1\r\n$5\r\nhel")
    assert parser.take() is None
    parser.feed(b"lo\r\n+next")
    assert parser.take() == Reply("array", b"", (Reply("integer", b"1"), Reply("bulk", b"hello")))
    assert parser.take() is None


def test_a_verbatim_string_loses_its_format_and_an_attribute_is_skipped():
    assert parse([b"|1\r\n+ttl\r\n:1\r\n=8\r\ntxt:text\r\n"]) == [Reply("verbatim", b"text")]


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400\r\n", b"$x\r\n", b"*1.5\r\n"])
def test_bytes_that_are_not_resp_are_refused(garbage):
    with pytest.raises(NotRespError):
        parse([garbage])


def test_the_length_of_a_line_is_limited():
    with pytest.raises(NotRespError):
        parse([b"+" + b"x" * (1 << 20), b"xx"])


def test_a_large_array_in_small_portions_is_read_once():
    items = b"".join(b"$4\r\nabcd\r\n" for _ in range(20_000))
    data = b"*20000\r\n" + items
    (reply,) = parse([data[i : i + 1000] for i in range(0, len(data), 1000)])
    assert len(reply.items) == 20_000


def test_pairs_reads_a_flat_array_as_names_and_values():
    reply = parse([b"*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n:2\r\n"])[0]
    assert {name: value.text for name, value in reply.pairs().items()} == {b"a": b"1", b"b": b"2"}


def test_a_command_is_sent_as_an_array_of_bulk_strings():
    assert encode([b"PING", b""]) == b"*2\r\n$4\r\nPING\r\n$0\r\n\r\n"
