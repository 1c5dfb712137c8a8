"""Encoding commands as bytes, and decoding replies."""

from __future__ import annotations

import pytest

from disque_py.client.errors import PausedError, ProtocolError
from disque_py.client.protocol import NOTHING, Decoder, encode, text, word


def test_a_command_is_an_array_of_bulk_strings():
    """Arguments may be empty or binary."""
    assert encode([b"ADDJOB", b"q", b"", b"\r\n"]) == b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$0\r\n\r\n$2\r\n\r\n\r\n"


@pytest.mark.parametrize(
    ("value", "wire"),
    [(b"b", b"b"), ("ü", b"\xc3\xbc"), (7, b"7"), (-1, b"-1"), (0.5, b"0.5"), (bytearray(b"x"), b"x"),
     (memoryview(b"y"), b"y")],
)  # fmt: skip
def test_arguments_are_text_bytes_or_numbers(value, wire):
    """Numbers are written as Python formats them."""
    assert word(value) == wire


@pytest.mark.parametrize("value", [None, True, [], {}])
def test_other_types_of_arguments_are_refused(value):
    """Otherwise `None` would be sent as the word None, a bug that is found late."""
    with pytest.raises(TypeError):
        word(value)


def test_names_that_are_not_utf8_come_back_as_they_were():
    """Queue names may have any bytes."""
    assert word(text(b"\xff\xfe")) == b"\xff\xfe"


def test_replies_come_out_whole_however_they_came_in():
    """They are fed byte by byte. The last bytes belong to the next reply."""
    decoder = Decoder()
    replies = []
    for byte in b"+OK\r\n:1\r\n$-1\r\n*2\r\n$1\r\na\r\n*-1\r\n$3\r\nab":
        decoder.feed(bytes([byte]))
        if (reply := decoder.next()) is not NOTHING:
            replies.append(reply)
    assert replies == [b"OK", 1, None, [b"a", None]]
    assert decoder.next() is NOTHING


def test_an_error_reply_is_an_object_not_an_exception():
    """An error must not hide the next replies of a pipeline."""
    decoder = Decoder()
    decoder.feed(b"-PAUSED Queue paused\r\n:1\r\n")
    assert isinstance(decoder.next(), PausedError)
    assert decoder.next() == 1


def test_bytes_that_are_not_resp_are_a_protocol_error():
    """For example, an HTTP server may listen on that port."""
    decoder = Decoder()
    decoder.feed(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(ProtocolError):
        decoder.next()
