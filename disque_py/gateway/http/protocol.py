"""HTTP connections: uvicorn's protocol, which here also knows the certificate of its peer.

uvicorn passes no certificates to ASGI applications, so this protocol puts the certificate into the state of each
request. TLS has verified it before. The state also has the writer. It joins the head and the body of an answer, which
uvicorn writes separately, so that an answer costs one system call.

Callers that have not logged in may open connections, and their number has a limit. So the protocol closes a connection
whose caller takes too long for the head of a request, sends a body too slowly, or reads its answers too slowly. A
connection has one timer, which looks at the time limits now and then, because a timer for each request would cost more.
An event stream has a time limit of its own (`stream-idle-ms`).

Callers get the same kind of answer, whatever is wrong with a request. By default uvicorn answers a request that it
can't read with plain text, even before or within the answers to earlier requests of the connection. This protocol
answers with a problem document, in the order of the requests, and then closes the connection. It also limits the head
of a request, because a head is kept in memory, and anyone may send one.

A request may name the gateway in its first line (`GET http://host/path`). This name is then the Host header, and the
rest is the address, so everything behind this protocol sees the usual form (RFC 9112, 3.2.2). A request may also ask
for another protocol (`Upgrade`), as HTTP clients of Java do. It is then read again without this header, because the
HTTP library would take its body for bytes of the other protocol.

When there are too many connections, uvicorn refuses the requests of all of them, with plain text. This protocol refuses
those of the connections above the limit, with a problem document. It serves /livez even then: the process is alive, and
an orchestrator must not end all its connections.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from functools import partial
from math import inf
from typing import Any, Final, cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserInvalidMethodError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from disque_py.gateway.http.exchange import TEXT, Answer, problem_answer
from disque_py.gateway.logins.x509_names import of_der
from disque_py.gateway.operations import TABLE
from disque_py.gateway.problems import RefusedError

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


# The most bytes of a request's address and headers. The HTTP library reads no longer address.
HEAD_MAX: Final = 65_535
# Bytes of a header besides its name and value.
BETWEEN: Final = len(": \r\n")
METHODS: Final = sorted({"GET", "HEAD", *(operation.verb for operation in TABLE)})
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)

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
    cycle: Any  # The newest request, whose annotations lack the state before the first one.
    headers: list[tuple[bytes, bytes]]
    # The time of the event loop until which the caller must have sent more. There is no limit while a request runs, and
    # uvicorn limits the time between requests.
    _until = inf
    _look: asyncio.TimerHandle | None = None
    # The time of the event loop until which the caller must have read its answers, and the bytes that it has read.
    _take_until = inf
    _taken = 0
    # Whether the limit was reached when the connection came, and at each of its requests since.
    _is_above = False
    # Whether the head of a request was read, and its end was not.
    _is_in_body = False
    # Whether a request could not be read, so that nothing behind it can be read, either.
    _is_refused = False
    # The head of a request that asks for another protocol, without the header `Upgrade`; empty for any other request.
    _again = b""
    # Bytes since the last progress: the beginning of a request, the end of its head, or a part of its body. At most
    # the bytes of the last read are missing.
    _unread = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Requests before the newest one, if it came before their answers. The first of them may be answered by now.
        self._earlier: deque[RequestResponseCycle] = deque()
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
        """End the timer, and tell requests whose answers others wait for. uvicorn tells only the last one."""
        if self._look is not None:
            self._look.cancel()
        for cycle in self._earlier:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read bytes. Bytes that begin no request, such as line ends, have the time of a head, too."""
        self._unset_keepalive_if_required()
        if self._is_refused:
            return
        self._unread += len(data)
        try:
            self._read(data)
        except HttpParserCallbackError as error:
            refused = error.__context__
            self._refuse(refused if isinstance(refused, RefusedError) else _unreadable("invalid address"))
        except HttpParserInvalidMethodError:
            self._refuse(_unsupported())
            self.scope["method"] = "GET"  # The parser has that of the last request, and HEAD has no body.
        except HttpParserError as error:
            self._refuse(_unreadable(str(error)))
        else:
            if self._unread > HEAD_MAX:
                self._refuse(_too_long())
            elif self._until == inf and self.timeout_keep_alive_task is None and _is_over(self.cycle):
                self._until = self.loop.time() + HEAD_S

    def _read(self, data: bytes) -> None:
        """Give bytes to the parser. It stops behind the head of a request that asks for another protocol."""
        while True:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                data = self._again + data[upgrade.args[0] :]
            else:
                return

    def _refuse(self, error: RefusedError) -> None:
        """Answer a request that can't be read, after those before it, and close the connection."""
        self._is_refused = True
        self._until = inf
        app, cycle = partial(refuse_unreadable, error), self.cycle
        if self._is_in_body:
            if self.pipeline:  # This request waits for the answers to earlier ones.
                self.pipeline[0] = (cycle, app)
                return
            if cycle.response_started:
                self.transport.close()
                return
            # For its application the caller is gone, so this request has no other answer.
            cycle.disconnected = True
            cycle.message_event.set()
            self.cycle = None
        super().on_message_begin()
        self.url = b"/"
        self._begin(app)

    def on_message_begin(self) -> None:
        """Begin the time of the head, if it has not begun."""
        super().on_message_begin()
        self._unread = 0
        if self._until == inf:
            self._until = self.loop.time() + HEAD_S

    def on_headers_complete(self) -> None:
        """Begin the time of the body, and the request. Raises RefusedError, which ends the parser."""
        if len(self.url) + sum(len(name) + len(value) + BETWEEN for name, value in self.headers) > HEAD_MAX:
            raise _too_long()
        if self.parser.get_method() == b"CONNECT":
            raise _unsupported()
        if not self.url.startswith(b"/"):
            self._relate()
        if self.parser.should_upgrade():
            if self._again:  # The header is gone, and the library still sees one. Reading again would never end.
                raise _unreadable("Upgrade")
            self._again = self._head()
            return
        self._again = b""
        self._unread = 0
        self._until = self.loop.time() + BODY_S
        self._is_above = self._is_above and len(self.connections) > self._limit
        self._begin(refuse_excess if self._is_above else self.app)
        self._is_in_body = True
        # Fields behind the body are no headers: whatever checked the headers has not seen them.
        self.headers = []

    def _begin(self, app: Any) -> None:
        """Begin the request with an application."""
        if not _is_over(self.cycle):
            while self._earlier and _is_over(self._earlier[0]):
                self._earlier.popleft()
            self._earlier.append(self.cycle)
        self.app: Any = app
        try:
            super().on_headers_complete()
        finally:
            self.app = self.config.loaded_app

    def _relate(self) -> None:
        """Make an absolute address relative, and let Host have its name. Raises RefusedError."""
        match = _ABSOLUTE.fullmatch(self.url)
        if match is None:
            if self.url == b"*":
                return
            raise _unreadable("invalid address")
        host, rest = match.groups()
        if b"@" in host:
            raise _unreadable("a login in the address")
        self.url = rest if rest.startswith(b"/") else b"/" + rest
        if all(name != b"host" for name, _ in self.headers):
            self.headers.append((b"host", host))
        self.headers[:] = [(name, host if name == b"host" else value) for name, value in self.headers]

    def _head(self) -> bytes:
        """Return the head of this request again, without `Upgrade`."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_body(self, body: bytes) -> None:
        """Give the body more time."""
        self._unread = 0
        self._until += len(body) / BODY_BYTES_PER_S
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the time limit. The request may take as long as it needs."""
        if self._again:
            return
        self._until = inf
        self._unread = 0
        self._is_in_body = False
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


async def refuse_excess(scope: Any, receive: Any, send: Any) -> None:
    """Refuse a request of a connection above the limit, and close the connection."""
    if scope["path"].endswith("/livez"):
        answer = Answer(200, b"ok\n", TEXT)
    else:
        answer = problem_answer(RefusedError("LIMIT", "too many connections (connections-max)"))
    await _last(answer, send)


async def refuse_unreadable(error: RefusedError, scope: Any, receive: Any, send: Any) -> None:
    """Answer a request that can't be read, and close the connection."""
    await _last(problem_answer(error), send)


async def _last(answer: Answer, send: Any) -> None:
    """Send the last answer of a connection."""
    answer.headers.append(("connection", "close"))
    await send(answer.head())
    await send({"type": "http.response.body", "body": answer.body})


def _unreadable(reason: str) -> RefusedError:
    return RefusedError("ERR", f"the request can't be read: {reason}")


def _unsupported() -> RefusedError:
    return RefusedError("METHOD", f"paths support {', '.join(METHODS)}", methods=METHODS)


def _too_long() -> RefusedError:
    return RefusedError("TOOBIG", f"the address and the headers have more than {HEAD_MAX} bytes")


def _is_over(cycle: RequestResponseCycle | None) -> bool:
    return cycle is None or cycle.response_complete


def _waits(cycle: RequestResponseCycle | None) -> bool:
    """Return whether a caller waits for permission to send its body (`Expect: 100-continue`)."""
    return cycle is not None and cycle.waiting_for_100_continue and not cycle.response_complete
