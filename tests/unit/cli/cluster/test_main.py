"""cluster/main.py: the commands of disque-cluster, their tables and exit statuses."""

from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner

from disque_py.cli.cluster import draining
from disque_py.cli.cluster import main as cluster_main
from disque_py.cli.cluster.local_nodes import (
    LocalNode,
    StartOptions,
    default_directory,
    load_nodes,
    load_options,
    save_nodes,
)
from disque_py.cli.cluster.main import main
from disque_py.client import ConnectionLostError
from disque_py.loopback_ports import PORTS, free_port

A, B = ("a" * 40, "b" * 40)


@pytest.fixture(autouse=True)
def _quick_and_away_from_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(draining, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(cluster_main, "JOIN_TIMEOUT_S", 0.3)


@pytest.fixture
def pair(scripted, bulk_reply):
    """Two scripted nodes that know each other. `pair(flags_of_b, jobs_of_b)` sets the flags and jobs of b."""
    nodes = (scripted({}), scripted({}))

    def make(flags_of_b="noflags", jobs_of_b=(3, 0)):
        left = list(jobs_of_b)
        for me, other, node in ((A, B, nodes[0]), (B, A, nodes[1])):
            mine, its = nodes if me == A else nodes[::-1]
            flags = flags_of_b if other == B else "noflags"
            table = (
                f"{me} 127.0.0.1:{mine.port} myself 0 0 connected\n{other} 127.0.0.1:{its.port} {flags} 0 0 connected\n"
            )
            node.answers = {
                "AUTH": b"+OK\r\n",
                "PING": b"+PONG\r\n",
                "CLUSTER NODES": bulk_reply(table),
                "CLUSTER INFO": bulk_reply("cluster_size:2\r\ncluster_leaving_blocked_by:nobody takes it\r\n"),
                "CLUSTER LEAVING": b"+no\r\n",
                "CLUSTER LEAVING YES": b"+OK\r\n",
                "CLUSTER FORGET": b"+OK\r\n",
                "CLUSTER MEET": b"+OK\r\n",
                "INFO": bulk_reply("registered_jobs:3\r\nregistered_queues:2\r\nused_memory:2048\r\n"),
                "INFO JOBS": lambda words: bulk_reply(
                    f"registered_jobs:{left.pop(0) if len(left) > 1 else left[0]}\r\n"
                ),
                "HELLO": b"*4\r\n:1\r\n"
                + bulk_reply(me)
                + b"*4\r\n"
                + b"".join(map(bulk_reply, (A, "", "1", "1")))
                + b"*4\r\n"
                + b"".join(map(bulk_reply, (B, "", "1", "10"))),
                "SHUTDOWN": lambda words: None,
            }
        return nodes

    return make


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def place(node):
    return f"127.0.0.1:{node.port}"


def test_status_is_a_line_per_node(pair):
    a, b = pair()
    result = run("status", place(a))
    rows = [line.split() for line in result.output.splitlines()]
    assert result.exit_code == 0
    assert rows[0] == ["node", "address", "state", "jobs", "queues", "memory", "links", "priority", "voter"]
    assert ["bbbbbbbb", place(b), "ok", "3", "2", "2.00K", "1/1", "10", "-"] in rows


def test_status_as_json_is_an_object_per_node(pair):
    a, _ = pair()
    rows = [json.loads(line) for line in run("status", "--json", place(a)).output.splitlines()]
    assert {row["node"]: (row["state"], row["jobs"], row["links"]) for row in rows} == {
        A: ("ok", 3, 1),
        B: ("ok", 3, 1),
    }


def test_status_of_a_dead_address_is_exit_status_1():
    assert run("status", "127.0.0.1:1").exit_code == 1


def test_status_is_exit_status_1_if_any_node_cannot_be_reached(pair):
    a, b = pair(flags_of_b="fail")
    b.close()
    result = run("status", place(a))
    assert result.exit_code == 1
    assert "unreachable,fail" in result.output


def test_a_cluster_that_was_never_started_is_reported(tmp_path):
    result = run("status", "--dir", tmp_path)
    assert result.exit_code == 1
    assert "No cluster was started in" in result.output


def test_check_is_content_with_a_whole_cluster(pair):
    a, _ = pair()
    result = run("check", place(a))
    assert (result.exit_code, result.output) == (0, "OK: 2 nodes, each linked to every other\n")


def test_check_names_the_problems(pair):
    a, b = pair(flags_of_b="fail?")
    result = run("check", place(a))
    assert result.exit_code == 1
    assert f"{place(a)} (aaaaaaaa) has {place(b)} (bbbbbbbb) as fail?" in result.output


def test_create_joins_the_others_to_the_first(pair):
    a, b = pair()
    assert run("create", place(a), place(b)).exit_code == 0
    assert [b"CLUSTER", b"MEET", b"127.0.0.1", str(b.port).encode()] in a.requests


def voters_reply(*ids, bulk_reply):
    listed = b"*%d\r\n" % len(ids) + b"".join(map(bulk_reply, ids))
    return (
        b"*12\r\n" + bulk_reply("epoch") + b":%d\r\n" % bool(ids) + bulk_reply("claim-lease-max") + b":3600\r\n"
        + bulk_reply("voters") + listed + bulk_reply("state") + bulk_reply("ready" if ids else "none")
        + bulk_reply("mute") + b"*0\r\n" + bulk_reply("reachable") + b":%d\r\n" % len(ids)
    )  # fmt: skip


def test_create_makes_the_first_node_of_two_a_voter(pair, bulk_reply):
    """Spec CL7. An older server is skipped with a notice."""
    a, b = pair()
    assert "Note: the cluster has no voters" in run("create", place(a), place(b)).output
    a.answers["CLUSTER VOTERS"] = voters_reply(bulk_reply=bulk_reply)
    a.answers["CLUSTER VOTERS INIT"] = b"+OK\r\n"
    assert "Note" not in run("create", place(a), place(b)).output
    assert [b"CLUSTER", b"VOTERS", b"INIT", A.encode()] in a.requests


def test_status_and_check_show_the_voters(pair, bulk_reply):
    """Spec CL4: a voter that no node knows is a problem."""
    a, _ = pair()
    a.answers["CLUSTER VOTERS"] = voters_reply(A, "c" * 40, bulk_reply=bulk_reply)
    output = run("status", place(a)).output
    assert "Voters:   ready, epoch 1, 2 of 2 reachable" in output
    rows = [json.loads(line) for line in run("status", "--json", place(a)).output.splitlines()]
    assert [(row["voter"], row["voters"] and row["voters"]["epoch"]) for row in rows if row["node"] == A] == [
        ("voter", 1)
    ]
    result = run("check", place(a))
    assert result.exit_code == 1
    assert f"The voter {'c' * 40} is unknown" in result.output
    assert "Note: there are 2 voters, an even number" in result.output


def test_add_node_asks_the_existing_one(pair):
    a, b = pair()
    assert run("add-node", place(b), place(a)).exit_code == 0
    assert [b"CLUSTER", b"MEET", b"127.0.0.1", str(b.port).encode()] in a.requests


def test_nodes_that_do_not_join_in_time_are_exit_status_1(pair):
    a, b = pair(flags_of_b="handshake")
    result = run("create", place(a), place(b))
    assert result.exit_code == 1
    assert "The cluster is not ready" in result.output


@pytest.mark.parametrize("command", ["create", "add-node"])
def test_a_node_that_is_named_twice_is_bad_usage(pair, command):
    a, _ = pair()
    result = run(command, place(a), place(a))
    assert (result.exit_code, f"{place(a)} is named twice" in result.output) == (2, True)


@pytest.mark.parametrize("by_id", [False, True])
def test_remove_node_drains_and_lets_the_others_forget(pair, by_id):
    a, b = pair()
    result = run("remove-node", B[:8], "--via", place(a)) if by_id else run("remove-node", place(b))
    assert result.exit_code == 0, result.output
    assert [b"CLUSTER", b"LEAVING", b"yes"] in b.requests
    assert [b"CLUSTER", b"FORGET", B.encode()] in a.requests
    assert "3 jobs left; blocked by: nobody takes it" in result.output
    assert "its process still runs" in result.output


@pytest.mark.parametrize("is_dead", [False, True])
def test_remove_node_takes_a_voter_off_the_list_first(pair, bulk_reply, is_dead):
    """A list that names unknown nodes loses its majority."""
    a, b = pair(flags_of_b="fail" if is_dead else "noflags")
    voters = [A, B]
    for node in (a, b):
        node.answers["CLUSTER VOTERS"] = lambda words: voters_reply(*voters, bulk_reply=bulk_reply)
    a.answers["CLUSTER VOTERS REMOVE"] = lambda words: voters.remove(words[3].decode()) or b"+OK\r\n"
    a.answers["CLUSTER FORGET"] = lambda words: b"-ERR a voter\r\n" if B in voters else b"+OK\r\n"
    b.answers["CLUSTER LEAVING YES"] = lambda words: b"-ERR a voter\r\n" if B in voters else b"+OK\r\n"
    if is_dead:
        b.close()
    result = run("remove-node", B[:8], "--via", place(a), *(["--dead"] if is_dead else []))
    assert result.exit_code == 0, result.output
    assert f"{place(b)} (bbbbbbbb) is no longer a voter. Voters left: 1\n" in result.output


@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        ("NOQUORUM no majority of the voters answered", "CLUSTER VOTERS RESET FORCE in docs/locks.md"),
        ("ERR the last voter cannot be removed", f"Make another node a voter first: CLUSTER VOTERS ADD {A}"),
        ("ERR not while node x runs an older version", f"send CLUSTER VOTERS REMOVE {B} to another node"),
    ],
)
def test_a_voter_that_cannot_leave_the_list_is_not_removed(pair, bulk_reply, refusal, advice):
    a, b = pair()
    for node in (a, b):
        node.answers["CLUSTER VOTERS"] = voters_reply(B, bulk_reply=bulk_reply)
    a.answers["CLUSTER VOTERS REMOVE"] = f"-{refusal}\r\n".encode()
    result = run("remove-node", place(b))
    assert result.exit_code == 1
    assert f"(bbbbbbbb) is a voter and stays in the cluster: {refusal}. " in result.output
    assert advice in result.output
    assert [b"CLUSTER", b"LEAVING", b"yes"] not in b.requests
    assert [b"CLUSTER", b"FORGET", B.encode()] not in a.requests


def test_remove_node_may_stop_it_too(pair):
    _, b = pair(jobs_of_b=(0,))
    assert run("remove-node", place(b), "--shutdown").exit_code == 0
    assert [b"SHUTDOWN"] in b.requests


def test_a_removed_node_that_has_ended_is_not_started_again(pair, tmp_path):
    """Otherwise the next start would join it again, though it is leaving, and `status` would always miss it."""
    a, b = pair(jobs_of_b=(0,))
    options = StartOptions(("--appendonly", "yes"))
    save_nodes(tmp_path, [LocalNode(a.port, 0, ""), LocalNode(b.port, 0, "")], options)
    output = run("remove-node", place(b), "--shutdown", "--dir", tmp_path).output
    assert output.endswith(f"will not start it again. Its files are in {tmp_path}/node-{b.port}\n")
    kept = StartOptions(options.server, removed=(b.port,))
    assert ([node.port for node in load_nodes(tmp_path)], load_options(tmp_path)) == ([a.port], kept)


def test_stop_removes_the_files_of_nodes_that_were_removed_before(tmp_path):
    """A new cluster on the same ports would begin with them, and look for the nodes of the old one."""
    save_nodes(tmp_path, [LocalNode(1, 2**22 + 1, "")], StartOptions(removed=(2,)))
    (tmp_path / "node-2").mkdir()
    assert run("stop", "--dir", tmp_path, "--remove").exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_leaving_node_that_is_added_is_noted(pair):
    """It takes no jobs, and `status` only shows the word `leaving`."""
    a, b = pair()
    assert "CLUSTER LEAVING no" not in run("add-node", place(b), place(a)).output
    b.answers["CLUSTER LEAVING"] = b"+yes\r\n"
    assert f"-p {b.port} CLUSTER LEAVING no" in run("add-node", place(b), place(a)).output


def test_a_node_that_is_not_empty_in_time_is_not_forgotten(pair):
    a, b = pair(jobs_of_b=(3,))
    result = run("remove-node", place(b), "--timeout", "0")
    assert result.exit_code == 1
    assert "3 jobs still on" in result.output
    assert "blocked by: nobody takes it" in result.output
    assert not any(request[1:2] == [b"FORGET"] for request in a.requests)


@pytest.mark.parametrize(
    ("end", "advice"),
    [
        (
            KeyboardInterrupt(),
            "goes on leaving, and no node has forgotten it. Run this again to finish, or cancel with",
        ),
        (ConnectionLostError("closed by the node", sent=True), "If it is gone for good, use --dead with --via"),
    ],
)
def test_the_end_of_an_interrupted_drain_names_the_next_step(pair, monkeypatch, end, advice):
    def drain(*_):
        raise end

    a, b = pair()
    monkeypatch.setattr(draining, "drain", drain)
    result = run("remove-node", place(b))
    assert (result.exit_code, advice in result.output) == (1, True)
    assert not any(request[1:2] == [b"FORGET"] for request in a.requests)


def test_a_dead_node_is_forgotten_only_with_the_option_dead(pair):
    a, b = pair(flags_of_b="fail")
    b.close()
    assert "use --dead" in run("remove-node", place(b), "--via", place(a)).output
    assert run("remove-node", place(b), "--via", place(a), "--dead").exit_code == 0
    assert [b"CLUSTER", b"FORGET", B.encode()] in a.requests


def test_a_node_that_refuses_the_login_is_not_taken_for_dead(pair):
    """Its copies of jobs would be lost with it."""
    a, b = pair()
    b.answers = {"HELLO": b"-NOAUTH Authentication required.\r\n"}
    result = run("remove-node", place(b), "--via", place(a), "--dead")
    assert (result.exit_code, "requires a login" in result.output, "--dead" in result.output) == (1, True, False)
    assert not any(request[1:2] == [b"FORGET"] for request in a.requests)


def test_a_node_that_refuses_a_command_is_not_taken_for_dead(pair):
    """Its user may lack the right, or CLUSTER has another name there."""
    a, b = pair()
    b.answers = {**b.answers, "CLUSTER NODES": b"-NOPERM this user has no permissions\r\n"}
    for dead in ([], ["--dead"]):
        result = run("remove-node", place(b), "--via", place(a), *dead)
        assert (result.exit_code, "(bbbbbbbb) refuses a command: NOPERM" in result.output) == (1, True)
        assert "gone for good" not in result.output
    assert not any(request[1:2] == [b"FORGET"] for request in a.requests)
    assert " refuses " in run("status", place(a)).output


def test_a_living_node_is_not_taken_for_dead(pair):
    a, b = pair()
    assert run("remove-node", place(b), "--via", place(a), "--dead").exit_code == 1
    assert not any(request[1:2] == [b"FORGET"] for request in a.requests)


@pytest.mark.parametrize("name", ["cccccccc", "127.0.0.1:1"])
def test_a_node_that_the_cluster_does_not_know_is_reported(pair, name):
    a, _ = pair()
    result = run("remove-node", name, "--via", place(a))
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["status", "-p", "7711"], "No such option '-p'. Write a node as HOST:PORT"),
        (["start", "--maxmemory", "2gb"], "Options of the servers follow `--`: start … -- --maxmemory …"),
        (["start", "--tls"], "Put it before the command: disque-cluster --tls … start"),
    ],
)
def test_an_option_in_the_wrong_place_gets_advice(words, advice):
    result = CliRunner().invoke(main, words, prog_name="disque-cluster")
    assert (result.exit_code, advice in result.output) == (2, True), result.output


def test_a_bad_address_is_a_usage_error():
    assert run("status", "a:b").exit_code == 2


def test_a_node_that_does_not_start_is_reported_with_its_output(tmp_path):
    port = random.choice(PORTS)
    result = run("start", "-n", 1, "--port", port, "--dir", tmp_path, "--", "--no-such-directive", "1")
    assert result.exit_code == 1
    assert f"The node on port {port} ended immediately. Its output:" in result.output
    assert load_nodes(tmp_path) == []


def test_a_directory_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").touch()
    result = run("start", "--dir", tmp_path / "file" / "x")
    assert (result.exit_code, result.output.startswith("Error: ")) == (1, True)
    result = run("start", "--dir", "/proc/x")
    told = "Error: Can't make the directory /proc/x: No such file or directory; name another one with --dir\n"
    assert (result.exit_code, result.output) == (1, told)
    result = run("start", "--dir", "/proc")
    told = "Error: /proc can't be written (No such file or directory); name another directory with --dir\n"
    assert (result.exit_code, result.output) == (1, told)


def test_a_word_without_dashes_is_no_option_of_the_servers(tmp_path):
    result = run("start", "--dir", tmp_path, "three")
    assert (result.exit_code, "and not 'three': start … -- --maxmemory 2gb" in result.output) == (2, True)


def test_start_keeps_to_the_size_of_a_stopped_cluster(tmp_path):
    save_nodes(tmp_path, [LocalNode(1, 2**22 + 1, "")])
    result = run("start", "-n", 3, "--dir", tmp_path)
    assert result.exit_code == 1
    assert "has a stopped cluster of 1 node from port 1 on" in result.output


def test_advice_names_a_directory_that_is_not_the_default(tmp_path):
    """Without --dir, `stop --remove` would delete the cluster in the default directory."""
    for directory in (tmp_path / "my nodes", default_directory()):
        directory.mkdir(parents=True)
        save_nodes(directory, [LocalNode(1, 2**22 + 1, "")])
    result = run("start", "-n", 3, "--dir", tmp_path / "my nodes")
    assert f"`disque-cluster stop --remove --dir '{tmp_path}/my nodes'`" in result.output
    assert "`disque-cluster stop --remove`, or" in run("start", "-n", 3).output


def test_stop_may_remove_everything_it_knows(tmp_path):
    save_nodes(tmp_path, [LocalNode(1, 2**22 + 1, "")])
    (tmp_path / "node-1").mkdir()
    (tmp_path / "mine").touch()
    result = run("stop", "--dir", tmp_path, "--remove")
    assert (result.exit_code, result.output) == (0, "The node was not running\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_stop_says_that_no_node_was_running(tmp_path):
    save_nodes(tmp_path, [LocalNode(port, 2**22 + 1, "") for port in (1, 2, 3)])
    assert run("stop", "--dir", tmp_path).output == "None of the 3 nodes was running\n"
    assert cluster_main._stopped_text(2, 3) == "Stopped 2 of 3 nodes; the other node was not running"


def test_a_password_goes_to_every_node(pair):
    a, b = pair()
    run("--password", "pw", "status", place(a))
    assert a.requests[0] == b.requests[0] == [b"AUTH", b"pw"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(shell):
    assert "_DISQUE_CLUSTER_COMPLETE" in run("completion", shell).output


def test_help_shows_every_command():
    assert all(
        name in run("--help").output
        for name in ("start", "stop", "status", "create", "add-node", "remove-node", "check")
    )


def test_stopped_nodes_with_tls_are_not_started_without_it(tmp_path):
    save_nodes(tmp_path, [LocalNode(free_port(), 0, "")], StartOptions(("--tls-cert-file", "/c"), with_tls=True))
    for words in ((), ("--", "--loglevel", "debug")):
        result = run("start", "--dir", str(tmp_path), *words)
        assert (result.exit_code, "accept only TLS: start them with --tls" in result.output) == (1, True)
