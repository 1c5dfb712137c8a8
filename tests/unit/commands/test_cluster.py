"""CLUSTER."""

from __future__ import annotations

import pytest

from brokers import ME, add_node, ask, ask_parsed, fields_of, host_of, make_broker, make_client
from cluster_bus.node import FAIL, HANDSHAKE, PFAIL


def told(broker, *words):
    return ask(broker, make_client(broker), "CLUSTER", *words)


def test_nodes_has_six_fields_per_line():
    broker = make_broker()
    add_node(broker, 2, is_linked=False)
    me, other = ask_parsed(broker, make_client(broker), "CLUSTER", "NODES").decode().splitlines()
    assert me == f"{ME.hex()} 127.0.0.1:7711 myself 0 0 connected"
    words = other.split(" ")
    assert (words[0], words[1], words[2], words[5]) == ("02" * 20, "127.0.0.2:7711", "noflags", "disconnected")
    assert len(words) == 6


def test_extended_nodes_append_pairs():
    broker = make_broker()
    text = ask_parsed(broker, make_client(broker), "CLUSTER", "NODES", "EXTENDED").decode()
    six = f"{ME.hex()} 127.0.0.1:7711 myself 0 0 connected"
    assert text == f"{six} bus-port=17711 host=127.0.0.1 version=0.1.0 datacenter= zone=\n"


def test_myid_is_forty_hex_characters():
    assert told(make_broker(), "MYID") == b"$40\r\n%b\r\n" % ME.hex().encode()


def test_info_counts_nodes():
    broker = make_broker()
    add_node(broker, 2)
    add_node(broker, 3, is_linked=False).flags |= PFAIL
    broker.cluster.refresh()
    broker.membership.meet("10.0.0.9", 7711)
    fields = fields_of(ask_parsed(broker, make_client(broker), "CLUSTER", "INFO"))
    assert fields["cluster_known_nodes"] == "4"
    assert (fields["cluster_reachable_nodes"], fields["cluster_size"]) == ("1", "3")
    assert (fields["cluster_state"], fields["cluster_leaving"]) == ("ok", "no")


def test_info_counts_nodes_that_have_no_room_for_copies():
    broker = make_broker()
    add_node(broker, 2).is_disk_failing = True
    add_node(broker, 3).memory_level = 2
    add_node(broker, 4)
    broker.cluster.refresh()
    fields = fields_of(ask_parsed(broker, make_client(broker), "CLUSTER", "INFO"))
    assert fields["cluster_full_nodes"] == "2"


def test_the_state_is_fail_when_most_nodes_are_lost():
    """Half of the nodes are not most: in a cluster of two, no node is a minority. Handshakes don't count."""
    broker = make_broker()
    second = add_node(broker, 2)
    second.flags |= FAIL
    broker.membership.meet("10.0.0.9", 7711)
    assert b"cluster_state:ok" in told(broker, "INFO")
    add_node(broker, 3).flags |= PFAIL
    assert b"cluster_state:fail" in told(broker, "INFO")


def test_meet_starts_a_handshake_and_a_second_one_nothing():
    broker = make_broker()
    assert told(broker, "MEET", "10.0.0.9", 7711) == b"+OK\r\n"
    assert told(broker, "MEET", "10.0.0.9", 7711) == b"+OK\r\n"
    (node,) = [node for node in broker.cluster.nodes.values() if node.flags & HANDSHAKE]
    assert (node.host, node.port, node.bus_port) == ("10.0.0.9", 7711, 17711)


@pytest.mark.parametrize("host", ["::1", "node-1", "node_2.example.com", "fe80::1%eth0"])
def test_meet_takes_addresses_and_names(host):
    broker = make_broker()
    assert told(broker, "MEET", host, 7711, 8000) == b"+OK\r\n"
    assert [node.bus_port for node in broker.cluster.nodes.values() if node.host == host] == [8000]


PORTS = b". Ports are 1 to 65535. Above port 55535 a bus port must follow"
HOST = b". Give an IP address or a host name"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("10.0.0.9", "x"), b"-ERR Invalid TCP port specified: x"),
        (("10.0.0.9", "7711", "y"), b"-ERR Invalid TCP port specified: y"),
        (("10.0.0.9", "0"), b"-ERR Invalid node address specified: 10.0.0.9:0" + PORTS),
        (("10.0.0.9", "55536"), b"-ERR Invalid node address specified: 10.0.0.9:55536" + PORTS),
        (("10.0.0.9", "7711", "65536"), b"-ERR Invalid node address specified: 10.0.0.9:7711 65536" + PORTS),
        (("999.1.2.3", "7711"), b"-ERR Invalid node address specified: 999.1.2.3:7711" + HOST),
        (("a b", "7711"), b"-ERR Invalid node address specified: a b:7711" + HOST),
        (("", "7711"), b"-ERR Invalid node address specified: :7711" + HOST),
    ],
)
def test_cluster_meet_refuses_these_requests(words, text):
    broker = make_broker()
    assert told(broker, "MEET", *words) == text + b"\r\n"
    assert len(broker.cluster.nodes) == 1


def test_a_port_beyond_55535_can_be_met_with_its_bus_port():
    assert told(make_broker(), "MEET", "10.0.0.9", 60000, 61000) == b"+OK\r\n"


def test_saveconfig_waits_for_the_file():
    broker = make_broker()
    assert told(broker, "SAVECONFIG") == b"+OK\r\n"
    host_of(broker).failures["save_nodes"] = OSError(28, "No space left on device")
    assert told(broker, "SAVECONFIG") == b"-ERR error saving the cluster node config: No space left on device\r\n"


@pytest.mark.parametrize(
    "words",
    [("RESET", "HARD"), ("RESET", "SOFT"), ("MEET", "10.0.0.9", 7711), ("FORGET", "02" * 20), ("LEAVING", "yes")],
)
def test_a_change_of_membership_is_answered_when_the_nodes_file_is_on_disk(words):
    """Spec N6. The change itself takes effect immediately."""
    broker = make_broker()
    add_node(broker, 2)
    host_of(broker).is_slow = True
    client = make_client(broker)
    assert ask(broker, client, "CLUSTER", *words) == b""
    host_of(broker).writing.pop()()
    assert client.out == [b"+OK\r\n"]


def test_a_hard_reset_takes_another_id_before_its_answer():
    broker = make_broker()
    host_of(broker).is_slow = True
    ask(broker, make_client(broker), "CLUSTER", "RESET", "HARD")
    assert broker.me.id != ME


def test_cluster_forget_removes_a_node():
    broker = make_broker()
    add_node(broker, 2)
    assert told(broker, "FORGET", "02" * 20) == b"+OK\r\n"
    assert broker.cluster.size == 1
    assert told(broker, "FORGET", "02" * 20) == b"-ERR Unknown node " + b"02" * 20 + b"\r\n"
    assert told(broker, "FORGET", "02") == b"-ERR Invalid node identifier\r\n"
    assert told(broker, "FORGET", ME.hex()) == b"-ERR I tried hard but I can't forget myself...\r\n"


def test_reset_forgets_jobs_queues_and_nodes_but_not_the_id_of_the_node():
    broker = make_broker()
    client = make_client(broker)
    add_node(broker, 2)
    ask(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    assert ask(broker, client, "CLUSTER", "RESET") == b"+OK\r\n"
    assert (broker.job_count, broker.queues, broker.cluster.size, broker.me.id) == (0, {}, 1, ME)
    assert told(broker, "RESET", "gently") == b"-ERR syntax error\r\n"


def test_after_a_hard_reset_jobs_carry_the_new_id():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "CLUSTER", "RESET", "HARD") == b"+OK\r\n"
    name = ask_parsed(broker, client, "CLUSTER", "MYID")
    assert name != ME.hex().encode()
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0)
    assert job_id[2:10] == name[:8]
    assert ask_parsed(broker, client, "SHOW", job_id)[21] == [name]


def test_leaving_sends_waiting_clients_away():
    broker = make_broker()
    client, waiting = make_client(broker), make_client(broker, "127.0.0.1:2")
    assert ask(broker, client, "CLUSTER", "LEAVING") == b"+no\r\n"
    ask(broker, waiting, "GETJOB", "FROM", "q")
    assert ask(broker, client, "CLUSTER", "LEAVING", "YES") == b"+OK\r\n"
    assert waiting.out[0].startswith(b"-LEAVING ")
    assert ask(broker, client, "CLUSTER", "LEAVING") == b"+yes\r\n"
    assert ask(broker, client, "CLUSTER", "LEAVING", "no") == b"+OK\r\n"
    assert (broker.drain, broker.is_leaving) == (None, False)


def test_a_leaving_node_shows_its_remaining_jobs_and_the_reasons():
    from disque_py.core import leaving

    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "ADDJOB", "q", "body", 0)
    ask(broker, client, "CLUSTER", "LEAVING", "yes")
    leaving.step(broker)
    fields = fields_of(ask_parsed(broker, client, "CLUSTER", "INFO"))
    assert (fields["cluster_leaving"], fields["cluster_leaving_remaining"]) == ("yes", "1")
    assert fields["cluster_leaving_blocked_by"] == "no other node is usable"


@pytest.mark.parametrize("words", [("SLOTS",), ("MEET", "h"), ("MYID", "x"), ("NODES", "x"), ("LEAVING", "a", "b")])
def test_other_forms_are_refused(words):
    assert told(make_broker(), *words) == b"-ERR Wrong CLUSTER subcommand or number of arguments\r\n"


def test_cluster_leaving_with_another_word_is_refused():
    reply = told(make_broker(), "LEAVING", "perhaps")
    assert reply == b"-ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'\r\n"
