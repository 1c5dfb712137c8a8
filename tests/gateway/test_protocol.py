"""Connections: their writes, and the certificate that their requests see."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import re
import socket
import ssl
import time

import pytest

from disque_py.gateway.http import protocol
from disque_py.gateway.http.protocol import Writer
from gateways import until
from issuers import Authority


class Transport:
    """A transport that records its writes."""

    def __init__(self):
        self.written = []

    def write(self, data):
        self.written.append(bytes(data))

    def close(self):
        self.written.append(b"closed")

    def is_closing(self):
        return self.written[-1:] == [b"closed"]


def test_a_held_write_goes_together_with_the_next_one():
    writer = Writer(transport := Transport())
    writer.hold()
    writer.write(b"head ")
    assert transport.written == []
    writer.write(b"body")
    writer.write(b"next")
    writer.release()
    assert transport.written == [b"head body", b"next"]


def test_a_held_write_is_never_lost():
    """An answer to HEAD has no body, and a connection may close after the head."""
    for end in (Writer.release, Writer.close):
        writer = Writer(transport := Transport())
        writer.hold()
        writer.write(b"head")
        end(writer)
        assert transport.written[0] == b"head"
    assert writer.is_closing()


def test_answers_without_a_body_are_complete(gateway):
    assert (gateway.request("HEAD", "/livez").status, gateway.request("HEAD", "/livez").text) == (200, "")


def test_each_request_of_a_connection_knows_the_certificate(make_gateway, tmp_path):
    authority = Authority(tmp_path)
    cert, key = authority.sign("localhost")
    access = tmp_path / "access.toml"
    access.write_text('[[certificate]]\nname = "CN=robot"\ngrants = ["read"]\n')
    gateway = make_gateway(tls_cert=cert, tls_key=key, tls_client_ca=authority.path, access_file=access)
    context = ssl.create_default_context(cafile=str(authority.path))
    assert gateway.get("/v1/queues", tls=context).status == 401
    context.load_cert_chain(*authority.sign("robot"))
    assert [gateway.get("/v1/queues", tls=context).status for _ in range(2)] == [200, 200]
    context.load_cert_chain(*authority.sign("other"))
    assert gateway.get("/v1/queues", tls=context).status == 401


FORM = (
    b"POST /console/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 1000\r\n\r\na"
)


@pytest.fixture
def impatient(make_gateway, monkeypatch):
    """A gateway with short time limits."""
    for name in ("HEAD_S", "BODY_S", "TAKE_S", "LOOK_S"):
        monkeypatch.setattr(protocol, name, 0.2)
    return make_gateway()


def is_closed(connection, seconds=30.0):
    """Return whether the gateway closes the connection, instead of waiting."""
    connection.settimeout(seconds)
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(1000):
            pass
    return True


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", FORM])
def test_a_connection_of_a_slow_caller_is_closed(impatient, sent):
    """Otherwise callers without a login could use all connections."""
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(sent)
        assert is_closed(connection)


@pytest.mark.parametrize("sent", [b"\r\n", b"GET /livez HT"])
def test_a_later_request_of_a_connection_has_the_same_time(impatient, sent):
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(sent)
        assert is_closed(connection)


def test_a_refused_request_whose_body_never_ends_is_closed(impatient):
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(FORM.replace(b"/console/login", b"/v1/none"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 404")
        connection.sendall(b"a")
        assert is_closed(connection)


def said(gateway, sent, seconds=20):
    """Send bytes, and return the answers of a connection that the gateway closes."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=seconds) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(100_000), b"")).decode()


LINE = b" HTTP/1.1\r\nHost: localhost\r\n"
OCTETS = LINE + b"Content-Type: application/octet-stream\r\n"
LAST = b"GET /livez" + LINE + b"Connection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"BREW /v1/queues" + LINE + b"\r\n", 405, "METHOD"),
        (b"CONNECT localhost:80" + LINE + b"\r\n", 405, "METHOD"),
        (b"CONNECT /v1" + LINE + b"\r\n", 405, "METHOD"),
        (b"GET /v1/queues/" + b"a" * 70_000 + LINE + b"\r\n", 413, "TOOBIG"),
        (b"GET /v1/queues?match=" + b"a" * 70_000 + LINE + b"\r\n", 413, "TOOBIG"),
        (b"GET /v1/queues" + LINE + b"X: " + b"a" * 70_000 + b"\r\n\r\n", 413, "TOOBIG"),
        (b"GET /v1/queues" + LINE + b"X: a\r\n" * 20_000 + b"\r\n", 413, "TOOBIG"),
        (b"GET /v1/queues /x" + LINE + b"\r\n", 400, "ERR"),
        (b"GET /v1/queues/\xe4" + LINE + b"\r\n", 400, "ERR"),
        (b"GET ftp://localhost/v1/queues" + LINE + b"\r\n", 400, "ERR"),
        (b"GET http://ann:pw@localhost/v1/queues" + LINE + b"\r\n", 400, "ERR"),
        (b"GET /v1/queues" + LINE + b"X Y: a\r\n\r\n", 400, "ERR"),
        (b"POST /v1/queues/q/jobs" + OCTETS + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "ERR"),
    ],
)
def test_a_request_that_cannot_be_read_is_answered_with_a_problem(gateway, sent, status, code):
    head, _, body = said(gateway, sent).partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert "content-type: application/problem+json" in head
    assert (json.loads(body)["status"], json.loads(body)["code"]) == (status, code)


def test_a_head_without_an_end_is_refused_before_it_takes_much_memory(gateway):
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=20) as connection:
        connection.sendall(b"GET /v1/queues" + LINE + b"X: " + b"a" * 40_000)
        for _ in range(2):
            time.sleep(0.1)
            connection.sendall(b"a" * 40_000)
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "bad",
    [
        b"BREW /\r\n\r\n",
        b"POST /v1/queues/q/jobs" + OCTETS + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_earlier_requests_are_answered_before_one_that_cannot_be_read(gateway, queue, bad):
    body = b'{"wait_ms":100}'
    waiting = b"POST /v1/queues/%b/dequeue" % queue.encode() + LINE
    waiting += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    found = said(gateway, waiting + bad)
    assert re.findall(r"HTTP/1.1 (\d)", found) == ["2", "4"]
    assert found.index('{"jobs":[]}') < found.index('"code"')


def test_a_request_that_cannot_be_read_is_not_logged_as_a_warning(gateway, caplog):
    """Otherwise callers without a login could fill the log."""
    said(gateway, b"BREW / HTTP/1.1\r\n\r\n")
    assert caplog.records == []


@pytest.mark.parametrize("form", [b"http://localhost", b"HTTP://LocalHost:8711", b"https://localhost"])
def test_an_absolute_address_means_the_same_as_a_relative_one(gateway, queue, form):
    path = b"/v1/queues?match=" + queue.encode()
    found = said(gateway, b"GET " + form + path + LINE + b"Connection: close\r\n\r\n")
    assert '{"queues":[],"total":0' in found
    assert "location: /console/" in said(gateway, b"GET " + form + LINE + b"Connection: close\r\n\r\n")


@pytest.mark.parametrize(
    ("address", "host", "status"),
    [
        (b"http://evil.example/livez", b"localhost", "421"),
        (b"http://localhost/livez", b"evil.example", "200"),
    ],
)
def test_the_name_in_an_absolute_address_wins_over_the_host_header(gateway, address, host, status):
    """RFC 9112, 3.2.2."""
    sent = b"GET " + address + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
    assert said(gateway, sent).startswith(f"HTTP/1.1 {status} ")
    without = sent.replace(b"Host: " + host + b"\r\n", b"")
    assert said(gateway, without).startswith(f"HTTP/1.1 {status} ")


@pytest.mark.parametrize(
    "body", [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
def test_a_request_that_asks_for_another_protocol_keeps_its_body(gateway, queue, body):
    """Java's HTTP client sends such requests."""
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    found = said(gateway, b"POST /v1/queues/%b/jobs" % queue.encode() + OCTETS + wish + body + LAST)
    assert re.findall(r"HTTP/1.1 (\d+)", found) == ["201", "200"]
    assert gateway.post(f"/v1/queues/{queue}/dequeue", {}).json["jobs"][0]["body"] == "abc"


def test_fields_behind_a_body_are_no_headers(gateway, queue):
    """A proxy may have checked the headers, and has not seen these fields."""
    chunks = b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nHost: localhost\r\n\r\n"
    sent = b"POST /v1/queues/%b/jobs" % queue.encode() + OCTETS + chunks
    assert said(gateway, sent).startswith("HTTP/1.1 201 ")
    assert said(gateway, sent.replace(b"Host: localhost\r\n", b"", 1)).startswith("HTTP/1.1 421 ")


def test_fields_behind_a_body_have_the_limit_of_a_head(gateway, queue):
    sent = b"POST /v1/queues/%b/jobs" % queue.encode() + OCTETS + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(sent + b"X: " + b"a" * 300_000)
        assert is_closed(connection, protocol.BODY_S / 2)  # That is, not only when the time of the body is over.


def test_jobs_go_back_if_a_caller_hangs_up_that_has_sent_a_further_request(gateway, queue):
    body = b'{"wait_ms":20000}'
    sent = b"POST /v1/queues/%b/dequeue" % queue.encode() + LINE
    sent += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(sent + LAST)
        time.sleep(0.3)
    time.sleep(0.3)
    gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"})
    assert gateway.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 2000}).json["jobs"]


MANY = 200 * b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_connection_whose_caller_does_not_read_its_answers_is_closed(impatient):
    """Otherwise callers without a login could use all connections."""
    connections = impatient.gateway._server.server_state.connections
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(MANY)
        assert until(lambda: any(each.transport.get_write_buffer_size() for each in connections))
        assert until(lambda: not connections, 30)


def test_a_caller_that_reads_slowly_gets_its_answers(impatient):
    """It takes several times as long as a caller may take that reads nothing."""
    connections = impatient.gateway._server.server_state.connections
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(MANY)
        assert until(lambda: any(each.transport.get_write_buffer_size() for each in connections))
        found, count, began = b"", 0, time.monotonic()
        while count < 200:
            found += connection.recv(200_000)
            count += found.count(b"HTTP/1.1 200")
            found = found[-11:]
            time.sleep(0.0 if time.monotonic() > began + 2 else 0.02)
        assert time.monotonic() > began + 1


def test_a_request_that_waits_has_no_time_limit(make_gateway, queue):
    gateway = make_gateway()
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(
            b"POST /v1/queues/%b/dequeue HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 17\r\n\r\n" % queue.encode()
        )
        connection.sendall(b'{"wait_ms":30000}')
        connections = gateway.gateway._server.server_state.connections
        assert until(lambda: [each._until for each in connections] == [math.inf])
        assert not next(iter(connections)).cycle.response_complete


def test_a_body_may_take_longer_if_it_is_long(make_gateway, queue):
    gateway = make_gateway()
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(
            b"POST /v1/queues/%b/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
            b"Content-Length: 60001\r\n\r\n" % queue.encode()
        )
        connections = gateway.gateway._server.server_state.connections
        assert until(lambda: [each.cycle is not None for each in connections] == [True])
        first = next(iter(connections))._until
        connection.sendall(b"x" * 60_000)
        assert until(lambda: next(iter(connections))._until >= first + 59)
        connection.sendall(b"x")
        assert connection.recv(1000).startswith(b"HTTP/1.1 201")


def test_a_connection_above_the_limit_gets_a_problem_and_probes_are_answered(make_gateway):
    gateway = make_gateway(connections_max=2)
    with socket.create_connection(("127.0.0.1", gateway.port)), socket.create_connection(("127.0.0.1", gateway.port)):
        refused = gateway.get("/v1/queues")
        assert (refused.status, refused.json["code"], refused.headers["retry-after"]) == (429, "LIMIT", "1")
        assert (gateway.get("/livez").status, gateway.request("HEAD", "/livez").status) == (200, 200)
    assert until(lambda: gateway.get("/v1/queues").status == 200)


def test_connections_below_the_limit_are_served_while_there_are_others_above(make_gateway):
    gateway = make_gateway(connections_max=1)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", gateway.port)) as first:
        first.request("GET", "/v1/queues")
        assert first.getresponse().read()
        with socket.create_connection(("127.0.0.1", gateway.port)):
            assert gateway.get("/v1/queues").status == 429
            first.request("GET", "/v1/queues")
            assert first.getresponse().status == 200
