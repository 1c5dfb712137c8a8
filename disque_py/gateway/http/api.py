"""The HTTP API: an ASGI application for every operation of the table, and for /livez, /readyz, /metrics and /docs.

The application first checks the Host header of a request, then routes the request, checks its login, reads it and
executes it. Every refusal is a problem document (RFC 9457). Other interfaces (the console, the REST interface of
dyno-queues) are mounted below their own paths.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final

from disque_py.client import DisqueError
from disque_py.gateway.clusters import PREFIX
from disque_py.gateway.event_feed import EventFeed, EventFilter, parse_place
from disque_py.gateway.http import arguments, batches, openapi, reference_page
from disque_py.gateway.http.event_stream import CONTENT_TYPE, event_stream
from disque_py.gateway.http.exchange import (
    JSON,
    LINES,
    TEXT,
    Answer,
    CallerGoneError,
    Exchange,
    Receive,
    Scope,
    Send,
    json_answer,
    problem_answer,
)
from disque_py.gateway.http.hosts import Hosts
from disque_py.gateway.http.routing import Routes
from disque_py.gateway.logins.grants import Principal
from disque_py.gateway.operations import TABLE, Operation
from disque_py.gateway.problems import RefusedError, refusal_of
from disque_py.gateway.service import LOG, LOGIN_CHECK_S, Login, Service

INTERFACE: Final = "http"
CSP: Final = (
    "content-security-policy",
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
)
HTML: Final = "text/html; charset=utf-8"

# Seconds for the last bytes of a stream when the gateway ends.
LAST_S: Final = 1.0

# An interface below a path. It gets the exchange and the rest of the path.
Mounted = Callable[[Exchange, str], Awaitable[Answer]]


class Api:
    """The application.

    service   executes the operations
    mounts    prefix of paths (`/dyno/`) → its interface
    clusters  the applications of clusters, by name; their paths are below `/clusters/{name}`
    """

    def __init__(
        self, service: Service, mounts: dict[str, Mounted] | None = None, clusters: dict[str, Api] | None = None
    ) -> None:
        self._clusters = clusters or {}
        self._service = service
        self._settings = service.settings
        self._base = service.path
        self._outer = service.settings.base_path
        self._routes = Routes(TABLE)
        self._mounts = mounts or {}
        self._hosts = Hosts(service.settings.listen.host, service.settings.hosts)
        self._plain: dict[str, Callable[[Exchange], Awaitable[Answer]]] = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/v1/openapi.json": self._openapi,
            "/docs": self._docs,
            "/docs.css": self._docs_css,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of ASGI."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive)
        try:
            answer = await self._answer(exchange)
        except CallerGoneError:
            return
        except RefusedError as error:
            answer = problem_answer(error, self._settings.schemes)
        except Exception as error:
            LOG.exception("%s %s failed", exchange.verb, exchange.path)
            answer = problem_answer(
                refusal_of(error) if isinstance(error, OSError) else RefusedError("FAULT", "an error of the gateway")
            )
        try:
            await self._send(answer, exchange, send)
        finally:
            if answer.ended is not None:
                answer.ended()

    async def _send(self, answer: Answer, exchange: Exchange, send: Send) -> None:
        if answer.stream is None or exchange.verb == "HEAD":
            writer = exchange.writer
            if writer is not None:
                writer.hold()  # The body follows the head immediately.
            await send(answer.head())
            await send({"type": "http.response.body", "body": b"" if exchange.verb == "HEAD" else answer.body})
            if writer is not None:
                writer.release()
            return
        await send(answer.head())
        limit_s = self._settings.stream_idle_ms / 1000
        ending = self._service.ending
        gone = asyncio.create_task(exchange.disconnected())
        sending = asyncio.create_task(_stream(answer.stream, send, limit_s))
        try:
            await asyncio.wait((gone, sending, ending), return_when=asyncio.FIRST_COMPLETED)
            is_cut = not gone.done() and not sending.done()
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)
            close = getattr(answer.stream, "aclose", None)
            if close is not None:
                await close()
        if is_cut:
            # The gateway ends. A reader of a whole answer meets no error, and connects again with its place.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await send({"type": "http.response.body", "body": b""})

    async def _answer(self, exchange: Exchange) -> Answer:
        exchange.check_headers()
        if not self._hosts.admits(exchange.headers.get("host", "")):
            raise RefusedError("HOST", "the Host header does not name this gateway (see the setting hosts)")
        path = exchange.path
        if self._outer:
            if path != self._outer and not path.startswith(self._outer + "/"):
                raise RefusedError("NOTFOUND", f"paths begin with {self._outer}")
            path = path[len(self._outer) :] or "/"
        if path.startswith(PREFIX):
            name, _, rest = path[len(PREFIX) :].partition("/")
            cluster = self._clusters.get(name)
            if cluster is None:
                raise RefusedError("NOTFOUND", "this gateway has no such cluster")
            return await cluster.answer(exchange, "/" + rest)
        return await self.answer(exchange, path)

    async def answer(self, exchange: Exchange, path: str) -> Answer:
        """Return the answer of this cluster for a path below its own. Raises RefusedError."""
        if not path.startswith("/v1/") or path == "/v1/openapi.json":
            plain = self._plain.get(path)
            if plain is not None:
                if exchange.verb not in ("GET", "HEAD"):
                    raise RefusedError("METHOD", "this path supports only GET", methods=["GET", "HEAD"])
                return await plain(exchange)
            if path in ("/", "/console") and "/console/" in self._mounts and exchange.verb in ("GET", "HEAD"):
                return Answer(303, b"", TEXT, [("location", f"{self._base}/console/")])
            for prefix, mounted in self._mounts.items():
                if path.startswith(prefix):
                    return await mounted(exchange, path[len(prefix) :])
        operation, texts = self._routes.find(exchange.verb, path)
        if operation.verb != "GET":
            exchange.check_source()
        principal = await self._login(exchange)
        return await self._operate(exchange, operation, principal, texts)

    async def _login(self, exchange: Exchange) -> Principal:
        words = exchange.headers.get("authorization", "")
        return await self._service.login(words, exchange.address, INTERFACE, exchange.certificate)

    async def _operate(
        self, exchange: Exchange, operation: Operation, principal: Principal, texts: dict[str, str]
    ) -> Answer:
        args = arguments.of_path(operation, texts)
        if operation.form == "events":
            return await self._events(exchange, operation, principal)
        if operation.form == "lines":
            return await self._batch(exchange, operation, principal, args)
        if operation.has_body:
            args |= await self._body_arguments(exchange, operation)
        else:
            args |= arguments.of_query(operation, exchange.query)
            if (
                exchange.headers.get("content-length", "0") != "0"
                or "transfer-encoding" in exchange.headers
                or operation.waits
            ):
                await exchange.body(self._settings.body_max, "body-max")
        call = self._service.call(principal, args, exchange.headers)
        work = self._service.perform(operation, call, exchange.address, INTERFACE)
        if not operation.waits:
            return self._done(operation, args, await work)
        found = await exchange.while_connected(work, call.give_back, self._service.ending)
        return self._done(operation, args, found)

    async def _body_arguments(self, exchange: Exchange, operation: Operation) -> dict[str, Any]:
        body = await exchange.body(self._settings.body_max, "body-max")
        kind = exchange.headers.get("content-type", "")
        if kind == JSON and not exchange.has_query:
            return arguments.of_json(operation, body)
        kind = kind.partition(";")[0].strip().lower()
        if operation.name == "enqueue" and kind == openapi.OCTETS:
            if "body_base64" in exchange.query:
                raise RefusedError(
                    "ERR", f"body_base64 is not for a body of {openapi.OCTETS}, which is the job's body itself"
                )
            return arguments.of_query(operation, exchange.query, "body") | {"body_base64": body}
        if body and kind not in ("", JSON):
            raise RefusedError("ERR", f"content-type must be {JSON}, not {kind}")
        # A form of another site can send a body without a type, but no body with the type of JSON.
        if not kind and body:
            raise RefusedError("ERR", f"content-type must be {JSON}")
        return arguments.of_query(operation, exchange.query) | arguments.of_json(operation, body)

    def _done(self, operation: Operation, args: dict[str, Any], found: Any) -> Answer:
        headers = {}
        if operation.status == 201:
            headers["location"] = f"{self._base}/v1/jobs/{found['id'].replace('/', '%2F')}"
        elif operation.status == 202:
            headers["location"] = f"{self._base}/v1/operations/{found['id']}"
        return json_answer(found, operation.status, headers)

    async def _batch(
        self, exchange: Exchange, operation: Operation, principal: Principal, args: dict[str, Any]
    ) -> Answer:
        args |= arguments.of_query(operation, exchange.query)
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (LINES, "application/jsonl"):
            raise RefusedError("ERR", f"content-type must be {LINES}")
        call = self._service.call(principal, args, exchange.headers)
        started = time.perf_counter()
        code = "OK"
        try:
            await self._service.admit(operation, call)
            body = await exchange.body(self._settings.batch_max_bytes, "batch-max-bytes")
            lines = batches.lines_of(body, self._settings.batch_max_jobs)
            codes: set[str] = set()
            parts = [part async for part in batches.answers(call, lines, codes)]
            if "NOPERM" in codes:
                self._service.audit_refused(principal, exchange.address, INTERFACE, operation.name, args)
            return Answer(200, b"".join(parts), LINES)
        except (asyncio.CancelledError, CallerGoneError):
            code = "GONE"
            raise
        except Exception as error:
            refused = self._service.refusal(error, operation.name)
            code = refused.code
            raise refused from error
        finally:
            self._service.record(operation, call, exchange.address, INTERFACE, code, time.perf_counter() - started)

    async def _events(self, exchange: Exchange, operation: Operation, principal: Principal) -> Answer:
        args = arguments.of_query(operation, exchange.query)
        call = self._service.call(principal, args)
        await self._service.admit_stream(operation, call, exchange.address, INTERFACE)
        await exchange.body(0, "body-max")
        place = parse_place(exchange.headers.get("last-event-id", args.get("place", "")))
        try:
            await call.client.hello()  # The answer begins before its stream asks a node.
        except DisqueError as error:
            raise self._service.refusal(error, operation.name) from error
        wanted = EventFilter(principal, args.get("queue", ""), args.get("job", ""), args.get("event", ""))
        self._service.open_stream(principal)
        login = Login(exchange.headers.get("authorization", ""), exchange.address, exchange.certificate)
        stream = self._following(principal, place, wanted, login)
        # The stream's own code may never run, so the answer counts the end of the stream.
        return Answer(200, b"", CONTENT_TYPE, [], stream, partial(self._service.close_stream, principal))

    async def _following(
        self, principal: Principal, place: dict[str, int], wanted: EventFilter, login: Login
    ) -> AsyncIterator[bytes]:
        """Yield the stream's bytes, as long as the login is valid and has its role."""
        feed = EventFeed(principal.client, place)
        checked = time.monotonic()
        try:
            async for part in event_stream(feed, wanted):
                if time.monotonic() - checked >= LOGIN_CHECK_S:
                    checked = time.monotonic()
                    wanted.principal = await self._service.renewed_login(login, wanted.principal)
                    if not (wanted.principal.asks_broker or wanted.principal.may_somewhere("bodies")):
                        return
                yield part
        except RefusedError:
            return  # When the reader connects again, it gets the reason.
        finally:
            await feed.close()

    # -- Paths without an operation -----------------------------------------------------------------

    async def _livez(self, exchange: Exchange) -> Answer:
        return Answer(200, b"ok\n", TEXT)

    async def _readyz(self, exchange: Exchange) -> Answer:
        picture = await self._service.board.picture()
        if picture.is_ready:
            return Answer(200, b"ok\n", TEXT)
        # Anyone may ask, so the answer names no node.
        reason = "the nodes refuse the gateway's login" if picture.refuses_login else "no majority of the nodes answers"
        return Answer(503, f"{reason}\n".encode(), TEXT)

    async def _metrics(self, exchange: Exchange) -> Answer:
        principal = await self._login(exchange)
        if not principal.may_everywhere("read"):
            self._service.audit_refused(principal, exchange.address, INTERFACE, "metrics", {})
            raise RefusedError("NOPERM", "metrics need the role read on every queue")
        accept = exchange.headers.get("accept", "")
        picture = await self._service.board.picture()
        text, content_type = await self._service.metrics.page(self._service.board, picture, accept)
        return Answer(200, text, content_type)

    async def _openapi(self, exchange: Exchange) -> Answer:
        return json_answer(openapi.document(self._base, self._settings.schemes))

    async def _docs(self, exchange: Exchange) -> Answer:
        return Answer(200, reference_page.page(self._base), HTML, [CSP])

    async def _docs_css(self, exchange: Exchange) -> Answer:
        return Answer(200, reference_page.CSS.encode(), "text/css; charset=utf-8")


async def _stream(parts: AsyncIterator[bytes], send: Send, limit_s: float) -> None:
    """Send the parts of a stream. Close it if the reader takes nothing for `limit_s` seconds."""
    async for part in parts:
        async with asyncio.timeout(limit_s):
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
