"""gateway/metrics/web.py: /metrics, /livez and /readyz."""

from __future__ import annotations

import socket
import struct
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")

from disque_py.client import Address
from disque_py.client.options import make_options
from disque_py.gateway.metrics import web
from disque_py.gateway.metrics.selection import Selection
from disque_py.gateway.metrics.watching import Watchers


def get(address, **headers):
    """Send a GET. Return the status, the content type and the text."""
    request = urllib.request.Request(address, headers={name.replace("_", "-"): word for name, word in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.fixture
def down():
    """Return watchers of a node that does not exist."""
    return Watchers([Address("127.0.0.1", 1)], make_options((), {}), Selection())


def test_a_scrape_has_all_nodes(made, served):
    status, content_type, text = get(served(made({}, {})) + "/metrics")
    assert (status, content_type.partition(";")[0]) == (200, "text/plain")
    assert text.count("\ndisque_up{") == 2


def test_a_scrape_succeeds_while_nodes_are_down(down, served):
    """The target of the scrape is the exporter. The state of the nodes is in `disque_up`."""
    status, _, text = get(served(down) + "/metrics")
    assert status == 200
    assert 'disque_up{node="127.0.0.1:1"} 0.0' in text


def test_a_scrape_waits_no_longer_than_prometheus(made, served):
    address = served(made({"INFO": lambda words: time.sleep(3) or b"+x\r\n"}), limit_s=2.5)
    text = get(address + "/metrics", X_Prometheus_Scrape_Timeout_Seconds="0.5")[2]
    assert text.splitlines()[-1].endswith(" 0.0")


def connected(address):
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), 10)


def test_the_number_of_connections_has_a_limit(down, served, monkeypatch):
    """Each has a thread, even before it has sent a request."""
    monkeypatch.setattr(web, "CONNECTIONS_MAX", 2, raising=False)
    address = served(down)
    with connected(address), connected(address) as second, connected(address) as third:
        assert third.recv(1) == b""
        second.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert second.recv(100).startswith(b"HTTP/1.0 200")


def test_a_request_that_comes_byte_by_byte_ends(down, served, monkeypatch):
    monkeypatch.setattr(web, "CONNECTION_S", 0.1)
    with connected(served(down, limit_s=0.1)) as slow:
        slow.settimeout(0.05)
        for _ in range(60):
            try:
                slow.sendall(b"G")
                assert slow.recv(1) == b""
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the connection is still open")


@pytest.mark.parametrize("word", ["soon", "-1", "nan"])
def test_an_invalid_time_limit_is_ignored(made, served, word):
    assert get(served(made()) + "/metrics", X_Prometheus_Scrape_Timeout_Seconds=word)[0] == 200


def test_the_program_is_ready_while_a_node_answers(made, down, served):
    assert get(served(made()) + "/readyz")[0] == 200
    assert get(served(down) + "/readyz")[0] == 503


def test_the_program_is_alive_without_nodes(down, served):
    assert get(served(down) + "/livez")[::2] == (200, "ok\n")


def test_a_request_for_an_unknown_path_gets_the_list_of_paths(down, served):
    assert get(served(down) + "/")[::2] == (404, "there are /metrics, /livez and /readyz\n")


def test_a_client_that_hangs_up_is_not_logged(down, served, capsys):
    address = served(down)
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET /met")
    assert get(address + "/livez")[0] == 200
    assert capsys.readouterr().err == ""


def test_the_requests_that_are_served_at_a_time_are_limited(down, served):
    server = web.MetricsServer(("127.0.0.1", 0), down, 1)
    with server:
        taken = [server.room.acquire(blocking=False) for _ in range(web.REQUESTS_MAX + 1)]
    assert taken == [True] * web.REQUESTS_MAX + [False]
