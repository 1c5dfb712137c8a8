"""Each kind of principal at each interface (HTTP, gRPC and others) is refused the operations beyond its roles.

A bearer token, a certificate, a token of an issuer and a user of the broker get the same role. Each principal requests
every operation over HTTP, every call of gRPC, and the requests of each other interface.
"""

from __future__ import annotations

import ssl

import grpc
import pytest

from disque_py import testing
from disque_py.gateway.logins.access_file import token_entry
from disque_py.gateway.operations import TABLE
from disque_py.gateway.rpc.descriptors import QUEUES, SCALER, methods
from gateways import RunningGateway, basic
from issuers import Authority, Issuer
from role_requests import ALLOWED, CALL_ROLES, INCLUDED, ask, status_of
from rpc_client import RpcClient

ROLES = ("read", "bodies", "produce", "consume", "operate")
KINDS = ("token", "certificate", "issuer", "user")
DYNO = {
    ("POST", "push"): "produce",
    ("GET", "pop"): "consume",
    ("GET", "size"): "read",
    ("GET", "peek"): "read",
    ("GET", "shards"): "read",
    ("DELETE", "clear"): "operate",
}
# For these, the broker's own categories decide. A producer may cancel jobs, and a list of jobs needs @bodies.
USERS_DIFFER = {
    "list_jobs",
    "find_jobs",
    "cancel",
    "get_operation",
    "stop_operation",
    "ListMessages",
    "Cancel",
    "WaitMessage",
}
PAGES = {"queue?name={queue}": "read", "jobs?queue={queue}": "read", "job?id={job}": "read"}


class Interfaces:
    """A gateway over TLS, and a login of each kind with each role on queues that begin with `perm`."""

    def __init__(self, folder) -> None:
        self.issuer = Issuer()
        authority = Authority(folder)
        self.authority_file = authority.path
        cert, key = authority.sign("localhost")
        path, entries = folder / "access.toml", [token_entry("all", "dq_all", ["admin"], None)]
        self.files = {role: authority.sign(f"robot-{role}") for role in ROLES}
        for role in ROLES:
            entries.append(token_entry(role, f"dq_{role}", [f"{role}:perm*"], None))
            entries.append(f'[[certificate]]\nname = "CN=robot-{role}"\ngrants = ["{role}:perm*"]\n')
            entries.append(f'[[claim]]\nname = "groups"\nvalue = "{role}"\ngrants = ["{role}:perm*"]\n')
        path.write_text("\n".join(entries))
        self.node = testing.node(requirepass="open sesame")
        node = self.node.__enter__()
        with node.client() as client:
            for role in ROLES:
                words = [f"+@{each}" for each in ALLOWED[role]]
                client.execute("ACL", "SETUSER", role, "on", ">pw", "~perm*", "-@all", "+@connection", *words)
        words = {"access_file": path, "broker_users": "yes", "oidc_issuer": self.issuer.url, "oidc_audience": "disque"}
        words |= {"tls_cert": cert, "tls_key": key, "tls_client_ca": authority.path, "tls_client_required": "yes"}
        self.gateway = RunningGateway(node.url, audit_log=folder / "audit.log", **words)
        # gRPC requires a certificate of every caller. No entry names the certificate of the server.
        self.stranger = (cert, key)
        self.jobs = {
            name: self.post(f"/v1/queues/{name}/jobs", {"body": "b"}, login="Bearer dq_all").json["id"]
            for name in ("perm", "other")
        }

    def close(self):
        self.gateway.close()
        self.issuer.close()
        self.node.__exit__(None, None, None)

    def login(self, kind, role):
        """Return the header of a login. A login by certificate has none."""
        return {
            "token": f"Bearer dq_{role}",
            "issuer": f"Bearer {self.issuer.token(sub=role, groups=[role])}",
            "user": basic(role, "pw"),
            "certificate": "",
        }[kind]

    def file(self, kind, role):
        """Return the files of the certificate of a connection."""
        return self.files[role] if kind == "certificate" else self.stranger

    def tls(self, kind, role):
        """Return the TLS context of a caller over HTTP."""
        context = ssl.create_default_context(cafile=str(self.authority_file))
        context.load_cert_chain(*self.file(kind, role))
        return context

    def request(self, verb, path, value=None, *, kind="", role="", **words):
        """Send a request over HTTP."""
        words.setdefault("login", self.login(kind, role) if kind else "")
        return self.gateway.request(verb, path, value, tls=self.tls(kind, role), **words)

    def post(self, path, value=None, **words):
        """Send a POST request."""
        return self.request("POST", path, value, **words)

    def rpc(self, kind, role, service=QUEUES):
        """Return a client of gRPC."""
        cert, key = self.file(kind, role)
        credentials = grpc.ssl_channel_credentials(
            self.authority_file.read_bytes(), key.read_bytes(), cert.read_bytes()
        )
        return RpcClient(self.gateway, service, self.login(kind, role), credentials)


class As:
    """The interfaces as one principal uses them, for functions that expect a gateway."""

    def __init__(self, interfaces, kind, role) -> None:
        self.interfaces, self.kind, self.role = interfaces, kind, role

    def request(self, verb, path, value=None, **words):
        words.pop("login", None)
        return self.interfaces.request(verb, path, value, kind=self.kind, role=self.role, **words)


@pytest.fixture(scope="module")
def interfaces(tmp_path_factory):
    """The gateway of this file."""
    found = Interfaces(tmp_path_factory.mktemp("interfaces"))
    yield found
    found.close()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", KINDS)
def test_over_http_every_operation_is_refused_where_the_role_ends(interfaces, kind, role):
    """A list for which the caller names no queue is open to every user of the broker whose rules allow the command."""
    for operation in TABLE:
        if operation.form == "events" or operation.name == "wait_job":
            continue
        path = (operation.verb, operation.path)
        for queue in ("perm", "other"):
            if queue == "other" and operation.scope not in ("queue", "job", "name"):
                continue
            reply = ask(As(interfaces, kind, role), interfaces.jobs, operation, queue, "")
            if (kind, queue) == ("user", "perm") and operation.name in USERS_DIFFER:
                continue
            is_open = operation.role in ALLOWED[role] and queue == "perm"
            # The broker refuses each line of a batch.
            is_refused = reply.status == 403 or (operation.form == "lines" and '"NOPERM"' in reply.text)
            assert is_refused != is_open, (path, queue, reply.status, reply.text)
            assert reply.status != 401


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", KINDS)
def test_streams_of_http_have_the_role_bodies(interfaces, kind, role):
    if "bodies" not in ALLOWED[role]:
        assert interfaces.request("GET", "/v1/events", kind=kind, role=role).status == 403


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", KINDS)
def test_over_grpc_every_call_is_refused_where_the_role_ends(interfaces, kind, role):
    rpc = interfaces.rpc(kind, role)
    try:
        for method in methods(QUEUES):
            needed = CALL_ROLES[method.name]
            is_open = needed == role or role in INCLUDED.get(needed, ())
            if kind != "user" or method.name not in USERS_DIFFER:
                found = status_of(rpc, method.name, "perm", interfaces.jobs["perm"])
                assert (found != grpc.StatusCode.PERMISSION_DENIED) == is_open, (method.name, found)
                assert found != grpc.StatusCode.UNAUTHENTICATED
            if method.name not in ("ListQueues", "WatchEvents"):
                other = status_of(rpc, method.name, "other", interfaces.jobs["other"])
                assert other == grpc.StatusCode.PERMISSION_DENIED, method.name
    finally:
        rpc.close()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_scaler_needs_the_role_read(interfaces, kind, role):
    rpc = interfaces.rpc(kind, role, SCALER)
    try:
        for queue in ("perm", "other"):
            try:
                rpc("IsActive", scalerMetadata={"queue": queue})
                found = grpc.StatusCode.OK
            except grpc.RpcError as error:
                found = error.code()
            is_open = "read" in ALLOWED[role] and queue == "perm"
            assert found == (grpc.StatusCode.OK if is_open else grpc.StatusCode.PERMISSION_DENIED)
    finally:
        rpc.close()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", KINDS)
def test_words_of_dyno_queues_and_pages_and_metrics_have_roles_too(interfaces, kind, role):
    for (verb, word), always in DYNO.items():
        needed = "bodies" if (kind, word) == ("user", "peek") else always
        value = [{"id": "1", "payload": "p"}] if word == "push" else None
        for queue in ("perm-dyno", "other"):
            reply = interfaces.request(verb, f"/dyno/{queue}/{word}", value, kind=kind, role=role)
            assert (reply.status != 403) == (needed in ALLOWED[role] and queue == "perm-dyno"), (word, reply.text)
    for page, always in PAGES.items():
        needed = always
        for queue in ("perm", "other"):
            if kind == "user" and page.startswith("jobs"):
                needed = "bodies"
            path = page.format(queue=queue, job=interfaces.jobs[queue].replace("+", "%2B"))
            reply = interfaces.request("GET", f"/console/{path}", kind=kind, role=role)
            assert (reply.status != 403) == (needed in ALLOWED[role] and queue == "perm"), (page, reply.status)
    assert interfaces.request("GET", "/console/audit", kind=kind, role=role).status == 403
    assert interfaces.request("GET", "/metrics", kind=kind, role=role).status == 403


@pytest.mark.parametrize("kind", KINDS)
def test_the_audit_names_the_principal(interfaces, kind):
    interfaces.post("/v1/queues/perm/pause", {"direction": "out"}, kind=kind, role="operate")
    interfaces.post("/v1/queues/perm/resume", {}, kind=kind, role="operate")
    name = {"token": "token:", "certificate": "certificate:CN=robot-", "issuer": "oidc:", "user": "user:"}[kind]
    lines = [(line["principal"], line["operation"]) for line in interfaces.gateway.gateway.service.audit.newest]
    assert (f"{name}operate", "pause") in lines


def test_a_caller_whose_certificate_has_no_entry_is_refused(interfaces):
    reply = interfaces.request("GET", "/v1/queues")
    assert (reply.status, reply.json["code"]) == (401, "NOAUTH")
    cert, key = interfaces.stranger
    files = (interfaces.authority_file.read_bytes(), key.read_bytes(), cert.read_bytes())
    rpc = RpcClient(interfaces.gateway, credentials=grpc.ssl_channel_credentials(*files))
    with pytest.raises(grpc.RpcError) as refused:
        rpc("ListQueues")
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_a_caller_without_a_certificate_cannot_connect(interfaces):
    context = ssl.create_default_context(cafile=str(interfaces.authority_file))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        interfaces.gateway.request("GET", "/livez", tls=context)
