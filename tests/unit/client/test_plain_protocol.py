"""RESP2 in plain Python, which reads and writes like hiredis."""

from __future__ import annotations

import hiredis
import pytest

from disque_py.client import plain_protocol
from disque_py.client.errors import PausedError, ProtocolError, from_reply
from disque_py.client.protocol import NOTHING

REPLIES = (
    b"+OK\r\n:-1\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n*2\r\n$4\r\na\r\nb\r\n*3\r\n*0\r\n*1\r\n$1\r\nx\r\n$-1\r\n"
    b"*2\r\n*0\r\n*0\r\n-PAUSED Queue paused\r\n:9223372036854775807\r\n$2\r\n\xff\x00\r\n"
)


def read(module, data, size):
    """Return the replies in `data`, fed in pieces of `size` bytes. Errors are returned as their text."""
    reader = module.Reader(protocolError=ProtocolError, replyError=from_reply, notEnoughData=NOTHING)
    found = []
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
        while (reply := reader.gets()) is not NOTHING:
            found.append(str(reply) if isinstance(reply, Exception) else reply)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_replies_are_those_of_hiredis_however_they_arrive(size):
    assert read(plain_protocol, REPLIES, size) == read(hiredis, REPLIES, 1000)


def test_a_command_has_the_bytes_of_hiredis():
    command = (b"ADDJOB", b"", b"\r\n\xff", b"x" * 100)
    assert plain_protocol.pack_command(command) == hiredis.pack_command(command)


def test_an_error_reply_has_its_class():
    reader = plain_protocol.Reader(protocolError=ProtocolError, replyError=from_reply, notEnoughData=NOTHING)
    reader.feed(b"-PAUSED Queue paused\r\n")
    assert isinstance(reader.gets(), PausedError)


@pytest.mark.parametrize(
    "data",
    [
        b"+" + b"x" * (plain_protocol.LINE_BYTES_MAX + 1),
        b"HTTP/1.1 400 Bad Request\r\n",
        b"H",
        b":\r\n",
        b":1a\r\n",
        b"$-2\r\n",
        b"*x\r\n",
        b"$1\r\nabc",
        b"*1\r\n" * 9,
    ],
)
def test_bytes_that_are_not_resp_are_a_protocol_error(data):
    with pytest.raises(ProtocolError):
        read(plain_protocol, data, 1000)
