"""view.py: the nodes' combined view of the cluster, and their disagreements."""

from __future__ import annotations

import pytest

from disque_py.cli.address import Target
from disque_py.cli.cluster.view import look_around, meet, rows_of_table, wait_until_whole
from disque_py.client import Address, results

A, B, C = ("a" * 40, "b" * 40, "c" * 40)


@pytest.fixture
def cluster_of(scripted, bulk_reply):
    """Makes scripted nodes that know each other: name -> node. All nodes report the same `flags` for a node."""

    def make(*names, flags=None, unknown=(), unlinked=(), gone=()):
        flags = flags or {}
        nodes = {name: scripted({}) for name in names}
        for name, node in nodes.items():
            lines = []
            for other, where in nodes.items():
                if (name, other) in unknown:
                    continue
                words = ["myself"] if other == name else [flags.get(other, "noflags")]
                link = "disconnected" if (name, other) in unlinked else "connected"
                lines.append(f"{other} 127.0.0.1:{where.port} {','.join(words)} 0 0 {link}\n")
            hello = b"".join(
                b"*4\r\n" + b"".join(map(bulk_reply, (other, "127.0.0.1", str(where.port), "1")))
                for other, where in nodes.items()
            )
            leaving = b"+yes\r\n" if flags.get(name) == "leaving" else b"+no\r\n"
            node.answers = {
                "CLUSTER NODES": bulk_reply("".join(lines)),
                "CLUSTER INFO": bulk_reply(f"cluster_size:{len(lines)}\r\n"),
                "CLUSTER LEAVING": leaving,
                "CLUSTER MEET": b"+OK\r\n",
                "INFO": bulk_reply("registered_jobs:3\r\nregistered_queues:2\r\nused_memory:1024\r\n"),
                "HELLO": b"*%d\r\n:1\r\n" % (2 + len(nodes)) + bulk_reply(name) + hello,
            }
        for name in gone:
            nodes[name].close()
        return nodes

    return make


def target(node):
    return Target(Address("127.0.0.1", node.port))


def test_a_table_is_read_with_flags_and_missing_addresses():
    rows = rows_of_table(
        results.cluster_nodes(
            f"{A} :7711 myself 0 0 connected\n{B} ::1:7712 fail?,leaving 1 2 disconnected\n\n".encode()
        )
    )
    assert rows[0].is_myself
    assert rows[0].address is None
    assert rows[1].address == Address("::1", 7712)
    assert rows[1].bad_flags == ["fail?"]
    assert not rows[1].is_linked


def test_one_node_leads_to_all(cluster_of):
    nodes = cluster_of(A, B, C)
    cluster = look_around([target(nodes[A])])
    assert [node.id for node in cluster.nodes] == [A, B, C]
    assert cluster.problems() == []
    assert [cluster.state_of(node) for node in cluster.nodes] == ["ok"] * 3
    assert cluster.priority_of(cluster.nodes[0]) == "1"


def test_a_node_that_is_named_twice_counts_once(cluster_of):
    nodes = cluster_of(A, B)
    elsewhere = Target(Address("localhost", nodes[A].port))
    assert len(look_around([target(nodes[A]), elsewhere]).nodes) == 2


def test_a_node_that_does_not_answer_keeps_its_name_and_the_reason(cluster_of):
    nodes = cluster_of(A, B, flags={B: "fail"}, gone=(B,))
    cluster = look_around([target(nodes[A])])
    dead = cluster.nodes[1]
    assert dead.id == B
    assert cluster.state_of(dead) == "unreachable,fail"
    assert any("does not answer" in problem for problem in cluster.problems())
    assert any("as fail" in problem for problem in cluster.problems())


def test_a_node_that_does_not_know_another_is_a_problem(cluster_of):
    nodes = cluster_of(A, B, C, unknown={(B, C)})
    problems = look_around([target(nodes[A])]).problems()
    assert any("does not know" in problem for problem in problems)
    assert any("counts 2 nodes, but 3 were found" in problem for problem in problems)


def test_a_node_that_has_lost_its_table_gets_advice(cluster_of):
    nodes = cluster_of(A, B, unknown={(B, A)})
    problems = look_around([target(nodes[A]), target(nodes[B])]).problems()
    advice = (
        f"CLUSTER MEET 127.0.0.1 {nodes[A].port} on 127.0.0.1:{nodes[B].port} joins them,"
        f" CLUSTER FORGET {B} on 127.0.0.1:{nodes[A].port} if it was forgotten on purpose"
    )
    assert any(problem.endswith(advice) for problem in problems)


def test_an_address_at_which_another_node_answers_gets_advice(cluster_of):
    nodes = cluster_of(A, B, flags={B: "noaddr"})
    problems = look_around([target(nodes[A])]).problems()
    assert any(f"CLUSTER FORGET {B} to every node" in problem for problem in problems)


def test_a_missing_link_is_a_problem(cluster_of):
    nodes = cluster_of(A, B, unlinked={(A, B)})
    (problem,) = look_around([target(nodes[A])]).problems()
    assert "has no link to" in problem


def test_leaving_is_a_state_and_not_a_problem(cluster_of):
    nodes = cluster_of(A, B, flags={B: "leaving"})
    cluster = look_around([target(nodes[A])])
    assert cluster.problems() == []
    assert cluster.state_of(cluster.nodes[1]) == "leaving"


def test_a_node_that_refuses_is_reported_with_its_error(scripted):
    node = scripted({"HELLO": b"-NOAUTH Authentication required.\r\n"})
    cluster = look_around([target(node)])
    assert "requires a login: NOAUTH Authentication required. Pass the password with -a" in cluster.nodes[0].error


def test_a_wrong_password_is_not_reported_as_a_missing_one(scripted):
    node = scripted({"HELLO": b"-NOAUTH Authentication required.\r\n", "AUTH": b"-ERR invalid password\r\n"})
    cluster = look_around([Target(Address("127.0.0.1", node.port), password="wrong")])
    advice = "refused the login: ERR invalid password. Check -a, --user and DISQUECLI_AUTH"
    assert cluster.problems() == [f"127.0.0.1:{node.port} {advice}"]
    assert cluster.state_of(cluster.nodes[0]) == "no login"


def test_meet_sends_the_bus_port_if_it_is_known(cluster_of):
    nodes = cluster_of(A, B)
    other = Address("127.0.0.1", nodes[B].port)
    meet(target(nodes[A]), other)
    meet(target(nodes[A]), other, 9000)
    place = [b"127.0.0.1", str(nodes[B].port).encode()]
    met = [request[2:] for request in nodes[A].requests if b"MEET" in request]
    assert met == [place, [*place, b"9000"]]


def test_a_node_with_another_password_is_met(cluster_of):
    """Nodes need the cluster's secret to meet. Passwords are for clients."""
    nodes = cluster_of(A, B)
    nodes[B].answers = {"HELLO": b"-NOAUTH Authentication required.\r\n"}
    meet(target(nodes[A]), Address("127.0.0.1", nodes[B].port))
    assert any(b"MEET" in request for request in nodes[A].requests)


def test_a_node_without_a_password_serves_although_one_is_given(cluster_of):
    nodes = cluster_of(A)
    nodes[A].answers["AUTH"] = b"-ERR Client sent AUTH, but no password is set\r\n"
    with_password = Target(Address("127.0.0.1", nodes[A].port), password="pw")
    assert look_around([with_password]).nodes[0].error == ""


def test_a_node_that_may_speak_tls_gets_advice(scripted):
    node = scripted({"HELLO": lambda words: None})
    assert look_around([target(node)]).nodes[0].error.endswith("(if it speaks TLS, use --tls)")


def test_waiting_ends_with_the_last_check(cluster_of):
    nodes = cluster_of(A, B, unlinked={(A, B)})
    assert wait_until_whole([target(nodes[A])], 0.0).problems()


def test_waiting_ends_at_a_refused_login(cluster_of):
    """Time does not give the node another password."""
    nodes = cluster_of(A, B)
    nodes[B].answers = {"HELLO": b"-NOAUTH Authentication required.\r\n"}
    (problem,) = wait_until_whole([target(nodes[A]), target(nodes[B])], 60.0).problems()
    assert "requires a login" in problem
