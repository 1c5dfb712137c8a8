"""--pipe: sends commands from standard input to the server as fast as possible, and counts the replies.

The input is sent as it is, protocol or inline commands. It is not parsed, so the number of its replies is unknown. A
PING with a random payload follows the input: when its reply comes, all commands before it were answered. Another PING
is sent before the input. If the server refuses that one (no login, loading, a full disk), the last one would be
refused, too, so nothing is sent.
"""

from __future__ import annotations

import os
import secrets
import select
import ssl
import time
from collections.abc import Callable
from typing import Final

import hiredis

from disque_py.cli.connection import Connection, ConnectionLostError, reason_of
from disque_py.cli.shell.replies import encode

READ_BYTES: Final = 1 << 16
# The most bytes that are read ahead of the server.
UNSENT_BYTES_MAX: Final = 1 << 20
# The interval at which the time without replies is checked.
LOOK_EVERY_S: Final = 0.1
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Feed:
    """One run: the bytes that are not sent yet, and the replies. `report` gets a line for each error reply."""

    def __init__(self, connection: Connection, report: Callable[[str], None]) -> None:
        self.errors = 0
        self.replies = 0
        self.is_done = False
        self._connection = connection
        self._report = report
        self._reader = hiredis.Reader()
        self._mark = secrets.token_hex(16).encode()
        self._unsent = bytearray()
        self._is_input_over = False

    def run(self, input_fd: int, timeout_s: float) -> bool:
        """Send the input until everything is answered. Return False if there were error replies, or no end.

        timeout_s   the longest time without a reply after the last byte was sent, in seconds; 0: no limit
        Raises ConnectionLostError if the server goes away.
        """
        refusal = self._connection.call("PING")
        if refusal.is_error:
            self._report(
                f"The server refuses PING, which marks the end of the input: {refusal.text.decode(errors='replace')}"
            )
            return False
        sock = self._connection.socket
        sock.setblocking(False)
        heard_at = time.monotonic()
        while not self.is_done:
            readers = [sock.fileno()]
            if not self._is_input_over and len(self._unsent) < UNSENT_BYTES_MAX:
                readers.append(input_fd)
            writers = [sock.fileno()] if self._unsent else []
            readable, writable, _ = select.select(readers, writers, [], LOOK_EVERY_S)
            if writable:
                self._send()
            if input_fd in readable:
                self._take_input(input_fd)
            if sock.fileno() in readable:
                self._take_replies()
            if not self._is_all_sent or sock.fileno() in readable:
                heard_at = time.monotonic()
            elif timeout_s and time.monotonic() - heard_at > timeout_s:
                self._report(f"No replies for {timeout_s:g} seconds: exiting.")
                self.errors += 1
                break
        return self.is_done and not self.errors

    @property
    def _is_all_sent(self) -> bool:
        return self._is_input_over and not self._unsent

    def _take_input(self, input_fd: int) -> None:
        data = os.read(input_fd, READ_BYTES)
        if data:
            self._unsent += data
            return
        self._is_input_over = True
        # This line end finishes an inline command that has none. The server ignores an empty line.
        self._unsent += b"\r\n" + encode([b"PING", self._mark])

    def _send(self) -> None:
        try:
            sent = self._connection.socket.send(bytes(self._unsent[:READ_BYTES]))
        except _NOT_NOW:
            return
        except OSError as error:
            raise ConnectionLostError(reason_of(error)) from error
        del self._unsent[:sent]

    def _take_replies(self) -> None:
        """Read everything that has arrived. TLS may have more than the socket shows, so read until nothing is left."""
        while not self.is_done:
            try:
                data = self._connection.socket.recv(READ_BYTES)
            except _NOT_NOW:
                return
            except OSError as error:
                raise ConnectionLostError(reason_of(error)) from error
            if not data:
                raise ConnectionLostError("Server closed the connection")
            self._reader.feed(data)
            try:
                while (reply := self._reader.gets()) is not False:
                    self._count(reply)
            except hiredis.ProtocolError as error:
                raise ConnectionLostError(f"The server does not speak RESP: {error}") from error

    def _count(self, reply: object) -> None:
        if reply == self._mark:
            self.is_done = True
            return
        self.replies += 1
        if isinstance(reply, hiredis.ReplyError):
            self.errors += 1
            self._report(str(reply))
