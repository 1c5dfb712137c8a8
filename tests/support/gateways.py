"""A gateway of a test, in a thread with an event loop of its own, and a small HTTP client for it.

The client compares each answer with the OpenAPI document.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import re
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import uvloop

from answer_schemas import check_answer
from disque_py.gateway.server import Gateway
from disque_py.gateway.settings import Settings
from disque_py.loopback_ports import HOST, free_port


@dataclass
class Reply:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes
    cookies: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


def basic(user: str, password: str) -> str:
    """Return an Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class RunningGateway:
    """A gateway that serves `url` on free ports until closed. Keywords are settings, with underscores."""

    def __init__(self, url: str, **settings: Any) -> None:
        texts = {
            "listen": f"{HOST}:{free_port()}",
            "grpc-listen": f"{HOST}:{free_port()}",
            "url": url,
            "poll-ms": "100",
        }
        texts |= {name.replace("_", "-"): str(value) for name, value in settings.items()}
        self.settings = Settings(texts)
        self._started = threading.Event()
        self._ended: asyncio.Event | None = None
        self._error: BaseException | None = None
        self.gateway: Gateway | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._started.wait(20)
        if self._error is not None:
            raise self._error

    @property
    def port(self) -> int:
        """The port of HTTP."""
        assert self.gateway is not None
        return self.gateway.port

    @property
    def address(self) -> str:
        """The URL of HTTP."""
        return f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._ended = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.gateway = Gateway(self.settings)
        await self.gateway.start()
        self._started.set()
        await self._ended.wait()
        await self.gateway.close()

    def close(self) -> None:
        """Stop it."""
        if self._ended is not None and self.loop is not None and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(20)

    def request(
        self,
        verb: str,
        path: str,
        value: Any = None,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        login: str = "",
        timeout: float = 20,
        tls: ssl.SSLContext | None = None,
    ) -> Reply:
        """Send a request, with a JSON value or with bytes as its body; over TLS with a context."""
        found = dict(headers or {})
        if value is not None:
            body = json.dumps(value).encode()
            found.setdefault("Content-Type", "application/json")
        if login:
            found["Authorization"] = login
        connection = (
            http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=tls)
            if tls
            else http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        )
        try:
            connection.request(verb, self.settings.base_path + path, body, found)
            answer = connection.getresponse()
            names = {name.lower(): text for name, text in answer.getheaders()}
            reply = Reply(answer.status, names, answer.read(), answer.headers.get_all("Set-Cookie", []))
            bare_path = re.sub(r"^/clusters/[^/]+", "", path.partition("?")[0])
            check_answer(verb, bare_path, reply.status, names.get("content-type", ""), reply.body)
            return reply
        finally:
            connection.close()

    def get(self, path: str, **words: Any) -> Reply:
        """GET."""
        return self.request("GET", path, **words)

    def post(self, path: str, value: Any = None, **words: Any) -> Reply:
        """POST."""
        return self.request("POST", path, value, **words)


def add(gateway, queue, count=1, **words):
    """Add jobs over HTTP."""
    for _ in range(count):
        gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"} | words)


def until(condition, seconds=60):
    """Return what the condition returns, as soon as it is true or the time is over."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found
