"""A scripted node: a socket that answers RESP commands from a table, in place of a real node."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest

Answer = bytes | Callable[[list[bytes]], bytes | None]


class ScriptedNode:
    """A node that listens on a free loopback port until it is closed.

    `answers` maps the first words of a command, in capitals, to the bytes of its reply, or to a function of
    the words; None closes the connection. `requests` are the commands that came.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.requests: list[list[bytes]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Hang up and stop listening."""
        for sock in (self._listener, *self._connections):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        for thread in self._threads:
            thread.join(timeout=5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        buffer = b""
        try:
            while data := connection.recv(65536):
                buffer += data
                while (request := take_request(buffer)) is not None:
                    words, buffer = request
                    reply = self._answer(words) if words else b""
                    if reply is None:
                        return
                    connection.sendall(reply)
        except OSError:
            return
        finally:
            connection.close()

    def _answer(self, words: list[bytes]) -> bytes | None:
        self.requests.append(words)
        upper = [word.decode("latin-1").upper() for word in words]
        for length in range(len(upper), 0, -1):
            answer = self.answers.get(" ".join(upper[:length]))
            if answer is not None:
                return answer(words) if callable(answer) else answer
        return b"-ERR unknown command '%b'\r\n" % words[0]


def take_request(buffer: bytes) -> tuple[list[bytes], bytes] | None:
    """Return the first command of a buffer (array or inline), and the bytes after it."""
    line, end, rest = buffer.partition(b"\n")
    if not end:
        return None
    if not line.startswith(b"*"):
        return line.split(), rest
    words = []
    for _ in range(int(line[1:])):
        header, end, rest = rest.partition(b"\r\n")
        if not end or len(rest) < int(header[1:]) + 2:
            return None
        words.append(rest[: int(header[1:])])
        rest = rest[int(header[1:]) + 2 :]
    return words, rest


@pytest.fixture
def scripted() -> Iterator[Callable[[Mapping[str, Answer]], ScriptedNode]]:
    """Make scripted nodes, and close them when the test is over."""
    nodes: list[ScriptedNode] = []

    def make(answers: Mapping[str, Answer]) -> ScriptedNode:
        nodes.append(ScriptedNode(answers))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


def bulk(text: str | bytes) -> bytes:
    """Return a bulk string."""
    data = text.encode() if isinstance(text, str) else text
    return b"$%d\r\n%b\r\n" % (len(data), data)


@pytest.fixture
def bulk_reply() -> Callable[[str | bytes], bytes]:
    """Make bulk strings for the answers of scripted nodes."""
    return bulk
