"""Several clusters behind one gateway."""

from __future__ import annotations

import json
import re

import grpc
import pytest

from console_forms import Visitor
from disque_py import testing
from disque_py.gateway.logins.access_file import token_entry
from gateways import RunningGateway
from rpc_client import RpcClient


@pytest.fixture(scope="module")
def both(nodes, tmp_path_factory):
    """A gateway of two clusters. One token is valid for both, another one for the second only."""
    folder = tmp_path_factory.mktemp("clusters")
    path = folder / "access.toml"
    second = token_entry("second", "dq_eu", ["admin"], None) + 'clusters = ["eu"]\n'
    path.write_text(token_entry("all", "dq_all", ["admin"], None) + second)
    with testing.node() as node:
        running = RunningGateway(
            nodes.url, clusters=f"eu={node.url}", access_file=path, audit_log=folder / "log", broker_users="yes"
        )
        yield running
        running.close()


def test_a_cluster_has_the_same_paths_below_its_name(both):
    login = "Bearer dq_all"
    job = both.post("/clusters/eu/v1/queues/two/jobs", {"body": "b"}, login=login)
    assert (job.status, job.headers["location"].startswith("/clusters/eu/v1/jobs/")) == (201, True)
    assert both.get("/clusters/eu/v1/queues/two", login=login).json["pending"] == 1
    assert both.get("/v1/queues/two", login=login).status == 404
    assert both.get("/clusters/main/v1/queues/two", login=login).status == 404
    assert both.get("/clusters/none/v1/queues", login=login).status == 404
    assert len(both.get("/clusters/eu/v1/nodes", login=login).json["nodes"]) == 1
    assert both.get("/clusters/eu/readyz").status == 200


def test_an_entry_of_the_access_file_may_be_for_one_cluster(both):
    assert both.get("/clusters/eu/v1/queues", login="Bearer dq_eu").status == 200
    assert both.get("/v1/queues", login="Bearer dq_eu").status == 403
    assert both.get("/clusters/main/v1/queues", login="Bearer dq_eu").status == 403


def test_grpc_chooses_by_its_metadata(both):
    rpc = RpcClient(both, login="Bearer dq_eu")
    with pytest.raises(grpc.RpcError) as refused:
        rpc("Enqueue", queue="three", payload=b"b")
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
    rpc.metadata += (("disque-cluster", "eu"),)
    assert rpc("Enqueue", queue="three", payload=b"b").id
    rpc.metadata = (*rpc.metadata[:1], ("disque-cluster", "none"))
    with pytest.raises(grpc.RpcError) as refused:
        rpc("Enqueue", queue="three", payload=b"b")
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    rpc.close()


def test_the_console_has_a_cluster_selector_and_links_keep_the_cluster(both):
    visitor = Visitor(both)
    visitor.send("login", {"form": visitor.token("login"), "token": "dq_all"})
    page = visitor.get("queues").text
    assert 'href="/clusters/eu/console/queues"' in page
    page = both.get("/clusters/eu/console/queues", headers=visitor.headers).text
    assert 'href="/console/queues"' in page
    assert 'href="/clusters/eu/console/jobs"' in page
    assert "/clusters/eu/console/static/" in page


@pytest.fixture
def ann(nodes):
    """A user of the first cluster, with the password `pw`."""
    for node in nodes:
        with node.client() as client:
            client.execute("ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all")
    yield
    for node in nodes:
        with node.client() as client:
            client.execute("ACL", "DELUSER", "ann")


@pytest.mark.parametrize(
    ("fields", "path"), [({"user": "ann", "password": "pw"}, "/console/"), ({"token": "dq_all"}, "/")]
)
def test_a_password_is_kept_for_one_cluster(both, ann, fields, path):
    """A token is kept for all clusters."""
    visitor = Visitor(both)
    reply = visitor.send("login", {"form": visitor.token("login")} | fields)
    assert reply.status == 303
    kept = [each for each in reply.cookies if each.startswith("disque-login=") and "Max-Age=0" not in each]
    assert [re.search("Path=([^;]*)", each)[1] for each in kept] == [path]


def test_a_logout_ends_the_logins_of_all_clusters(both):
    visitor = Visitor(both)
    visitor.send("login", {"form": visitor.token("login"), "token": "dq_all"})
    reply = visitor.send("logout", {"form": visitor.token("queues")})
    ended = {re.search("Path=([^;]*)", each)[1] for each in reply.cookies if "Max-Age=0" in each}
    assert ended == {"/", "/console/", "/clusters/eu/console/"}


def test_the_audit_names_the_cluster(both):
    both.post("/clusters/eu/v1/queues/two/pause", {}, login="Bearer dq_all")
    [line] = [each for each in both.gateway.service.audit.newest if each["operation"] == "pause"]
    assert (line["cluster"], line["queue"]) == ("eu", "two")
    assert json.dumps(line)
