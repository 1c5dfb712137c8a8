"""disque-cli, disque-admin and disque-cluster in all their modes, against real nodes."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

import hiredis
import pytest

from disque_py.loopback_ports import HOST, free_port
from servers import ROOT, Cluster, Server, until

CLI = [sys.executable, str(ROOT / "bin" / "disque-cli")]
ADMIN = [sys.executable, str(ROOT / "bin" / "disque-admin")]
CLUSTER = [sys.executable, str(ROOT / "bin" / "disque-cluster")]
PROGRAM_SECONDS = 40
JOB_ID = r"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}"


def run(program, *words, text=None, status=0, **environment):
    """Return the output of a program, followed by its errors. The exit status must be `status`; None: any."""
    ended = subprocess.run(
        [*program, *map(str, words)],
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
        cwd="/",
        env={**os.environ, **environment},
    )
    assert status is None or ended.returncode == status, ended.stdout
    return ended.stdout


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for all tests that don't end it. Each test uses its own queues."""
    with Server(tmp_path_factory.mktemp("node")) as server:
        yield server


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three nodes that know each other, for tests that change nothing."""
    with Cluster(tmp_path_factory.mktemp("three"), 3) as cluster:
        yield cluster


@pytest.fixture
def cli(node):
    """Run disque-cli against the node."""

    def call(*words, **options):
        return run(CLI, "-p", node.port, *words, **options)

    return call


# -- disque-cli: one command -----------------------------------------------------------------------


def test_a_job_is_added_taken_shown_and_acknowledged(cli):
    job_id = cli("ADDJOB", "round trip", "körper", "0").strip()
    assert re.fullmatch(JOB_ID, job_id)
    assert cli("SHOW", job_id).splitlines()[:4] == ["id", job_id, "queue", "round trip"]
    assert cli("GETJOB", "FROM", "round trip") == f"round trip\n{job_id}\nkörper\n"
    assert cli("ACKJOB", job_id) == "1\n"
    assert cli("SHOW", job_id) in ("", "\n")


def test_each_format_shows_the_same_job(cli):
    job_id = cli("ADDJOB", "formats", "a, b", "0").strip()
    quoted = cli("--no-raw", "QPEEK", "formats", "1")
    assert quoted == f'1) 1) "formats"\n   2) "{job_id}"\n   3) "a, b"\n'
    assert json.loads(cli("--json", "QPEEK", "formats", "1")) == [["formats", job_id, "a, b"]]
    assert next(csv.reader([cli("--csv", "QPEEK", "formats", "1").strip()])) == ["formats", job_id, "a, b"]
    assert cli("-d", "|", "QPEEK", "formats", "1") == f"formats|{job_id}|a, b\n"
    assert cli("--no-raw", "QLEN", "formats") == "(integer) 1\n"


def test_json_is_a_map_where_the_reply_is_one(cli, node):
    assert json.loads(cli("--json", "QSTAT", "no such queue")) is None
    hello = json.loads(cli("--json", "HELLO", "3"))
    assert str(node.port) in json.dumps(hello) or "server" in hello
    assert json.loads(cli("--json", "CONFIG", "GET", "timeout")) in ({"timeout": "0"}, ["timeout", "0"])


def test_an_error_reply_is_shown_and_is_exit_status_1(cli):
    assert "unknown command" in cli("NONSENSE", status=1)
    assert cli("--no-raw", "ADDJOB", "q", status=1).startswith("(error) ERR wrong number of arguments")
    assert "BADID" in cli("ACKJOB", "nonsense", status=1)


def test_a_dead_address_is_exit_status_1():
    port = free_port()
    refused = f"Could not connect to Disque at {HOST}:{port}: Connection refused\n"
    assert run(CLI, "-p", port, "PING", status=1) == refused


def test_the_body_may_come_from_standard_input(cli):
    """-x puts the body last, -X at the place of a given word."""
    assert cli("-X", "BODY", "ADDJOB", "stdin", "BODY", "0", text="from\nstdin").startswith("D-")
    assert cli("-x", "QLEN", text="stdin") == "1\n"
    assert cli("GETJOB", "FROM", "stdin").endswith("\nfrom\nstdin\n")


def test_a_command_is_repeated(cli):
    ids = cli("-r", "3", "-i", "0.01", "ADDJOB", "repeated", "x", "0").split()
    assert len(set(ids)) == 3
    assert cli("QLEN", "repeated") == "3\n"


def test_commands_on_standard_input_are_run_one_per_line(cli):
    output = cli(text='ADDJOB lines "one job" 0\nQLEN lines\n\n2 PING\n')
    assert re.fullmatch(JOB_ID + "\n1\nPONG\nPONG\n", output)
    assert "unknown command" in cli(text="PING\nNONSENSE\n", status=1)


def test_a_url_or_a_unix_socket_may_say_where(make_server):
    server = make_server("--unixsocket", "disque.sock", "--requirepass", "secret").start()
    assert run(CLI, "-u", f"disque://:secret@{HOST}:{server.port}", "PING") == "PONG\n"
    assert run(CLI, "-s", server.folder / "disque.sock", "PING", DISQUECLI_AUTH="secret") == "PONG\n"
    assert run(CLI, "-p", server.port, "-a", "secret", "-3", "PING") == "PONG\n"
    assert "NOAUTH" in run(CLI, "-p", server.port, "PING", status=1)
    assert "NOAUTH" in run(CLI, "-p", server.port, "--health", status=1)


def test_help_describes_a_command(cli):
    assert "GETJOB" in cli("help", "getjob")
    assert "ADDJOB" in run(CLI, "-p", free_port(), "help", "@jobs")


def test_monitor_shows_commands_until_it_is_interrupted(node):
    with subprocess.Popen([*CLI, "-p", str(node.port), "MONITOR"], stdout=subprocess.PIPE, text=True) as monitor:
        try:
            assert monitor.stdout.readline() == "OK\n"
            node.command("QLEN", "a monitored queue")
            line = monitor.stdout.readline()
            monitor.send_signal(signal.SIGINT)
            assert monitor.wait(10) in (0, 130)
        finally:
            monitor.kill()
    assert line.lower().endswith('"qlen" "a monitored queue"\n')


def test_shutdown_ends_the_node_and_is_a_success(make_server):
    server = make_server().start()
    assert run(CLI, "-p", server.port, "SHUTDOWN") == ""
    assert server.wait_ended() == 0


def test_a_waiting_command_can_be_interrupted(node):
    """Status 130, and the node has one blocked client less."""
    words = [*CLI, "-p", str(node.port), "GETJOB", "FROM", "nothing comes"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as waiting:
        try:
            until(lambda: node.info("clients")["blocked_clients"] == "1")
            waiting.send_signal(signal.SIGINT)
            assert waiting.wait(10) == 130
        finally:
            waiting.kill()
    until(lambda: node.info("clients")["blocked_clients"] == "0")


def test_bash_completes_options_commands_and_queues(node):
    node.command("ADDJOB", "tab-queue", "x", 0)
    ask = (
        'eval "$1"; COMP_WORDS=(disque-cli "${@:3}"); COMP_CWORD=$(($# - 2)); _disque_cli "$2"; echo "${COMPREPLY[@]}"'
    )
    script = run(CLI, "--completion", "bash")
    for words, found in (
        (["--bigq"], "--bigqueues"),
        (["qle"], "qlen"),
        (["-p", node.port, "QLEN", "tab"], "tab-queue"),
    ):
        assert run(["bash", "-c", ask, "bash"], script, CLI[1], *words) == f"{found}\n"


# -- disque-cli: modes -----------------------------------------------------------------------------


def test_stat_prints_a_header_and_a_line_per_interval(cli, node):
    node.command("ADDJOB", "stat", "x", 0)
    header, first, second = cli("--stat", "-r", "2", "-i", "0.05").splitlines()
    assert header.split()[0] in ("jobs", "-------")
    assert int(first.split()[0]) == int(second.split()[0]) >= 1
    assert re.search(r"\(\+\d+\)", second)
    assert len(cli("--stat", "-r", "1").splitlines()) == 2


def test_the_queues_of_a_cluster_are_one_table(three):
    """Each job counts once, whichever node is asked."""
    three[0].command("ADDJOB", "tabled", "x", 1000, "REPLICATE", 3)
    for server in (three[0], three[2]):
        rows = [json.loads(line) for line in run(CLI, "-p", server.port, "--queues", "--once", "--json").splitlines()]
        assert [row["pending"] for row in rows if row["queue"] == "tabled"] == [1]
    assert "tabled" in run(CLI, "-p", three[1].port, "--queues", "--once", "--pattern", "tab*")


def test_the_table_of_queues_stays_in_its_place(node):
    """It is redrawn until Ctrl-C, and the last table stays on the screen."""
    node.command("ADDJOB", "watched", "x", 0)
    front, back = pty.openpty()
    fcntl.ioctl(back, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    command = [*CLI, "-p", str(node.port), "--queues", "-i", "0.1"]
    process = subprocess.Popen(command, stdin=back, stdout=back, stderr=back, env={**os.environ, "TERM": "xterm"})
    os.close(back)
    seen = b""
    while seen.count(b"watched") < 2:
        seen += os.read(front, 4096)
    assert b"\x1b[?1049h" in seen  # It uses the alternate screen, like `top`.
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):
        while more := os.read(front, 4096):
            seen += more
    os.close(front)
    assert process.wait(PROGRAM_SECONDS) == 0
    assert b"watched" in seen.partition(b"\x1b[?1049l")[2]


# -- disque-admin ----------------------------------------------------------------------------------


def test_settings_are_set_shown_and_reset(node):
    admin = [*ADMIN, "-p", str(node.port)]
    assert run(admin, "queue", "set", "tuned", "attempts=5", "maxlen", "10") == "tuned: attempts=5 maxlen=10\n"
    assert json.loads(run(admin, "queue", "show", "tuned", "--json"))["settings"]["attempts"] == "5"
    assert "unknown queue setting 'no'" in run(admin, "queue", "set", "tuned", "no=1", status=1)
    assert run(admin, "queue", "reset", "tuned").endswith("was: attempts=5 maxlen=10\n")


def test_a_queue_is_paused_and_resumed(node):
    admin = [*ADMIN, "-p", str(node.port)]
    run(admin, "queue", "pause", "halted")
    assert "`disque-admin queue resume NAME`" in run(admin, "job", "add", "halted", "x", status=1)
    run(admin, "queue", "resume", "halted")
    run(admin, "job", "add", "halted", "x")


def test_a_job_is_added_shown_peeked_at_and_canceled(three):
    """At any node of the cluster."""
    first, second = ([*ADMIN, "-p", str(server.port)] for server in (three[0], three[1]))
    job_id = run(first, "job", "add", "worked", "Dear Ada", "--meta", "tenant=a", "--attempts", "3").strip()
    assert "3 of 3 left" in run(second, "job", "show", job_id)
    assert "tenant=a" in run(second, "job", "peek", "worked")
    assert run(second, "job", "cancel", job_id) == "1 of 1 job canceled\n"
    assert run(first, "job", "wait", job_id, "--timeout", "5s", status=1) == "canceled\n"
    job_id = run(first, "job", "add", "worked", "Dear Bob").strip()
    assert run(second, "job", "wait", job_id, "--timeout", "50ms", status=1).endswith("is not over: pending\n")
    assert three[0].command("GETJOB", "FROM", "worked")
    three[0].command("ACKJOB", job_id, "RESULT", "12 pages")
    assert run(second, "job", "wait", job_id, "--timeout", "5s") == "completed: 12 pages\n"


def test_bash_completes_names_of_queues(node):
    node.command("ADDJOB", "completed-name", "x", 0)
    words = f"disque-admin -p {node.port} queue show compl"
    environment = {"_DISQUE_ADMIN_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "5"}
    assert "completed-name" in run(ADMIN, **environment)


def test_latency_into_a_pipe_is_one_line(cli):
    least, most, average, count = map(float, cli("--latency", "-i", "0.2").split())
    assert 0 <= least <= average <= most
    assert 1 <= count <= 40  # About a hundred a second.


def test_latency_history_goes_on_until_it_is_interrupted(node):
    words = [*CLI, "-p", str(node.port), "--latency-history", "-i", "0.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
        try:
            lines = [watching.stdout.readline() for _ in range(2)]
            watching.send_signal(signal.SIGINT)
            assert watching.wait(10) == 0
            lines += watching.stdout.readlines()  # No empty line, which a parser would meet.
        finally:
            watching.kill()
    assert all(len(line.split()) == 4 for line in lines)


def test_intrinsic_latency_needs_no_node():
    assert "microseconds" in run(CLI, "-p", free_port(), "--intrinsic-latency", "0.1")


def test_queues_are_scanned_and_the_biggest_shown(make_server):
    server = make_server().start()
    names = [f"queue {number}" for number in range(30)]
    for number, name in enumerate(names):
        for _ in range(1 + number % 3 + 10 * (number == 7)):
            server.command("ADDJOB", name, "x", 0)
    assert sorted(run(CLI, "-p", server.port, "--scan").splitlines()) == sorted(names)
    assert run(CLI, "-p", server.port, "--scan", "--pattern", "*e 7") == "queue 7\n"
    lines = run(CLI, "-p", server.port, "--bigqueues").splitlines()
    assert lines[1].split()[0] == "12"
    assert '"queue 7"' in lines[1]
    assert lines[-2:] == ["30 queues, 0 of them empty", "70 jobs queued on this node, 2.33 per queue"]


def test_pipe_feeds_protocol_and_counts_replies(cli, node):
    one = "*4\r\n$6\r\nADDJOB\r\n$5\r\npiped\r\n$1\r\nx\r\n$1\r\n0\r\n"
    assert cli("--pipe", text=one * 3000) == "errors: 0, replies: 3000\n"
    assert node.command("QLEN", "piped") == 3000
    output = cli("--pipe", text="PING\r\nNONSENSE\r\nQLEN piped", status=1)
    assert "unknown command" in output
    assert output.endswith("errors: 1, replies: 3\n")


def test_health_is_a_line_and_an_exit_status(cli, make_cluster):
    assert cli("--health").endswith("is healthy\n")
    a, b = make_cluster(2).servers
    b.command("CLUSTER", "LEAVING", "yes")
    assert "leaving" in run(CLI, "-p", b.port, "--health")
    b.pause()
    run(CLI, "-p", b.port, "-t", "0.5", "--health", status=1)
    b.kill()
    assert "refused" in run(CLI, "-p", b.port, "--health", status=1)
    assert "healthy" in run(CLI, "-p", a.port, "--health")


# -- disque-cluster --------------------------------------------------------------------------------


def address(server):
    """host:port."""
    return f"{HOST}:{server.port}"


def test_a_cluster_is_started_looked_at_stopped_and_started_again(tmp_path):
    folder = ("--dir", tmp_path / "cluster")
    try:
        words = ("--loglevel", "warning", "--appendonly", "yes")
        output = run(CLUSTER, "start", "-n", 2, "--zones", "eu/a,b", *folder, "--", *words)
        ports = sorted(map(int, re.findall(rf"{HOST}:(\d+) +ok", output)))
        assert len(ports) == 2
        assert f"disque-cli -p {ports[0]}" in output
        assert run(CLI, "-p", ports[1], "CONFIG", "GET", "loglevel") == "loglevel\nwarning\n"
        assert "running already" in run(CLUSTER, "start", *folder, status=1)
        assert run(CLUSTER, "check", *folder) == "OK: 2 nodes, each linked to every other\n"
        ids = {json.loads(line)["node"] for line in run(CLUSTER, "status", "--json", *folder).splitlines()}
        assert run(CLUSTER, "stop", *folder) == "Stopped 2 of 2 nodes\n"
        assert "unreachable" in run(CLUSTER, "status", *folder, status=1)
        assert "no-such-directive" in run(CLUSTER, "start", *folder, "--", "--no-such-directive", "1", status=1)
        again = run(CLUSTER, "start", *folder, "--", "--loglevel", "notice")
        assert all(f"{HOST}:{port}" in again for port in ports)
        assert "Options:  --appendonly as in the last start\n" in again  # That is, the last one that succeeded.
        assert run(CLI, "-p", ports[1], "CONFIG", "GET", "loglevel") == "loglevel\nnotice\n"
        assert run(CLI, "-p", ports[1], "CONFIG", "GET", "appendonly") == "appendonly\nyes\n"
        zones = [
            run(CLI, "-p", port, "CONFIG", "GET", name)
            for port, name in zip(ports, ("datacenter", "zone"), strict=True)
        ]
        assert zones == ["datacenter\neu\n", "zone\nb\n"]
        assert {json.loads(line)["node"] for line in run(CLUSTER, "status", "--json", *folder).splitlines()} == ids
    finally:
        run(CLUSTER, "stop", "--remove", *folder)
    assert not list((tmp_path / "cluster").iterdir())
    assert "No cluster was started" in run(CLUSTER, "stop", *folder, status=1)


def test_a_node_that_was_started_again_stays_though_another_does_not_answer(tmp_path):
    """One node of three is dead, one is stopped by SIGSTOP."""
    folder = ("--dir", tmp_path / "cluster")
    try:
        run(CLUSTER, "start", *folder)
        rows = json.loads((tmp_path / "cluster" / "nodes.json").read_text())["nodes"]
        dead, frozen, _ = rows
        os.kill(dead["pid"], signal.SIGKILL)
        os.kill(frozen["pid"], signal.SIGSTOP)
        until(lambda: "refused" in run(CLI, "-p", dead["port"], "-t", "1", "--health", status=1))
        output = run(CLUSTER, "start", *folder, status=1)
        assert f"The node on port {frozen['port']} (process {frozen['pid']}) is running but does not answer" in output
        assert run(CLI, "-p", dead["port"], "PING") == "PONG\n"
        assert "unreachable" in run(CLUSTER, "status", *folder, status=1)
        os.kill(frozen["pid"], signal.SIGCONT)
        until(lambda: "OK: 3 nodes" in subprocess.run([*CLUSTER, "check", *folder], stdout=-1, text=True).stdout)
    finally:
        run(CLUSTER, "stop", "--remove", *folder)


def test_nodes_that_cannot_start_say_why_and_leave_nothing_running(tmp_path):
    output = run(CLUSTER, "start", "-n", 2, "--dir", tmp_path, "--", "--no-such-directive", "1", status=1)
    assert "no-such-directive" in output
    assert "No cluster was started" in run(CLUSTER, "check", "--dir", tmp_path, status=1)


def test_a_start_ends_at_once_if_a_new_node_refuses_the_login(tmp_path):
    """It waited for another answer for 30 seconds."""
    words = ("-n", 1, "--dir", tmp_path, "--", "--requirepass", "secret")
    output = run(CLUSTER, "-a", "other", "start", *words, status=1)
    assert " refused the login: " in output
    assert "does not answer" not in output
    assert "No cluster was started" in run(CLUSTER, "check", "--dir", tmp_path, status=1)


def test_status_has_a_row_per_node_and_a_json_object(three):
    a, b, c = three.servers
    lines = run(CLUSTER, "status", address(b)).splitlines()
    assert lines[0].split()[:3] == ["node", "address", "state"]
    assert {line.split()[1] for line in lines[1:4]} == {address(server) for server in (a, b, c)}
    rows = [json.loads(line) for line in run(CLUSTER, "status", "--json", address(a)).splitlines()]
    assert {row["node"] for row in rows} == {server.node_id for server in three.servers}
    assert {(row["state"], row["links"], row["others"]) for row in rows} == {("ok", 2, 2)}


def test_running_nodes_are_joined_checked_and_extended(make_server):
    a, b, c = (make_server() for _ in range(3))
    for server in (a, b, c):
        server.launch()
    for server in (a, b, c):
        server.wait_started()
    assert run(CLUSTER, "create", address(a), address(b)).count(" ok ") == 2
    assert run(CLUSTER, "check", address(b)).startswith("OK: 2 nodes")
    assert run(CLUSTER, "add-node", address(c), address(a)).count(" ok ") == 3
    assert all(server.sees_well(3) for server in (a, b, c))
    b.kill()
    output = run(CLUSTER, "check", address(a), status=1)
    assert address(b) in output
    assert "does not answer" in output
    b_id = next(node_id for node_id, row in a.nodes().items() if row[0] == address(b))
    assert "use --dead" in run(CLUSTER, "remove-node", b_id[:12], "--via", address(a), status=1)
    assert "out of the cluster" in run(CLUSTER, "remove-node", b_id[:12], "--via", address(a), "--dead")
    until(lambda: a.sees_well(2) and c.sees_well(2))


def test_a_node_that_does_not_answer_is_reported(three):
    assert "refused" in run(CLUSTER, "add-node", address(three[0]), f"{HOST}:{free_port()}", status=1)
    assert "Usage" in run(CLUSTER, "add-node", "nonsense:port", address(three[0]), status=2)


def test_a_node_is_removed_when_its_jobs_are_elsewhere(make_cluster):
    """A lease delays the end. Each change is a line with the reason. In the end the node is forgotten and stopped."""
    a, b, c = make_cluster(3).servers
    for number in range(40):
        c.command("ADDJOB", "q", number, 3000, "REPLICATE", 1 + number % 3)
    c.command("ADDJOB", "leased", "x", 3000, "RETRY", 4, "REPLICATE", 1)
    assert c.command("GETJOB", "FROM", "leased")
    lines = run(CLUSTER, "remove-node", address(c), "--shutdown").splitlines()
    counts = [
        int(line.split()[0]) for line in lines if re.match(r"\d+ jobs? left", line)
    ]  # The reasons follow the number.
    assert counts[-1] == 0  # On a fast machine the first count is already 0.
    assert any("worker" in line for line in lines)
    assert lines[-1].endswith("is out of the cluster")
    assert c.wait_ended() == 0
    until(lambda: a.sees_well(2) and b.sees_well(2))
    until(lambda: sum(server.command("QLEN", "q") for server in (a, b)) == 40)
    assert b.command("GETJOB", "TIMEOUT", 8000, "FROM", "leased")[0][2] == b"x"


def is_acquired(server):
    """Acquire a lock, and return whether that worked. On a busy disk a voter may need more than a second."""
    try:
        return bool(server.command("LOCK", "ACQUIRE", "lock", "me", 10))
    except hiredis.ReplyError as error:
        if not str(error).startswith("NOQUORUM no majority"):
            raise
        return False


def test_removed_voters_leave_the_list_of_voters(make_cluster):
    """Locks stay available after two of four nodes are gone, both of them voters."""
    cluster = make_cluster(4)
    a, b, c, d = cluster.servers
    ids = [server.node_id for server in cluster.servers]
    a.command("CLUSTER", "VOTERS", "INIT", *ids[:3])
    lines = run(CLUSTER, "remove-node", address(c), "--shutdown").splitlines()
    assert lines[0].endswith("is no longer a voter. Voters left: 2")
    b.kill()
    output = run(CLUSTER, "remove-node", ids[1], "--via", address(a), "--dead", status=1)
    assert "RESET FORCE" in output  # One voter of two is no majority.
    b.restart()
    until(lambda: a.sees_well(3))
    until(lambda: b.sees_well(3))
    lines = run(CLUSTER, "remove-node", address(b)).splitlines()
    assert lines[0].endswith("is no longer a voter. Voters left: 1")
    until(lambda: is_acquired(d))
    until(lambda: a.sees_well(2) and d.sees_well(2))
    assert "The voter" not in run(CLUSTER, "check", address(a))
    assert f"CLUSTER VOTERS ADD {ids[3]}" in run(CLUSTER, "remove-node", address(a), status=1)


def test_a_removal_that_takes_too_long_can_be_taken_up_again(make_cluster):
    """The time limit leaves the node leaving; the next call goes on."""
    a, b = make_cluster(2).servers
    b.command("ADDJOB", "leased", "x", 3000, "RETRY", 300, "REPLICATE", 1)
    job_id = b.command("GETJOB", "FROM", "leased")[0][1]
    begun = time.monotonic()
    output = run(CLUSTER, "remove-node", address(b), "--timeout", "0.5", status=1)
    assert time.monotonic() - begun < 6
    assert "1 job still on" in output
    assert "worker" in output
    assert b.command("CLUSTER", "LEAVING") == b"yes"
    assert "leaving" in run(CLUSTER, "status", address(a))
    assert "is leaving the cluster" in run(CLUSTER, "check", address(a))
    b.command("ACKJOB", job_id)
    assert "its process still runs" in run(CLUSTER, "remove-node", address(b))
    until(lambda: a.sees_well(1))
    assert "only node" in run(CLUSTER, "remove-node", address(a), status=1)


def test_completion_is_a_script_for_the_shell():
    assert "_disque_cluster_completion" in run(CLUSTER, "completion", "bash")
