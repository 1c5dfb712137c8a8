"""Fixtures: watchers of scripted nodes, which answer the exporter's commands, and an HTTP server for them."""

from __future__ import annotations

import threading

import pytest

from disque_py.client import Address
from disque_py.client.options import make_options
from disque_py.gateway.metrics.selection import Selection
from disque_py.gateway.metrics.watching import Watchers
from metrics_nodes import ANSWERS


@pytest.fixture
def made(scripted):
    """A function that makes watchers of scripted nodes: made(answers, …, limit=…)."""

    watchers = []

    def make(*nodes, limit=1000, timeout=2.0, password=None, **settings):
        found = [scripted({**ANSWERS, **answers}) for answers in nodes or ({},)]
        named = [Address("127.0.0.1", node.port) for node in found]
        options = make_options((), {"timeout": timeout, "connect_timeout": timeout, "password": password})
        watchers.append(Watchers(named, options, Selection(limit=limit), **settings))
        return watchers[-1]

    yield make
    for each in watchers:
        each.close()


@pytest.fixture
def served():
    """A function that serves watchers over HTTP and returns the address: served(watchers)."""
    pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")
    from disque_py.gateway.metrics.web import MetricsServer

    servers = []

    def serve(watchers, limit_s=2.0):
        server = MetricsServer(("127.0.0.1", 0), watchers, limit_s)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()
