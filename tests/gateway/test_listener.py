"""The gRPC port: health, reflection, TLS."""

from __future__ import annotations

import contextlib
import socket

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from certificates import self_signed
from disque_py.gateway.rpc import listener
from disque_py.gateway.rpc.descriptors import QUEUES, SCALER
from gateways import until
from rpc_client import RpcClient, code_of


@pytest.fixture(scope="module")
def channel(gateway):
    """A plain channel."""
    with grpc.insecure_channel(f"localhost:{gateway.gateway.rpc.port}") as found:
        yield found


@pytest.mark.parametrize("service", ["", QUEUES, SCALER])
def test_the_health_service_reports_the_state(channel, service):
    answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_services_are_reflected(channel):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=QUEUES),
    ]
    listed, file = stub.ServerReflectionInfo(iter(requests), timeout=10)
    assert {QUEUES, SCALER} <= {each.name for each in listed.list_services_response.service}
    assert file.file_descriptor_response.file_descriptor_proto


def test_tls_is_that_of_http(make_gateway, tmp_path):
    cert, key = self_signed(tmp_path, "localhost", names="DNS:localhost")
    gateway = make_gateway(tls_cert=cert, tls_key=key)
    client = RpcClient(gateway, credentials=grpc.ssl_channel_credentials(cert.read_bytes()))
    assert client("GetDepth", queue="none").depth.pending == 0
    client.close()


def test_a_gateway_may_have_no_grpc(make_gateway):
    assert make_gateway(grpc_listen="").gateway.rpc is None


def test_a_port_that_is_taken_is_an_error(make_gateway, gateway):
    with pytest.raises(Exception, match="can't listen"):
        make_gateway(grpc_listen=f"127.0.0.1:{gateway.gateway.rpc.port}")


def is_open(connection):
    """Return whether the gateway has not closed the connection yet."""
    with contextlib.suppress(ConnectionResetError):
        try:
            while connection.recv(1000):
                pass
        except BlockingIOError:
            return True
    return False


def test_connections_are_limited(make_gateway):
    port = make_gateway(connections_max=2).gateway.rpc.port
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(8)]
        for each in connections:
            each.setblocking(False)
        assert until(
            lambda: sum(map(is_open, connections)) <= 2, 30
        )  # Without the limit, gRPC closes them after a minute.


def test_a_connection_without_calls_is_closed_and_made_again(make_gateway, monkeypatch):
    monkeypatch.setattr(listener, "IDLE_MS", 300)
    client, states = RpcClient(make_gateway()), []
    client.channel.subscribe(states.append)
    assert client("GetDepth", queue="none").depth.pending == 0
    assert until(lambda: states[-1:] == [grpc.ChannelConnectivity.IDLE] and len(states) > 1)
    assert client("GetDepth", queue="none").depth.pending == 0
    client.close()


def test_a_connection_without_the_beginning_of_http_2_is_closed(make_gateway, monkeypatch):
    monkeypatch.setattr(listener, "HANDSHAKE_MS", 300)
    with socket.create_connection(("127.0.0.1", make_gateway().gateway.rpc.port)) as connection:
        connection.setblocking(False)
        assert until(lambda: not is_open(connection), 30)


def test_a_body_has_the_same_limit_as_over_http(make_gateway, queue):
    """The other fields of a message don't count."""
    gateway = make_gateway(body_max=10_000)
    client = RpcClient(gateway)
    octets = {"Content-Type": "application/octet-stream"}
    meta = {"name": "v" * 20_000}
    assert gateway.post(f"/v1/queues/{queue}/jobs", body=b"x" * 10_000, headers=octets).status == 201
    assert client("Enqueue", queue=queue, payload=b"x" * 10_000, metadata=meta).id
    assert gateway.post(f"/v1/queues/{queue}/jobs", body=b"x" * 10_001, headers=octets).json["code"] == "TOOBIG"
    with pytest.raises(grpc.RpcError) as error:
        client("Enqueue", queue=queue, payload=b"x" * 10_001)
    assert code_of(error) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "toobig")
    client.close()


def test_a_message_that_is_too_long_is_not_read(make_gateway, queue):
    client = RpcClient(make_gateway(body_max=10_000))
    with pytest.raises(grpc.RpcError) as error:
        client("Enqueue", queue=queue, payload=b"x" * (10_000 + listener.FIELDS_MAX))
    assert code_of(error) == (grpc.StatusCode.RESOURCE_EXHAUSTED, None)
    client.close()
