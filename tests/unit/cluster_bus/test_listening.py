"""cluster_bus/listening.py: the number of unfinished handshakes is limited. Real TLS: tests/integration/test_tls.py."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl

import pytest
import uvloop

from cluster_bus import listening
from cluster_bus.listening import TlsListener

LOOPS = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


class ShortSocket(socket.socket):
    """A socket whose first `accept` fails because the process has no free descriptor."""

    is_short = True

    def accept(self):
        """Fail at the first call, and return a connection afterwards."""
        if self.is_short:
            self.is_short = False
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def with_listener(story, loop_factory, make_socket=socket.socket):
    """Run `story(port)` while a listener is open. No test calls the listener's `accept`."""

    async def main():
        with make_socket() as sock:
            sock.bind(("127.0.0.1", 0))
            listener = TlsListener(sock, 100, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), asyncio.Protocol, 5.0, print)
            try:
                await asyncio.wait_for(story(sock.getsockname()[1]), 10)
            finally:
                listener.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def rest(reader, writer):
    """Return the bytes that arrive until the connection ends."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@LOOPS
def test_of_too_many_silent_connections_the_oldest_is_closed(loop_factory, monkeypatch):
    monkeypatch.setattr(listening, "HANDSHAKES_MAX", 3)

    async def story(port):
        talks = []
        for _ in range(5):
            talks.append(await asyncio.open_connection("127.0.0.1", port))
            await asyncio.sleep(0.02)
        for talk in talks[:2]:
            assert await rest(*talk) == b""
        for reader, writer in talks[2:]:
            assert not reader.at_eof()
            writer.close()
            await writer.wait_closed()

    with_listener(story, loop_factory)


@LOOPS
def test_a_connection_that_does_not_speak_tls_is_closed(loop_factory):
    async def story(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PING\r\nPING\r\n")
        assert b"PONG" not in await rest(reader, writer)

    with_listener(story, loop_factory)


@LOOPS
def test_without_descriptors_clients_wait(loop_factory, monkeypatch):
    monkeypatch.setattr(listening, "RETRY_SECONDS", 0.02)

    async def story(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PING\r\nPING\r\n")
        await rest(reader, writer)  # The listener ends this connection, so it accepted it.

    with_listener(story, loop_factory, ShortSocket)
