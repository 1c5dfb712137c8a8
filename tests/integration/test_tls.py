"""A cluster that uses TLS only, among its nodes and with clients, and the command line programs."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess

import pytest

from disque_py.cli.address import Target, Tls
from disque_py.cli.cluster import local_nodes
from disque_py.client import Address, Disque
from disque_py.client.tls import trusting
from disque_py.loopback_ports import BUS_PORT_DISTANCE, HOST, free_port
from servers import Cluster, Connection
from test_cli import CLI, CLUSTER, PROGRAM_SECONDS, run


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def sign_up(folder, name, authority=None, names="DNS:localhost,IP:127.0.0.1"):
    """Make a key and a certificate for `name`, signed by an authority of the folder or self-signed."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}"]
    key += ["-keyout", folder / f"{name}.key"]
    if authority is None:
        openssl("req", "-x509", *key, "-days", 2, "-out", folder / f"{name}.crt")
        return
    (folder / "names").write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
    openssl("req", *key, "-out", folder / f"{name}.csr")
    signer = ["-CA", folder / f"{authority}.crt", "-CAkey", folder / f"{authority}.key", "-CAcreateserial"]
    words = ["x509", "-req", "-in", folder / f"{name}.csr", *signer, "-days", 2, "-extfile", folder / "names"]
    openssl(*words, "-out", folder / f"{name}.crt")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with an authority, certificates of a node and a client, and another authority."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificates")
    sign_up(folder, "authority")
    sign_up(folder, "other")
    sign_up(folder, "node", "authority")
    sign_up(folder, "client", "authority")
    sign_up(folder, "stranger", "other")
    return folder


def tls(folder, authority="authority", client="client"):
    """The options of the programs."""
    words = ["--tls", "--cacert", str(folder / f"{authority}.crt")]
    return words + (["--cert", str(folder / f"{client}.crt"), "--key", str(folder / f"{client}.key")] if client else [])


@pytest.fixture(scope="module")
def port(certificates, tmp_path_factory):
    """Start and join two nodes with disque-cluster. Return the port of the first; the second has the next port."""
    folder = tmp_path_factory.mktemp("cluster")
    files = {"cert": "node.crt", "key": "node.key", "ca-cert": "authority.crt"}
    options = [word for kind, name in files.items() for word in (f"--tls-{kind}-file", certificates / name)]
    try:
        for _ in range(5):
            port = free_port()
            start = ["start", "-n", 2, "--port", port, "--dir", folder, "--", "--tls-cluster", "yes", *options]
            if (
                subprocess.run([*CLUSTER, *tls(certificates), *map(str, start)], timeout=PROGRAM_SECONDS).returncode
                == 0
            ):
                break
        yield port
    finally:
        run(CLUSTER, "stop", "--remove", "--dir", folder)


@pytest.fixture
def cli(certificates, port):
    def call(*words, **options):
        return run(CLI, "-p", port, *tls(certificates), *words, **options)

    return call


def test_with_tls_alone_there_is_no_plain_port(port):
    text = run(CLI, "-p", port, "PING", status=1)
    assert text == "Error: Server closed the connection (if it speaks TLS, use --tls)\n"


def test_a_large_job_is_added_and_fetched_over_tls(cli):
    body = "x" * 3_000_000
    job_id = cli("-X", "@", "ADDJOB", "large", "@", 0, "REPLICATE", 2, text=body).strip()
    assert cli("GETJOB", "FROM", "large") == f"large\n{job_id}\n{body}\n"
    assert cli("ACKJOB", job_id) == "1\n"


def test_both_nodes_talk_over_tls_and_refuse_other_connections(certificates, port, cli):
    job_id = cli("ADDJOB", "over the bus", "x", 0, "REPLICATE", 2).strip()
    other = [*CLI, "-p", str(port + 1), *tls(certificates)]
    assert job_id in run(other, "GETJOB", "FROM", "over the bus")
    assert run(other, "ACKJOB", job_id) == "1\n"
    context = ssl.create_default_context(cafile=certificates / "authority.crt")
    with (
        pytest.raises((OSError, EOFError)),
        socket.create_connection((HOST, port + BUS_PORT_DISTANCE), 10) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as sock,
    ):
        # This client shows no certificate. In TLS 1.3 the refusal comes with the first read.
        Connection(sock).read()


def test_commands_from_standard_input_are_run_over_tls(cli):
    assert cli(text="PING\nECHO x\n") == "PONG\nx\n"


def test_resp3_and_a_url_work_over_tls(certificates, port):
    words = tls(certificates)[1:]
    assert run(CLI, *words, "-u", f"disques://localhost:{port}", "-3", "PING") == "PONG\n"
    names = zip(("ca", "cert", "key"), words[1::2], strict=True)
    options = "&".join(f"{name}={file}" for name, file in names)
    assert run(CLI, "-u", f"disques://localhost:{port}/?{options}", "PING") == "PONG\n"


def test_health_and_help_work_over_tls(cli):
    assert "is healthy" in cli("--health")
    assert "ADDJOB" in cli("help", "addjob")


def test_the_watching_modes_work_over_tls(cli):
    assert len(cli("--stat", "-r", 2, "-i", 0.05).splitlines()) == 3
    cli("ADDJOB", "listed", "x", 0)
    assert "listed\n" in cli("--scan")
    assert "listed" in cli("--bigqueues")


def test_latency_is_measured_over_tls(cli):
    assert len(cli("--latency").split()) == 4


def test_a_long_pipe_works_over_tls(cli):
    """Both directions carry more than TLS buffers, so readiness of the socket and of TLS differ."""
    jobs = "".join(f"ADDJOB piped {'x' * (1 + number % 3000)} 0\r\n" for number in range(4000))
    assert cli("--pipe", text=jobs).splitlines()[-1] == "errors: 0, replies: 4000"
    assert cli("QLEN", "piped") == "4000\n"


def test_disque_cluster_works_over_tls(certificates, port):
    node = f"{HOST}:{port}"
    lines = run(CLUSTER, *tls(certificates), "status", node).splitlines()
    assert [line.split()[2] for line in lines[1:3]] == ["ok", "ok"]
    assert run(CLUSTER, *tls(certificates), "check", node).startswith("OK: 2 nodes")


def test_a_node_is_taken_out_and_joined_again(certificates, port, cli):
    a, b = (f"{HOST}:{number}" for number in (port, port + 1))
    other = [*CLI, "-p", str(port + 1), *tls(certificates)]
    assert "is out of the cluster" in run(CLUSTER, *tls(certificates), "remove-node", b)
    run(other, "CLUSTER", "RESET")
    run(other, "CLUSTER", "LEAVING", "no")
    assert run(CLUSTER, *tls(certificates), "add-node", b, a).count(" ok ") == 2


@pytest.mark.parametrize("words", [("PING",), ("--health",), ("--pipe",), ("--scan",)])
def test_clients_without_a_certificate_are_refused(certificates, port, words):
    text = run(CLI, "-p", port, *tls(certificates, client=None), *words, status=1, text="")
    assert "Server closed the connection (it may require --cert and --key)" in text


def test_a_certificate_of_another_authority_is_refused(certificates, port):
    text = run(CLI, "-p", port, *tls(certificates, client="stranger"), "PING", status=1)
    assert "Server closed the connection (does it trust this certificate?)" in text


@pytest.mark.parametrize("program", [[*CLI], [*CLUSTER]])
def test_a_node_of_another_authority_is_not_trusted(certificates, port, program):
    words = ["-p", port] if program == CLI else []
    deed = ["PING"] if program == CLI else ["check", f"{HOST}:{port}"]
    text = run(program, *words, *tls(certificates, authority="other"), *deed, status=1)
    assert "certificate verify failed" in text
    if program == CLI:
        words += ["--insecure"]
        assert run(program, *words, *tls(certificates, authority="other"), *deed) == "PONG\n"


def test_files_that_cannot_be_used_are_named(certificates, port):
    mine, nothing = certificates / "client.crt", certificates / "nothing"
    key = certificates / "node.key"
    for words, reason in (
        (("--cacert", nothing), f"Can't use --cacert {nothing}: No such file or directory"),
        (("--cert", nothing), f"Can't use --cert {nothing}: No such file or directory"),
        (("--cert", mine, "--key", key), f"Can't use --cert {mine} with --key {key}: "),
    ):
        assert reason in run(CLI, "-p", port, "--tls", *words, "PING", status=1)
        assert reason in run(CLUSTER, "--tls", *words, "check", f"{HOST}:{port}", status=1)


def test_the_reason_for_not_trusting_a_started_node_is_reported(certificates, tmp_path, monkeypatch):
    """The node runs, so the reason is not in its log."""
    monkeypatch.setattr(local_nodes, "START_TIMEOUT_S", 2.0)
    files = {"cert": "node.crt", "key": "node.key", "ca-cert": "authority.crt"}
    words = [str(word) for kind, name in files.items() for word in (f"--tls-{kind}-file", certificates / name)]
    node = local_nodes.launch(tmp_path, free_port(), words, with_tls=True)
    try:
        target = Target(tls=Tls(ca_file=str(certificates / "other.crt")))
        with pytest.raises(local_nodes.LocalError, match="certificate verify failed"):
            local_nodes.await_ready(target, tmp_path, [node])
    finally:
        local_nodes.stop_nodes([node])


def test_options_for_tls_need_tls(certificates):
    text = run(CLUSTER, "--cacert", certificates / "authority.crt", "check", f"{HOST}:1", status=2)
    assert "need --tls" in text


def test_the_client_library_speaks_tls(certificates, port):
    files = f"ca={certificates}/authority.crt&cert={certificates}/client.crt&key={certificates}/client.key"
    with Disque.from_url(f"disques://{HOST}:{port}?{files}") as client:
        job_id = client.add_job("library", b"x")
        assert [job.id for job in client.get_jobs("library")] == [job_id]
        assert client.ack(job_id) == 1


@pytest.fixture(scope="module")
def both_ports(certificates, tmp_path_factory):
    """Two joined nodes that take clients with and without TLS, and the TLS ports."""
    files = {"cert": "node.crt", "key": "node.key", "ca-cert": "authority.crt"}
    words = [str(word) for kind, name in files.items() for word in (f"--tls-{kind}-file", certificates / name)]
    cluster = Cluster(tmp_path_factory.mktemp("both"), 2, words)
    ports = [free_port(), free_port()]
    for server, port in zip(cluster.servers, ports, strict=True):
        server.options += ["--tls-port", str(port)]
    with cluster:
        yield cluster, ports


def test_a_client_over_tls_finds_every_node(certificates, both_ports):
    """HELLO names TLS ports to a client with TLS, and plain ports to a client without."""
    cluster, ports = both_ports
    context = trusting(str(certificates / "authority.crt"))
    context.load_cert_chain(certificates / "client.crt", certificates / "client.key")
    with Disque(f"{HOST}:{ports[0]}", tls=context, patience=2.0) as disque:
        assert sorted(node.port for node in disque.hello().nodes) == sorted(ports)
        cluster[0].kill()
        assert disque.ping() == "PONG"
        assert disque.node == Address(HOST, ports[1])
    with Disque(f"{HOST}:{cluster[1].port}") as disque:
        assert sorted(node.port for node in disque.hello().nodes) == sorted(server.port for server in cluster.servers)
