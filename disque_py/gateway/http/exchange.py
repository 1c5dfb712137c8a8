"""A request and its answer, above ASGI.

The body is read with a limit. The gateway notices that a caller has hung up only if an operation waits. Then
`while_connected` watches the connection, and cancels the operation when the connection is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from disque_py.gateway import shapes
from disque_py.gateway.http.origins import is_over_tls, source_of
from disque_py.gateway.logins.certificates import Certificate
from disque_py.gateway.problems import RETRY_AFTER_S, RefusedError

if TYPE_CHECKING:
    from disque_py.gateway.http.protocol import Writer

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
TEXT: Final = "text/plain; charset=utf-8"
PROBLEM: Final = "application/problem+json"
# The challenges of a refusal with 401 (RFC 9110). A certificate has none, because it comes with TLS.
CHALLENGES: Final = {"basic": 'Basic realm="disque", charset="UTF-8"', "bearer": 'Bearer realm="disque"'}
QUERY_PAIRS_MAX: Final = 100
# A proxy may have checked the first of two such headers, and the gateway would believe the last.
SINGLE_HEADERS: Final = frozenset(
    {"authorization", "content-encoding", "content-type", "host", "origin", "transfer-encoding"}
)
_EMPTY: Final[dict[str, Any]] = {}
# Headers of every answer. Browsers must not guess its type, show it in a frame, or cache it.
COMMON_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    # With no-referrer, browsers send `Origin: null` with the forms of the console.
    (b"referrer-policy", b"same-origin"),
)


class CallerGoneError(Exception):
    """The caller hung up before the answer."""


class Exchange:
    """One HTTP request.

    verb      its method
    path      its path, as it came, percent-encoded
    headers   by name in lower case; if a header is repeated, the last one (see check_headers)
    address   the address of the peer
    """

    __slots__ = ("_query", "_receive", "_scope", "address", "headers", "path", "verb")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self._query: dict[str, list[str]] | None = None
        self.verb: str = scope["method"]
        self.path: str = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.address: str = (scope.get("client") or ("", 0))[0]

    def check_headers(self) -> None:
        """Refuse a repeated header that may have one value only, and join cookies. Raises RefusedError.

        RFC 9110, 5.3.
        """
        if len(self.headers) == len(self._scope["headers"]):
            return
        named: dict[str, list[str]] = {}
        for name, value in self._scope["headers"]:
            named.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        for name, values in named.items():
            if name in SINGLE_HEADERS and len(values) > 1:
                raise RefusedError("ERR", f"the header {name} came {len(values)} times; send it once")
        if "cookie" in named:
            self.headers["cookie"] = "; ".join(named["cookie"])

    @property
    def has_query(self) -> bool:
        """Whether the address has a query."""
        return bool(self._scope["query_string"])

    @property
    def query(self) -> dict[str, list[str]]:
        """The pairs of the query. Raises RefusedError."""
        if self._query is None:
            raw = self._scope["query_string"]
            found: dict[str, list[str]] = {}
            if raw:
                try:
                    text = raw.decode("ascii")
                    # Names are bytes. `fields.py` refuses other values that are not UTF-8.
                    pairs = parse_qsl(
                        text, keep_blank_values=True, errors="surrogateescape", max_num_fields=QUERY_PAIRS_MAX
                    )
                except ValueError as error:
                    raise RefusedError("ERR", f"the query can't be read: {error}") from None
                for name, value in pairs:
                    found.setdefault(name, []).append(value)
            self._query = found
        return self._query

    @property
    def certificate(self) -> Certificate | None:
        """The peer's certificate, which TLS has verified."""
        found: Certificate | None = self._scope.get("state", _EMPTY).get("certificate")
        return found

    @property
    def writer(self) -> Writer | None:
        """The connection's writer; None if another server than the gateway's runs the application."""
        found: Writer | None = self._scope.get("state", _EMPTY).get("writer")
        return found

    @property
    def is_secure(self) -> bool:
        """Whether the caller uses TLS: to this gateway, or as its browser says, to a proxy before it."""
        return self._scope["scheme"] == "https" or is_over_tls(self.headers)

    def check_source(self) -> None:
        """Refuse a change that a page of another site has sent. Raises RefusedError.

        A request with `Authorization: Bearer` may make the change, because browsers add no such header by themselves.
        """
        has_token = self.headers.get("authorization", "").lower().startswith("bearer ")
        if not has_token and source_of(self.headers) == "other":
            raise RefusedError("NOPERM", "the request came from a page of another site")

    async def body(self, most: int, name: str) -> bytes:
        """Return the body.

        Raises RefusedError above `most` bytes, naming the setting, and for a compressed body; and CallerGoneError.
        """
        for header, only in (("content-encoding", "identity"), ("transfer-encoding", "chunked")):
            if self.headers.get(header, only).strip().lower() != only:
                raise RefusedError("ERR", f"{header} must be {only}: send the body without compression")
        length = self.headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise RefusedError("TOOBIG", f"the body has more than {most} bytes ({name})")
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise CallerGoneError
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise RefusedError("TOOBIG", f"the body has more than {most} bytes ({name})")
            parts.append(part)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def disconnected(self) -> None:
        """Return when the caller has hung up. Call it after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def while_connected(
        self, work: Coroutine[Any, Any, T], undo: Callable[[], Awaitable[None]], ending: asyncio.Future[None]
    ) -> T:
        """Return the result of `work`.

        If the caller hangs up, end it, call `undo`, and raise CallerGoneError. When `ending` is done, do the same, and
        raise RefusedError.
        """
        task = asyncio.create_task(work)
        gone = asyncio.create_task(self.disconnected())
        try:
            await asyncio.wait((task, gone, ending), return_when=asyncio.FIRST_COMPLETED)
            # The caller may hang up as the work ends. Then the task that notices it has its turn only now.
            await asyncio.sleep(0)
            if gone.done() or not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
                await undo()
                if gone.done():
                    raise CallerGoneError
                raise RefusedError("ENDING", "this gateway ends; send the request again")
            return await task
        finally:
            gone.cancel()
            task.cancel()


@dataclass(slots=True)
class Answer:
    """An answer: its status, its bytes and its type.

    stream   yields more bytes
    ended    called once, when the answer was sent or its caller is gone
    """

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: list[tuple[str, str]] = field(default_factory=list)
    stream: AsyncIterator[bytes] | None = None
    ended: Callable[[], None] | None = None

    def head(self) -> dict[str, Any]:
        """Return the ASGI message that begins the answer."""
        headers = [(b"content-type", self.content_type.encode()), *COMMON_HEADERS]
        headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]
        if self.stream is None:
            headers.append((b"content-length", b"%d" % len(self.body)))
        return {"type": "http.response.start", "status": self.status, "headers": headers}


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer with JSON."""
    return Answer(status, encoded(value), JSON, list((headers or {}).items()))


def encoded(value: Any) -> bytes:
    """Return JSON. Bytes of a program that are not UTF-8, such as those of metadata or a reason, become U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(shapes.as_text(value))


def refusal_headers(error: RefusedError) -> list[tuple[str, str]]:
    """Return the headers of a refusal, whatever its body is."""
    headers = []
    if error.retry_after:
        headers.append(("retry-after", str(RETRY_AFTER_S)))
    if "methods" in error.more:
        headers.append(("allow", ", ".join(error.more["methods"])))
    return headers


def problem_answer(error: RefusedError, schemes: Sequence[str] = ()) -> Answer:
    """Return the answer for a refusal.

    schemes   the kinds of login that the gateway accepts. A browser asks its user for a password if Basic is offered
    """
    row, headers = error.row, refusal_headers(error)
    if row.http == 401:
        offered = [scheme for scheme in schemes if scheme in CHALLENGES]
        # An answer with 401 has at least one challenge (RFC 9110).
        headers += [("www-authenticate", CHALLENGES[scheme]) for scheme in offered or ("bearer",)]
    return Answer(row.http, encoded(error.problem()), PROBLEM, headers)
