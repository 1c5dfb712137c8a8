"""Users with real processes: the ACL file, the audit log, certificates, clusters."""

from __future__ import annotations

import json
import socket
import ssl
import stat
import time

import pytest

from disque_py.client import AuthError, Disque, NoPermissionError
from disque_py.loopback_ports import free_port
from servers import Connection, Server
from test_tls import certificates as certificates
from test_tls import sign_up


def test_users_survive_a_restart_in_their_file(make_server):
    """Spec US7."""
    server = make_server("--aclfile", "users.acl", "--audit-log", "audit.log").start()
    assert server.command("ACL", "SETUSER", "ann", "on", ">pw", "~a*", "+@produce") == b"OK"
    path = server.folder / "users.acl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server.restart()
    with Disque(f"127.0.0.1:{server.port}", username="ann", password="pw") as disque:
        assert disque.add_job("a1", "body")
        with pytest.raises(NoPermissionError):
            disque.add_job("b1", "body")
    with pytest.raises(AuthError), Disque(f"127.0.0.1:{server.port}", username="ann", password="no") as disque:
        disque.add_job("a1", "body")
    lines = [json.loads(line) for line in (server.folder / "audit.log").read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["ok", "NOPERM", "WRONGPASS"]
    assert "pw" not in path.read_text() + (server.folder / "audit.log").read_text() + server.output()


def test_a_node_does_not_start_with_a_file_that_is_wrong(make_server):
    """Spec US7."""
    server = make_server("--aclfile", "users.acl")
    server.folder.mkdir(exist_ok=True)
    (server.folder / "users.acl").write_text("user ann on\nuser bob +nothing >hidden\n")
    server.launch()
    assert server.wait_ended() == 1
    assert "the ACL file users.acl can't be used: 2: Unknown command" in server.output()
    assert "hidden" not in server.output()


def test_a_removed_user_is_disconnected_on_all_nodes_within_a_second(make_cluster):
    """Spec US8."""
    cluster = make_cluster(2, "--acl-cluster", "yes", "--cluster-secret", "s3cret")
    cluster[0].command("ACL", "SETUSER", "ann", "on", ">pw", "allkeys", "+@all")
    talks = [server.connect() for server in (cluster[0], cluster[1])]
    for talk in talks:
        assert talk.command("AUTH", "ann", "pw") == b"OK"
    begin = time.monotonic()
    assert cluster[1].command("ACL", "DELUSER", "ann") == 1
    assert all(talk.is_closed(1.0) for talk in talks)
    assert time.monotonic() - begin < 1.0
    for talk in talks:
        talk.close()


def test_a_certificate_is_a_login(certificates, tmp_path):
    """Spec US1."""
    sign_up(certificates, "billing", "authority")
    files = {"cert": "node.crt", "key": "node.key", "ca-cert": "authority.crt"}
    options = [word for kind, name in files.items() for word in (f"--tls-{kind}-file", str(certificates / name))]
    tls_port = free_port()
    options += ["--tls-port", str(tls_port), "--tls-auth-clients-user", "cn"]
    with Server(tmp_path / "node", None, options) as server:
        server.command("ACL", "SETUSER", "billing", "on", "resetpass", "+@connection")
        for name, user in (("billing", b"billing"), ("client", b"default")):
            context = ssl.create_default_context(cafile=certificates / "authority.crt")
            context.load_cert_chain(certificates / f"{name}.crt", certificates / f"{name}.key")
            assert whoami(tls_port, context) == user


def whoami(port, context):
    sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
    with Connection(sock) as talk:
        return talk.command("ACL", "WHOAMI")
