"""HTTP connections: uvicorn's protocol, which here also knows the certificate of its peer.

uvicorn passes no certificates to ASGI applications, so this protocol puts the certificate into the state of each
request. TLS has verified it before. The state also has the writer. It joins the head and the body of an answer, which
uvicorn writes separately, so that an answer costs one system call.

Callers that have not logged in may open connections, and their number has a limit. So the protocol closes a connection
whose caller takes too long for the head of a request, sends a body too slowly, or reads its answers too slowly. A
connection has one timer, which looks at the time limits now and then, because a timer for each request would cost more.
An event stream has a time limit of its own (`stream-idle-ms`).

When there are too many connections, uvicorn refuses the requests of all of them, with plain text. This protocol refuses
those of the connections above the limit, with a problem document. It serves /livez even then: the process is alive, and
an orchestrator must not end all its connections.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from disque_py.gateway.http.exchange import TEXT, Answer, problem_answer
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.x509_names import of_der

CERTIFICATE: Final = "certificate"
WRITER: Final = "writer"


class Writer:
    """A transport that can hold one write back and send it together with the next one.

    written   number of bytes that it was given so far, without those that are held back
    """

    __slots__ = ("_held", "_holds", "_transport", "written")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._holds = False
        self._held = b""
        self.written = 0

    def hold(self) -> None:
        """Hold the next write back until another one follows, or until `release`."""
        self._holds = True

    def release(self) -> None:
        """Write the bytes that are held back."""
        self._holds = False
        if self._held:
            held, self._held = self._held, b""
            self.written += len(held)
            self._transport.write(held)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes, after those that are held back."""
        if self._holds:
            self._holds = False
            self._held = bytes(data)
            return
        if self._held:
            data, self._held = self._held + data, b""
        self.written += len(data)
        self._transport.write(data)

    def close(self) -> None:
        """Write the bytes that are held back, and close."""
        self.release()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        """Return another method of the transport."""
        return getattr(self._transport, name)


# Seconds for the head of a request. They begin with the connection, or with the first byte behind the last request.
HEAD_S: Final = 10.0
# Seconds for the body of a request, and the bytes that add a further second.
BODY_S: Final = 20.0
BODY_BYTES_PER_S: Final = 1_000
# Seconds for reading an answer. Bytes that are read add time, as for a body.
TAKE_S: Final = 20.0
# A time limit that begins between two looks is noticed this many seconds late, at most.
LOOK_S: Final = 5.0


class Protocol(HttpToolsProtocol):
    """One connection."""

    app_state: dict[str, Any]
    # The time of the event loop until which the caller must have sent more. There is no limit while a request runs, and
    # uvicorn limits the time between requests.
    _until = inf
    _look: asyncio.TimerHandle | None = None
    # The time of the event loop until which the caller must have read its answers, and the bytes that it has read.
    _take_until = inf
    _taken = 0
    # Whether the limit was reached when the connection came, and at each of its requests since.
    _is_above = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limit: float = self.config.limit_concurrency or inf
        self.limit_concurrency: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wrap the transport in a writer, and remember the certificate."""
        writer = Writer(transport)
        super().connection_made(cast(asyncio.Transport, writer))
        self._is_above = len(self.connections) > self._limit
        self.app_state = {**self.app_state, WRITER: writer}
        tls = transport.get_extra_info("ssl_object")
        found = tls.getpeercert(binary_form=True) if tls is not None else None
        if found:
            self.app_state = {**self.app_state, CERTIFICATE: of_der(found)}
        self._until = self.loop.time() + HEAD_S
        self._look = self.loop.call_later(min(HEAD_S, LOOK_S), self._check_time)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timer."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read bytes. Bytes that begin no request, such as line ends, have the time of a head, too."""
        super().data_received(data)
        if self._until == inf and self.timeout_keep_alive_task is None and _is_over(self.cycle):
            self._until = self.loop.time() + HEAD_S

    def on_message_begin(self) -> None:
        """Begin the time of the head, if it has not begun."""
        super().on_message_begin()
        if self._until == inf:
            self._until = self.loop.time() + HEAD_S

    def on_headers_complete(self) -> None:
        """Begin the time of the body, and the request."""
        self._until = self.loop.time() + BODY_S
        self._is_above = self._is_above and len(self.connections) > self._limit
        if not self._is_above:
            super().on_headers_complete()
            return
        self.app: Any = crowded
        try:
            super().on_headers_complete()
        finally:
            self.app = self.config.loaded_app

    def on_body(self, body: bytes) -> None:
        """Give the body more time."""
        self._until += len(body) / BODY_BYTES_PER_S
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the time limit. The request may take as long as it needs."""
        self._until = inf
        super().on_message_complete()

    def _check_time(self) -> None:
        """Close the connection if its caller is too slow, and look again later otherwise."""
        now = self.loop.time()
        if self.flow.read_paused or _waits(self.cycle):
            # Not the caller is slow, but this gateway.
            self._until = max(self._until, now + HEAD_S)
        if now >= self._until or self._takes_too_long(now):
            self.transport.abort()
            return
        self._look = self.loop.call_at(min(self._until, now + LOOK_S), self._check_time)

    def _takes_too_long(self, now: float) -> bool:
        """Return whether the caller reads its answers too slowly."""
        writer, cycle = cast(Writer, self.transport), self.cycle
        waiting: int = writer.get_write_buffer_size()
        is_stream = cycle is not None and cycle.chunked_encoding and not cycle.response_complete
        taken = writer.written - waiting
        if not waiting or is_stream:
            self._take_until = inf
        elif self._take_until == inf:
            self._take_until = now + TAKE_S
        else:
            self._take_until += (taken - self._taken) / BODY_BYTES_PER_S
        self._taken = taken
        return now >= self._take_until


async def crowded(scope: Any, receive: Any, send: Any) -> None:
    """Refuse a request of a connection above the limit, and close the connection."""
    if scope["path"].endswith("/livez"):
        answer = Answer(200, b"ok\n", TEXT)
    else:
        answer = problem_answer(RefusedError("LIMIT", "too many connections (connections-max)"))
    answer.headers.append(("connection", "close"))
    await send(answer.head())
    await send({"type": "http.response.body", "body": answer.body})


def _is_over(cycle: RequestResponseCycle | None) -> bool:
    return cycle is None or cycle.response_complete


def _waits(cycle: RequestResponseCycle | None) -> bool:
    """Return whether a caller waits for permission to send its body (`Expect: 100-continue`)."""
    return cycle is not None and cycle.waiting_for_100_continue and not cycle.response_complete
