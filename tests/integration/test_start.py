"""A node as a process: its start, its work and its end."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import hiredis
import pytest

from certificates import self_signed
from disque_py import __version__
from disque_py.loopback_ports import BUS_PORT_DISTANCE, HOST, free_port
from servers import INSTALLED, PORT_TAKEN, Connection, until

PROGRAM = [sys.executable, "-m", "disque_py.server.main"]


def run(*words, text=None, folder=None):
    """Run the program to its end, and return status, standard output and standard error."""
    result = subprocess.run(
        [*PROGRAM, *map(str, words)],
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder or "/",
        env={**os.environ, "PYTHONPATH": str(INSTALLED)},
    )
    return result.returncode, result.stdout, result.stderr


@contextlib.contextmanager
def started(*words, **options):
    """Run the program as a process. At the end of the block it is killed if it has not ended by itself."""
    with subprocess.Popen(
        [*PROGRAM, *map(str, words)], env={**os.environ, "PYTHONPATH": str(INSTALLED)}, text=True, **options
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def refusal(folder, *words):
    """Return the one line on standard error of a node that can't start. Its status is 1."""
    status, _, errors = run("--port", free_port(), "--bind", HOST, "--dir", folder, *words)
    assert status == 1, errors
    assert errors.count("\n") == 1, errors
    return errors.removeprefix("disque-server: ").strip()


def read_text(path):
    """Return the text of a file that may not exist yet."""
    return path.read_text() if path.exists() else ""


# -- without a node --------------------------------------------------------------------------------


def test_help_and_version_are_answers_and_no_failures():
    status, output, errors = run("--help")
    assert (status, errors) == (0, "")
    assert output.startswith("Usage: disque-server ")
    assert run("-h")[1] == output
    status, output, errors = run("--version")
    assert (status, errors) == (0, "")
    assert output.startswith(f"Disque server v={__version__} ")


def test_a_configuration_error_names_its_line_and_reason(tmp_path):
    (tmp_path / "bad.conf").write_text("port 7711\nmaxmemory 10zb\nnonsense 1\n")
    status, output, errors = run(tmp_path / "bad.conf")
    assert (status, output) == (1, "")
    assert "at line 2" in errors
    assert ">>> 'nonsense 1'" in errors


def test_a_configuration_is_tried_while_a_node_runs_with_it(tmp_path, server):
    (tmp_path / "try.conf").write_text(f"port {server.port}\ndir {server.folder}\nbind {HOST}\n")
    assert run("--test-config", tmp_path / "try.conf") == (0, "disque-server: the configuration can be used\n", "")
    status, _, errors = run("--test-config", tmp_path / "try.conf", "--rename-command", "XDEBUG", "")
    assert status == 1
    assert "'xdebug' is no command. Did you mean 'debug'?" in errors


def test_the_environment_configures_a_node(make_server):
    """The environment ranks between the file and the command line. It also applies when the node restarts itself."""
    server = make_server("--timeout", "7", config=["timeout 1", "hz 20", "slowlog-max-len 5"])
    server.environment = {"DISQUE_TIMEOUT": "2", "DISQUE_HZ": "30", "DISQUE_SITE": "x"}
    server.start()
    for _ in range(2):
        found = [server.command("CONFIG", "GET", name)[1] for name in ("timeout", "hz", "slowlog-max-len")]
        assert found == [b"7", b"30", b"5"]
        assert "the environment variable DISQUE_SITE names no directive and is ignored" in server.output()
        with contextlib.suppress(EOFError, OSError):
            server.command("DEBUG", "RESTART")
        until(server.answers)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--logfile", "/no/such/log"], "can't open the log /no/such/log: No such file or directory"),
        (["--cluster-config-file", "no/nodes.conf"], "no/nodes.conf: No such file or directory"),
        (["--cluster-seeds", "10.0.0.1:60000"], "cluster-seeds: 10.0.0.1:60000 needs a bus port"),
        (["--cluster-announce-ip", "a b"], "'a b' is not an address"),
        (["--bind", "198.51.100.1"], "can't accept clients on 198.51.100.1:"),
        (["--bind", "no.such.host.invalid"], "can't accept clients on no.such.host.invalid:"),
        (
            ["--tls-port", "12345", "--tls-cert-file", "x", "--tls-key-file", "y", "--tls-auth-clients", "no"],
            "can't use",
        ),
        (["--unixsocket", "nodir/disque.sock"], "nodir/disque.sock: No such file or directory"),
    ],
)
def test_the_reason_for_a_failed_start_is_one_line(tmp_path, words, reason):
    assert reason in refusal(tmp_path, *words)


def test_a_damaged_nodes_file_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "nodes.conf").write_text("version 1\ngarbage\n")
    assert "nodes.conf can't be used: line" in refusal(tmp_path)
    assert (tmp_path / "nodes.conf").read_text() == "version 1\ngarbage\n"


def test_a_port_in_use_is_refused_and_nothing_is_left_behind(tmp_path, server):
    path = tmp_path / "other"
    path.mkdir()
    words = refusal(path, "--port", server.port)
    assert words.startswith(f"can't accept clients on {HOST}:{server.port}: {PORT_TAKEN}. Another process")
    words = refusal(path, "--cluster-port", server.port + BUS_PORT_DISTANCE)
    assert f"port {server.port + BUS_PORT_DISTANCE} of {HOST}: {PORT_TAKEN}. Another process" in words
    assert "is in use by another node" in refusal(path, "--dir", server.folder)
    assert run("--port", server.port, "--dir", path, "--logfile", "log")[0] == 1
    assert "can't start: can't accept clients on" in (path / "log").read_text()


# -- a life ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_node_in_an_orderly_way(server, number):
    with server.connect() as waiting:
        waiting.send("GETJOB", "FROM", "q")
        server.command("PING")
        server.process.send_signal(number)
        assert server.wait_ended() == 0
        assert waiting.is_closed()
    assert f"{number.name} received, shutting down" in server.output()
    assert server.output().rstrip().endswith("the node has stopped, bye bye")


def test_a_node_keeps_its_id_and_its_cluster_over_every_kind_of_end(make_cluster):
    """After joining, after SIGKILL and after an orderly stop, the same node comes back to the same cluster."""
    cluster = make_cluster(2)
    a, b = cluster.servers
    ids = set(a.nodes())
    b.kill()
    b.restart()
    cluster.wait_whole()
    assert a.stop() == 0
    a.start()
    cluster.wait_whole()
    assert set(a.nodes()) == set(b.nodes()) == ids


def test_a_nodes_file_that_is_a_link_stays_one(server, tmp_path):
    """The link leads to a volume that outlives a container. The file there has to be replaced."""
    kept, link = tmp_path / "kept.conf", server.folder / "nodes.conf"
    assert server.stop() == 0
    link.rename(kept)
    link.symlink_to(kept)
    written_at = kept.stat().st_mtime_ns
    server.start()
    assert server.command("CLUSTER", "SAVECONFIG") == b"OK"
    assert link.is_symlink()
    assert kept.stat().st_mtime_ns > written_at


def test_replies_to_requests_before_the_end_still_arrive(server):
    """A slow client gets all its replies, although the node is told to stop meanwhile."""
    job_id = server.command("ADDJOB", "q", b"x" * 8_000_000, 0)
    with server.connect() as slow:
        slow.send("SHOW", job_id)
        until(lambda: server.info("commandstats").get("cmdstat_show"))
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "shutting down" in server.output())
        shown = slow.read()
        assert len(shown[shown.index(b"body") + 1]) == 8_000_000
        assert slow.is_closed()
    assert server.wait_ended() == 0


def test_shutdown_closes_the_connection_without_a_reply(server):
    with server.connect() as client:
        client.send("SHUTDOWN")
        with pytest.raises(EOFError):
            client.read()
    assert server.wait_ended() == 0


def test_a_client_that_never_reads_cannot_keep_a_node_alive(server):
    job_id = server.command("ADDJOB", "q", b"x" * 1_000_000, 0)
    with server.connect() as stuffed:
        for _ in range(20):
            stuffed.send("SHOW", job_id)
        time.sleep(0.2)
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 5


def test_a_second_interrupt_ends_a_node_at_once(server):
    """The first one lets it wait for clients to take their replies. The status is 1."""
    job_id = server.command("ADDJOB", "q", b"x" * 1_000_000, 0)
    with server.connect() as stuffed:
        for _ in range(20):
            stuffed.send("SHOW", job_id)
        time.sleep(0.2)
        server.process.send_signal(signal.SIGINT)
        until(lambda: "SIGINT received" in server.output())
        server.process.send_signal(signal.SIGINT)
        assert server.wait_ended(1) == 1


def test_a_hangup_of_the_terminal_is_ignored(server):
    server.process.send_signal(signal.SIGHUP)
    assert server.command("PING") == b"PONG"


# -- running it ------------------------------------------------------------------------------------


def test_the_configuration_may_come_from_standard_input(tmp_path):
    port = free_port()
    with started("-", "--logfile", "log", stdin=subprocess.PIPE) as node:
        node.stdin.write(f"port {port}\nbind {HOST}\ndir {tmp_path}\n")
        node.stdin.close()
        until(lambda: f"ready to accept connections on {HOST}:{port}" in read_text(tmp_path / "log"))
        node.terminate()
        assert node.wait(10) == 0


def test_a_daemon_reports_when_it_is_ready_and_removes_its_pid_file(tmp_path):
    """The started program ends when the node serves. Afterwards the node reports to its log."""
    port = free_port()
    words = ["--port", port, "--bind", HOST, "--dir", tmp_path, "--logfile", "log"]
    status, output, errors = run(*words, "--daemonize", "yes", "--pidfile", "pid", folder=tmp_path)
    assert (status, output, errors) == (0, "", "")
    pid = int((tmp_path / "pid").read_text())
    with Connection(socket.create_connection((HOST, port))) as client:
        assert client.command("PING") == b"PONG"
    os.kill(pid, signal.SIGTERM)
    until(lambda: not (tmp_path / "pid").exists())
    assert f"{pid}:P " in (tmp_path / "log").read_text()


def test_a_daemon_that_cannot_start_reports_the_reason_to_its_caller(tmp_path, server):
    words = ["--port", server.port, "--bind", HOST, "--dir", tmp_path, "--logfile", "log"]
    status, _, errors = run(*words, "--daemonize", "yes", "--pidfile", tmp_path / "pid")
    assert status == 1
    assert PORT_TAKEN in errors
    assert not (tmp_path / "pid").exists()


def test_an_accidental_second_start_leaves_the_pid_file_of_the_running_daemon(tmp_path):
    words = ["--port", free_port(), "--bind", HOST, "--dir", tmp_path, "--logfile", "log"]
    words += ["--daemonize", "yes", "--pidfile", "pid"]
    assert run(*words)[0] == 0
    pid = (tmp_path / "pid").read_text()
    try:
        status, _, errors = run(*words)
        assert (status, (tmp_path / "pid").read_text()) == (1, pid)
        assert "is in use by another node" in errors
    finally:
        os.kill(int(pid), signal.SIGTERM)
    until(lambda: not (tmp_path / "pid").exists())


def test_the_service_manager_is_told_when_the_node_is_ready_and_when_it_stops(make_server, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        server = make_server("--supervised", "systemd")
        server.environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        server.start()
        assert manager.recv(1000).startswith(b"READY=1\nMAINPID=%d\n" % server.pid)
        assert server.stop() == 0
        assert manager.recv(1000).startswith(b"STOPPING=1\n")


@pytest.mark.parametrize("how", ["RESTART", "CRASH-AND-RECOVER"])
def test_a_node_that_restarts_itself_keeps_its_process_and_its_id(make_server, how):
    server = make_server(config=["loglevel debug"]).start()
    node_id, pid = server.node_id, server.info("server")["process_id"]
    run_id = server.info("server")["run_id"]
    server.command("CONFIG", "SET", "timeout", 77)
    with pytest.raises(EOFError):
        server.command("DEBUG", how, 10)
    until(server.answers)
    assert (server.node_id, server.info("server")["process_id"]) == (node_id, pid)
    assert server.info("server")["run_id"] != run_id
    assert server.command("CONFIG", "GET", "timeout")[1] == (b"77" if how == "RESTART" else b"0")
    assert server.stop() == 0


def test_a_configuration_from_standard_input_cannot_be_read_again(tmp_path):
    port = free_port()
    words = ["-", "--port", port, "--bind", HOST, "--dir", tmp_path, "--logfile", "log"]
    with started(*words, stdin=subprocess.DEVNULL):
        until(lambda: "ready to accept" in read_text(tmp_path / "log"))
        with Connection(socket.create_connection((HOST, port))) as client:
            with pytest.raises(hiredis.ReplyError, match="failed to restart the server"):
                client.command("DEBUG", "RESTART")
            assert client.command("PING") == b"PONG"


# -- listeners -----------------------------------------------------------------------------------------


def test_clients_may_connect_over_a_unix_socket(make_server):
    server = make_server("--unixsocket", "disque.sock", "--unixsocketperm", "700").start()
    path = server.folder / "disque.sock"
    assert path.stat().st_mode & 0o777 == 0o700
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        assert Connection(sock).command("PING") == b"PONG"
    server.kill()
    assert path.exists()
    server.restart()
    assert server.stop() == 0
    assert not path.exists()


def test_a_unix_socket_in_use_is_not_taken_away(make_server):
    server = make_server("--unixsocket", "disque.sock").start()
    path = server.folder / "disque.sock"
    (server.folder / "other").mkdir()
    assert f"disque.sock: {PORT_TAKEN}. Another" in refusal(server.folder / "other", "--unixsocket", path)
    (server.folder / "file").write_text("precious")
    assert "which is no socket" in refusal(server.folder / "other", "--unixsocket", server.folder / "file")
    assert (server.folder / "file").read_text() == "precious"


def test_without_bind_a_node_listens_on_ipv4_and_ipv6(tmp_path):
    port = free_port()
    with started("--port", port, "--dir", tmp_path, stdout=subprocess.DEVNULL):

        def answers(host):
            try:
                with Connection(socket.create_connection((host, port), 1)) as client:
                    return client.command("PING") == b"PONG"
            except OSError:
                return False

        until(lambda: answers("127.0.0.1"))
        assert answers("::1") or not socket.has_ipv6


@pytest.fixture
def certificate(tmp_path):
    """Make a self-signed certificate and its key. The node shows it, and it is the authority that the node trusts."""
    return self_signed(tmp_path)


def tls_options(certificate):
    cert, key = certificate
    return ("--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)


def client_context(certificate, *, shows_certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificate[0])
    if shows_certificate:
        context.load_cert_chain(*certificate)
    return context


def test_clients_may_use_tls_if_they_show_a_certificate(make_server, certificate):
    tls_port = free_port()
    server = make_server("--tls-port", tls_port, *tls_options(certificate)).start()
    server.port, plain_port = tls_port, server.port
    with server.connect(tls=client_context(certificate, shows_certificate=True)) as client:
        job_id = client.command("ADDJOB", "q", b"x" * 1_000_000, 0)
        assert client.command("GETJOB", "FROM", "q")[0][1] == job_id
    stranger = client_context(certificate, shows_certificate=False)
    # In TLS 1.3 the refusal comes with the first read.
    with pytest.raises((OSError, EOFError)), server.connect(tls=stranger) as client:
        client.command("PING")
    with server.connect() as garbage:
        garbage.send("PING")
        assert garbage.is_closed()
    server.port = plain_port
    assert server.command("PING") == b"PONG"


def test_nodes_may_use_tls_among_themselves(make_cluster, certificate):
    cluster = make_cluster(2, "--tls-cluster", "yes", *tls_options(certificate))
    a, b = cluster.servers
    job_id = a.command("ADDJOB", "q", "body", 1000, "REPLICATE", 2)
    assert b.command("SHOW", job_id)
    with socket.create_connection((HOST, a.port + BUS_PORT_DISTANCE)) as plain:
        plain.sendall(b"not tls")
        assert Connection(plain).is_closed()


def test_garbage_on_either_port_costs_only_that_connection(make_cluster):
    cluster = make_cluster(2)
    a, _ = cluster.servers
    for data in (b"\x00\xff" * 5000, b"*1\r\n$-5\r\n", b"*99999999\r\n", b"GET / HTTP/1.1\r\n\r\n", os.urandom(3000)):
        for port in (a.port, a.port + BUS_PORT_DISTANCE):
            with socket.create_connection((HOST, port)) as sock:
                sock.sendall(data)
                Connection(sock).is_closed(0.1)
    assert a.command("PING") == b"PONG"
    cluster.wait_whole()
    assert "Traceback" not in a.output()


# -- clusters --------------------------------------------------------------------------------------


def test_seeds_join_nodes_that_are_started_in_any_order(make_server):
    """The first two name a third node that doesn't run yet, and each node names itself."""
    ports = [free_port() for _ in range(3)]
    seeds = [f"{HOST}:{port}" for port in ports]
    servers = [make_server("--cluster-seeds", *seeds, port=port) for port in ports]
    for server in servers[:2]:
        server.start()
    until(lambda: all(server.sees_well(2) for server in servers[:2]), 10)
    servers[2].start()
    until(lambda: all(server.sees_well(3) for server in servers), 10)


def test_nodes_with_different_secrets_do_not_join(make_server):
    a = make_server("--cluster-secret", "one").start()
    b = make_server("--cluster-secret", "other").start()
    a.meet(b)
    until(lambda: "wrong secret" in b.output())
    assert not a.sees_well(2)
    assert len(b.nodes()) == 1


# -- settings in force -----------------------------------------------------------------------------


def test_a_password_is_asked_for(make_server):
    server = make_server("--requirepass", "secret").start()
    with pytest.raises(hiredis.ReplyError, match="NOAUTH"):
        server.command("PING")
    assert server.command("AUTH", "secret") == b"OK"
    assert server.command("PING") == b"PONG"


def test_a_renamed_command_is_known_by_its_new_name_only(make_server):
    server = make_server("--rename-command", "DEBUG", "deeds").start()
    with pytest.raises(hiredis.ReplyError, match="unknown command"):
        server.command("DEBUG", "SLEEP", 0)
    assert server.command("deeds", "SLEEP", 0) == b"OK"


def test_idle_clients_are_closed_after_timeout(server):
    server.command("CONFIG", "SET", "timeout", 1)
    with server.connect() as idle, server.connect() as blocked:
        blocked.send("GETJOB", "FROM", "q")
        begun = time.monotonic()
        assert idle.is_closed(5)
        assert time.monotonic() - begun > 0.9
        assert not blocked.is_closed(0.1)


def test_more_clients_than_maxclients_are_turned_away(server):
    server.command("CONFIG", "SET", "maxclients", 2)
    with server.connect() as second, server.connect() as third:
        assert second.command("PING") == b"PONG"
        assert str(third.read()) == "ERR max number of clients reached"
        assert third.is_closed()


def test_a_rewritten_configuration_is_what_the_next_start_reads(make_server):
    server = make_server(config=["# mine", "timeout 5"]).start()
    server.command("CONFIG", "SET", "timeout", 6)
    assert server.command("CONFIG", "REWRITE") == b"OK"
    assert server.config_path.read_text().startswith("# mine\ntimeout 6\n")
    server.restart()
    assert server.command("CONFIG", "GET", "timeout") == [b"timeout", b"6"]


def test_a_stalled_disk_delays_only_clients_that_write_files(make_server):
    """A pipe represents the disk: opening it takes until another process writes to it. Replies keep their order."""
    server = make_server(config=["timeout 0"]).start()
    server.config_path.unlink()
    os.mkfifo(server.config_path)
    with server.connect() as connection:
        connection.send("CONFIG", "REWRITE")
        connection.send("ECHO", "behind it")
        assert server.command("CONFIG", "SET", "timeout", 77) == b"OK"
        assert not connection.is_closed(0.3)  # There is no reply yet; is_closed would drop it.
        server.config_path.write_text("# fed\n")
        connection.sock.settimeout(10)
        assert [connection.read(), connection.read()] == [b"OK", b"behind it"]
    text = server.config_path.read_text()
    assert text.startswith("# fed\n")
    assert "timeout 77" not in text  # The file has the values at the moment of the command.


def test_tcp_keepalive_counts_for_clients_that_connect_afterwards(server):
    def keepalive_timers():
        listed = subprocess.run(["ss", "-tnoH", "sport", "=", f":{server.port}"], capture_output=True, text=True)
        return re.findall(r"timer:\(keepalive,", listed.stdout)

    if shutil.which("ss") is None:
        pytest.skip("ss is not installed")
    with server.connect() as before:
        before.command("PING")
        assert keepalive_timers() == []
        server.command("CONFIG", "SET", "tcp-keepalive", 60)
        with server.connect() as after:
            after.command("PING")
            assert len(keepalive_timers()) == 1


def test_the_watchdog_logs_where_the_loop_is_stuck(server):
    server.command("CONFIG", "SET", "watchdog-period", 200)
    server.command("DEBUG", "SLEEP", 0.5)
    until(lambda: "the loop has been standing still" in server.output())
    assert "time.sleep(seconds)" in server.output()
    server.command("CONFIG", "SET", "watchdog-period", 0)
    size = len(server.output())
    server.command("DEBUG", "SLEEP", 0.5)
    assert len(server.output()) == size


def test_client_pause_delays_commands_and_then_runs_them(server):
    server.command("CLIENT", "PAUSE", 400)
    with server.connect() as client:
        begun = time.monotonic()
        assert client.command("PING") == b"PONG"
        assert time.monotonic() - begun > 0.3
