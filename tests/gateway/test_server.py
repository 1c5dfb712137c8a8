"""The gateway's process: TLS, and nodes and callers that die."""

from __future__ import annotations

import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from certificates import renew, self_signed
from disque_py import testing
from disque_py.gateway import server
from gateways import RunningGateway, until
from issuers import Authority


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """The files of a certificate for localhost and of its key."""
    return self_signed(tmp_path_factory.mktemp("tls"), "localhost", names="DNS:localhost")


def over_tls(port, cert):
    context = ssl.create_default_context(cafile=str(cert))
    plain = socket.create_connection(("127.0.0.1", port), 10)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return connection.recv(1000), connection.getpeercert()["serialNumber"]


def test_tls_is_served_and_the_certificate_is_read_again(make_gateway, certificate, tmp_path):
    cert, key = certificate
    gateway = make_gateway(tls_cert=cert, tls_key=key)
    answer, serial = over_tls(gateway.port, cert)
    assert answer.startswith(b"HTTP/1.1 200")
    renew(cert, key)
    gateway.loop.call_soon_threadsafe(gateway.gateway.reload_certificate)
    time.sleep(0.2)
    assert over_tls(gateway.port, cert)[1] != serial


def test_a_certificate_that_changes_is_noticed(make_gateway, certificate, monkeypatch):
    cert, key = certificate
    monkeypatch.setattr(server, "FILES_S", 0.05)
    gateway = make_gateway(tls_cert=cert, tls_key=key)
    _, serial = over_tls(gateway.port, cert)
    renew(cert, key)

    def is_new():
        try:
            return over_tls(gateway.port, cert)[1] != serial
        except ssl.SSLError:  # The file has the new certificate, and the gateway still uses the old one.
            return False

    assert until(is_new)


def test_certificates_of_a_replaced_authority_are_refused(make_gateway, tmp_path):
    """An OpenSSL context never forgets an authority, so the gateway has to make a new context."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    cert, key = old.sign("localhost")
    access, bundle = tmp_path / "access.toml", tmp_path / "bundle.pem"
    access.write_text('[[certificate]]\nname = "CN=robot"\ngrants = ["read"]\n')
    bundle.write_bytes(old.path.read_bytes())
    gateway = make_gateway(tls_cert=cert, tls_key=key, tls_client_ca=bundle, access_file=access)
    context = ssl.create_default_context(cafile=str(old.path))
    assert gateway.get("/v1/queues", tls=context).status == 401
    context.load_cert_chain(*old.sign("robot"))
    assert gateway.get("/v1/queues", tls=context).status == 200
    bundle.write_bytes(new.path.read_bytes())
    gateway.loop.call_soon_threadsafe(gateway.gateway.reload_certificate)
    time.sleep(0.2)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        gateway.get("/v1/queues", tls=context)


def session_of(port, context, session=None):
    """Return the session of a new connection after its first answer, and whether it is the given one."""
    plain = socket.create_connection(("127.0.0.1", port), 10)
    with plain, context.wrap_socket(plain, server_hostname="localhost", session=session) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        if not connection.recv(1000).startswith(b"HTTP/1.1 200"):
            raise ConnectionError  # With TLS 1.3 a caller learns only here that its certificate was refused.
        return connection.session, connection.session_reused


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_does_not_outlive_the_authority_of_its_certificate(make_gateway, tmp_path, version):
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    cert, key = old.sign("localhost")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(old.path.read_bytes())
    (tmp_path / "access.toml").touch()
    gateway = make_gateway(tls_cert=cert, tls_key=key, tls_client_ca=bundle, access_file=tmp_path / "access.toml")
    context = ssl.create_default_context(cafile=str(old.path))
    context.maximum_version = version
    context.load_cert_chain(*old.sign("robot"))
    session, _ = session_of(gateway.port, context)
    assert session_of(gateway.port, context, session)[1]
    bundle.write_bytes(new.path.read_bytes())
    gateway.loop.call_soon_threadsafe(gateway.gateway.reload_certificate)
    time.sleep(0.2)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        session_of(gateway.port, context, session)


def test_a_bad_certificate_is_an_error_at_the_start(make_gateway, tmp_path):
    bad = tmp_path / "bad.pem"
    bad.write_text("none")
    with pytest.raises(Exception, match="tls-cert"):
        make_gateway(tls_cert=bad)


def test_when_a_node_is_killed_jobs_go_on_and_none_is_lost(queue):
    with testing.cluster(3) as cluster:
        gateway = RunningGateway(cluster.url)
        try:
            added = set()
            for number in range(30):
                if number == 10:
                    home = gateway.gateway.service.logins.client.node
                    cluster.kill([node.port for node in cluster].index(home.port))
                key = {"body": str(number), "request_id": str(number), "replicate": 2, "retry_ms": 1000}
                reply = gateway.post(f"/v1/queues/{queue}/jobs", key, timeout=40)
                if reply.status == 201:
                    added.add(reply.json["id"])
            assert len(added) >= 28
            found = set()
            deadline = time.monotonic() + 30
            while not added <= found and time.monotonic() < deadline:
                for job in gateway.post(f"/v1/queues/{queue}/dequeue", {"max": 50, "wait_ms": 500}).json["jobs"]:
                    found.add(job["id"])
                    gateway.post(f"/v1/jobs/{job['id']}/complete")
            assert added <= found
        finally:
            gateway.close()


def test_a_gateway_without_requests_knows_the_nodes_that_its_url_does_not_name(queue):
    with testing.cluster(3) as cluster:
        first = next(iter(cluster))
        gateway = RunningGateway(f"disque://127.0.0.1:{first.port}")
        try:
            assert until(lambda: gateway.get("/readyz").status == 200)
            cluster.kill(0)
            reply = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b", "replicate": 2}, timeout=40)
            assert (reply.status, reply.text) == (201, reply.text)
        finally:
            gateway.close()


def test_jobs_that_a_stopped_gateway_delivered_come_back_when_their_leases_end(nodes, make_gateway, queue):
    """The caller never acknowledged the job. `test_killed.py` kills gateways."""
    first = make_gateway()
    first.post(f"/v1/queues/{queue}/jobs", {"body": "b", "retry_ms": 500})
    assert len(first.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 2000}).json["jobs"]) == 1
    first.close()
    second = make_gateway()
    assert len(second.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 10_000}).json["jobs"]) == 1


def test_a_gateway_that_ends_lets_no_caller_wait(make_gateway, queue):
    """Requests that wait get 503 at once, and event streams end as whole answers."""
    gateway = make_gateway()
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(gateway.post, f"/v1/queues/{queue}/dequeue", {"wait_ms": 20_000})
        pops = pool.submit(gateway.get, f"/dyno/{queue}/pop?wait=20000")
        stream = pool.submit(gateway.get, "/v1/events")
        time.sleep(0.5)
        began = time.monotonic()
        gateway.close()
        assert time.monotonic() - began < 3
        assert waits.result().json["code"] == pops.result().json["code"] == "ENDING"
        assert waits.result().status == 503
        assert waits.result().headers["retry-after"] == "1"
        assert stream.result().body.startswith(b"retry:")
