"""A stream ends when its login is no longer valid."""

from __future__ import annotations

import http.client
import threading
import time

import grpc
import pytest

from disque_py.gateway import service
from disque_py.gateway.http import api
from disque_py.gateway.logins.access_file import token_entry
from rpc_client import RpcClient


@pytest.fixture
def opened(make_gateway, tmp_path, monkeypatch):
    """A gateway that checks logins often, and a function that revokes the token."""
    monkeypatch.setattr(service, "LOGIN_CHECK_S", 0.1)
    monkeypatch.setattr(api, "LOGIN_CHECK_S", 0.1)
    path = tmp_path / "access.toml"
    path.write_text(token_entry("t", "dq_t", ["admin"], None))
    gateway = make_gateway(access_file=path)

    def take_away():
        path.write_text(token_entry("other", "dq_other", ["admin"], None))
        gateway.gateway.service.logins._file_checked = 0

    return gateway, take_away


def test_a_stream_of_http_ends(opened, monkeypatch):
    gateway, take_away = opened
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    connection.request("GET", "/v1/events", headers={"Authorization": "Bearer dq_t"})
    answer = connection.getresponse()
    assert answer.readline().startswith(b"retry")
    take_away()
    time.sleep(0.3)
    for _ in range(3):
        gateway.post("/v1/queues/stay/jobs", {"body": "b"}, login="Bearer dq_other")
    assert b"stay" not in answer.read()
    connection.close()


@pytest.mark.parametrize("name", ["Consume", "WatchEvents"])
def test_a_stream_of_grpc_ends(opened, name):
    gateway, take_away = opened
    rpc = RpcClient(gateway, login="Bearer dq_t")
    is_over = threading.Event()

    def requests():
        yield rpc.request(name, start={"queue": "stay-rpc"}, credit=1)
        is_over.wait()

    stream = rpc.stream(name, requests()) if name == "Consume" else rpc(name)
    take_away()
    with pytest.raises(grpc.RpcError) as ended:
        list(stream)
    is_over.set()
    assert ended.value.code() == grpc.StatusCode.UNAUTHENTICATED
    rpc.close()
