"""A scripted node for the client's tests, which can fail in all ways in which nodes and networks fail.

An answer is bytes, or a function of the command's words. HANG_UP closes the connection instead. SILENCE leaves this
command and all later ones without an answer. The answer to HELLO is made from the node's id, priority and peers.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

import hiredis
import pytest

from disque_py.client.put_back import REASON
from disque_py.client.templates import SLAB

HANG_UP: Final = b"hang up"
SILENCE: Final = b"silence"

Answer = bytes | Callable[[list[bytes]], bytes]

JOB_A = "D-aaaaaaaa-" + "x" * 24 + "-05a1"
JOB_B = "D-bbbbbbbb-" + "y" * 24 + "-05a1"

# The last words of a NACK for jobs that no program has seen.
AT_ONCE = [b"DELAY", b"0", b"REASON", REASON.encode()]


class Node:
    """A node that listens on a free loopback port until it is closed.

    commands   words of every command that came, without HELLO
    last_word  bytes that are sent when a client ends its side of the connection, before the connection is closed
    pause_s    seconds of pause after each 64 KiB that are read, as over a slow network; None: no limit
    """

    def __init__(
        self,
        letter: str = "a",
        answers: dict[str, Answer] | None = None,
        *,
        priority: int = 1,
        pause_s: float | None = None,
    ) -> None:
        self.pause_s = pause_s
        self.id = letter * 40
        self.priority = priority
        self.peers: list[Node] = []
        self.answers: dict[str, Answer] = {"PING": b"+PONG\r\n", **(answers or {})}
        self.commands: list[list[bytes]] = []
        self.greetings = 0
        self.last_word = b""
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.port = 0
        self.listen()

    @property
    def address(self) -> str:
        """Return the address at which the node listens."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def listen(self) -> None:
        """Begin to take connections, for the first time or again."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        if self.pause_s is not None:  # The system takes no more than the node reads.
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self.port = self._listener.getsockname()[1]
        self._start(self._accept, self._listener)

    def close(self) -> None:
        """Take no more connections, and drop the existing ones."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join(5)

    def drop(self) -> None:
        """Break every connection."""
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def named(self, name: str) -> list[list[bytes]]:
        """Return the commands of that name."""
        return [words for words in self.commands if words[0] == name.encode()]

    def _start(self, work: Callable[[socket.socket], None], sock: socket.socket) -> None:
        self._threads.append(threading.Thread(target=work, args=(sock,), daemon=True))
        self._threads[-1].start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self._open.append(sock)
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        reader = hiredis.Reader()
        is_silent = False
        with sock, contextlib.suppress(OSError, hiredis.ProtocolError):
            while data := sock.recv(65536):
                reader.feed(data)
                if self.pause_s is not None and len(data) > 1_000:
                    time.sleep(self.pause_s)
                while (words := reader.gets()) is not False:
                    answer = self._answer(words)
                    if answer is HANG_UP:
                        return
                    is_silent = is_silent or answer is SILENCE
                    if not is_silent:
                        sock.sendall(answer)
            sock.sendall(self.last_word)

    def _answer(self, words: list[bytes]) -> bytes:
        if words[0] == b"HELLO" and "HELLO" not in self.answers:
            self.greetings += 1
            return self._hello()
        self.commands.append(words)
        answer = self.answers.get(words[0].decode(), b"-ERR unknown command\r\n")
        return answer(words) if callable(answer) else answer

    def _hello(self) -> bytes:
        nodes = [self, *self.peers]
        entries = (
            b"*4\r\n" + b"".join(bulk(word) for word in (node.id, "127.0.0.1", str(node.port), str(node.priority)))
            for node in nodes
        )
        return b"*%d\r\n:1\r\n%b%b" % (2 + len(nodes), bulk(self.id), b"".join(entries))


def bulk(value: str | bytes) -> bytes:
    """Return a bulk string."""
    data = value.encode() if isinstance(value, str) else value
    return b"$%d\r\n%b\r\n" % (len(data), data)


def jobs_reply(*ids: str, queue: str = "q", body: bytes = b"body") -> bytes:
    """Return GETJOB's answer with these jobs, without counters."""
    return b"*%d\r\n" % len(ids) + b"".join(b"*3\r\n" + bulk(queue) + bulk(id_) + bulk(body) for id_ in ids)


def in_turn(*answers: bytes) -> Callable[[list[bytes]], bytes]:
    """Return a function that gives one answer after another; the last one is repeated for ever."""
    rest: Iterator[bytes] = iter(answers[:-1])
    return lambda _: next(rest, answers[-1])


def node_that_closes_its_door() -> Node:
    """Return a node that hangs up at the last ADDJOB of the first part of `add_jobs`, and then asks for a password."""
    node = Node()

    def answer(_: list[bytes]) -> bytes:
        if len(node.named("ADDJOB")) < SLAB:
            return b"+D-1\r\n"
        node.answers["HELLO"] = b"-NOAUTH Authentication required.\r\n"
        return HANG_UP

    node.answers["ADDJOB"] = answer
    return node


def closed_port() -> int:
    """Return a port on which no process listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


@contextlib.contextmanager
def name_of(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield an address whose name has two IP addresses. The first is silent, and the node listens on the second."""
    places = [("127.0.0.2", node.port), ("127.0.0.1", node.port)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place) for place in places]
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *a, **k: found if host == "two.test" else resolve(host, *a, **k)
    )
    with contextlib.ExitStack() as open_, socket.socket() as silent:
        try:
            silent.bind(places[0])
        except OSError:
            pytest.skip("this system has no second loopback address")
        silent.listen(0)
        for _ in range(4):  # Nothing accepts these, so the system answers no further connection.
            waiting = open_.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(places[0])
        yield f"two.test:{node.port}"


def wait_until(is_true: Callable[[], bool], limit_s: float = 5.0) -> None:
    """Wait until threads have made the condition true. Fail after `limit_s`."""
    until = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.005)
