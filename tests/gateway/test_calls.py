"""gRPC calls with roles: each call with each role, and without a login."""

from __future__ import annotations

import grpc
import pytest

from disque_py.gateway.logins.access_file import token_entry
from disque_py.gateway.logins.grants import ROLES
from disque_py.gateway.rpc.calls import peer_host, snake
from disque_py.gateway.rpc.descriptors import QUEUES, methods
from gateways import RunningGateway
from role_requests import CALL_ROLES, INCLUDED, status_of
from rpc_client import RpcClient


@pytest.fixture(scope="module")
def guarded(nodes, tmp_path_factory):
    """A gateway with a token per role for queues that begin with `rpc`; a job in such a queue, one in another."""
    path = tmp_path_factory.mktemp("access") / "access.toml"
    entries = [token_entry(role, f"dq_{role}", [f"{role}:rpc*"], None) for role in ROLES]
    path.write_text("".join([*entries, token_entry("all", "dq_all", ["admin"], None)]))
    running = RunningGateway(nodes.url, access_file=path)
    jobs = {
        name: running.post(f"/v1/queues/{name}/jobs", {"body": "b"}, login="Bearer dq_all").json["id"]
        for name in ("rpc", "other")
    }
    yield running, jobs
    running.close()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", CALL_ROLES)
def test_a_role_opens_its_calls_on_its_queues_and_nothing_else(guarded, name, role):
    gateway, jobs = guarded
    rpc = RpcClient(gateway, login=f"Bearer dq_{role}")
    is_open = role in ("admin", CALL_ROLES[name], *INCLUDED.get(CALL_ROLES[name], ()))
    assert (status_of(rpc, name, "rpc", jobs["rpc"]) != grpc.StatusCode.PERMISSION_DENIED) == is_open
    if name not in ("ListQueues", "WatchEvents"):
        assert status_of(rpc, name, "other", jobs["other"]) == grpc.StatusCode.PERMISSION_DENIED
    rpc.close()


@pytest.mark.parametrize("login", ["", "Bearer dq_wrong", "Basic YTpi"])
@pytest.mark.parametrize("name", ["Enqueue", "Consume", "WatchEvents", "GetDepth"])
def test_without_a_login_nothing_is_open(guarded, name, login):
    gateway, jobs = guarded
    rpc = RpcClient(gateway, login=login)
    assert status_of(rpc, name, "rpc", jobs["rpc"]) == grpc.StatusCode.UNAUTHENTICATED
    rpc.close()


def test_peers_have_addresses():
    assert [peer_host(peer) for peer in ("ipv4:1.2.3.4:5", "ipv6:%5B::1%5D:5", "unix:")] == ["1.2.3.4", "::1", "unix:"]


def test_names_of_methods_are_snake_case():
    assert snake("ExtendLease") == "extend_lease"


def test_every_call_has_a_role():
    assert {method.name for method in methods(QUEUES)} == set(CALL_ROLES)
