"""The progress of bytes on their way to a node."""

from __future__ import annotations

import socket
import sys

import pytest

from disque_py.client.upload import LARGE_BYTES, Upload


def test_a_long_upload_goes_on_while_it_gets_shorter():
    """The first look only notes its length."""
    upload = Upload(None)
    assert upload.goes_on(5 * LARGE_BYTES)
    assert upload.goes_on(2 * LARGE_BYTES)
    assert not upload.goes_on(2 * LARGE_BYTES)


def test_its_end_is_progress_and_the_answer_gets_another_time_out():
    upload = Upload(None)
    assert upload.goes_on(LARGE_BYTES)
    assert upload.goes_on(0)
    assert not upload.goes_on(0)


def test_a_short_command_is_no_upload():
    assert not Upload(None).goes_on(LARGE_BYTES - 1)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may count in another way")
def test_bytes_that_the_system_has_not_sent_count():
    """The other side reads nothing until the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        with socket.create_connection(listener.getsockname()) as sock, listener.accept()[0] as far:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * LARGE_BYTES)
            sock.setblocking(False)
            upload = Upload(sock)
            while not upload.goes_on(0):
                sock.send(b"x" * 10_000)
            assert not upload.goes_on(0)
            far.recv(1 << 20)
    assert not Upload(sock).goes_on(0)  # The socket is closed.
