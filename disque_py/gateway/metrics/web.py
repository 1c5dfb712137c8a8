"""The exporter's HTTP server: `/metrics`, `/livez`, `/readyz`.

    /metrics   a scrape: all nodes, in Prometheus' text format or as OpenMetrics
    /livez     200 while the program serves
    /readyz    200 if a node answered the last scrape, else 503; it causes at most one scrape in READY_AGE_S

Requests have no body and no arguments. A connection has a time limit. The numbers of connections and of simultaneous
requests are limited. Further connections are closed, and further requests get 503. The server of the standard library
is sufficient, because a scrape comes every few seconds. A scrape waits no longer than Prometheus, which sends its time
limit in a header.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from disque_py.gateway.metrics.exposition import Page
from disque_py.gateway.metrics.families import add_nodes
from disque_py.gateway.metrics.followers import Followers
from disque_py.gateway.metrics.watching import Watchers

TEXT: Final = "text/plain; charset=utf-8"
LIMIT_HEADER: Final = "X-Prometheus-Scrape-Timeout-Seconds"
# The part of Prometheus' time limit that is kept for sending the answer.
RESERVE_S: Final = 0.2
REQUESTS_MAX: Final = 16
CONNECTIONS_MAX: Final = 200
# Seconds of silence after which a connection is closed. It also ends after twice this time and that of a scrape.
CONNECTION_S: Final = 10.0
READY_AGE_S: Final = 60.0


class MetricsServer(ThreadingHTTPServer):
    """Serves the metrics of some nodes on one address until `shutdown`.

    watchers   the nodes
    limit_s    the most seconds that a scrape waits for nodes
    followers  readers of the nodes' events, which start with the first scrape; None, the default: no events are read

    Raises OSError if the address can't be bound.
    """

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], watchers: Watchers, limit_s: float, followers: Followers | None = None
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)
        self.watchers = watchers
        self.limit_s = limit_s
        self.followers = followers
        self.room = threading.BoundedSemaphore(REQUESTS_MAX)
        self._ends: dict[Any, float] = {}

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there may be one more connection. Each has a thread."""
        return len(self._ends) < CONNECTIONS_MAX

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin the time limit of a connection, and serve it in a thread."""
        self._ends[request] = time.monotonic() + 2 * CONNECTION_S + self.limit_s
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection, and close it."""
        self._ends.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End the connections whose time is over. Their threads then close them. Called twice in a second."""
        now = time.monotonic()
        for request, end in list(self._ends.items()):
            if now >= end:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing if a client hung up. Show other errors as the standard library does."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = CONNECTION_S
    server_version = "disque-exporter"
    sys_version = ""

    def do_GET(self) -> None:
        if not self.server.room.acquire(blocking=False):
            self._answer(503, b"too many requests at once\n")
            return
        try:
            self._serve()
        finally:
            self.server.room.release()

    def _serve(self) -> None:
        path = urlsplit(self.path).path
        if path == "/metrics":
            nodes = self.server.watchers.scrape(self._limit_s())
            page = Page(self.headers.get("Accept", ""))
            add_nodes(page, nodes)
            if self.server.followers is not None:
                self.server.followers.follow(self.server.watchers.watches())
                self.server.followers.tally.add_to(page, time.monotonic())
            self._answer(200, page.text(), page.content_type)
        elif path == "/livez":
            self._answer(200, b"ok\n")
        elif path == "/readyz":
            if self.server.watchers.is_ready(self.server.limit_s, READY_AGE_S):
                self._answer(200, b"ok\n")
            else:
                self._answer(503, b"no node answers\n")
        else:
            self._answer(404, b"there are /metrics, /livez and /readyz\n")

    def _limit_s(self) -> float:
        """Return the time limit of nodes in seconds: the program's, or a little less than that of Prometheus."""
        try:
            asked_s = float(self.headers.get(LIMIT_HEADER, "inf"))
        except ValueError:
            return self.server.limit_s
        return min(self.server.limit_s, max(RESERVE_S, asked_s - RESERVE_S)) if asked_s > 0 else self.server.limit_s

    def _answer(self, status: int, body: bytes, content_type: str = TEXT) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because there is a scrape every few seconds."""
