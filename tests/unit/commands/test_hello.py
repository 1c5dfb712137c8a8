"""HELLO: the nodes of the cluster, and the protocol version."""

from __future__ import annotations

from brokers import ME, add_node, ask, ask_parsed, make_broker, make_client
from cluster_bus.node import FAIL, LEAVING, PFAIL


def test_hello_lists_every_node_with_a_priority():
    broker = make_broker()
    add_node(broker, 2)
    version, me, *nodes = ask_parsed(broker, make_client(broker), "HELLO")
    assert (version, me) == (1, ME.hex().encode())
    assert nodes == [[me, b"127.0.0.1", b"7711", b"1"], [b"02" * 20, b"127.0.0.2", b"7711", b"1"]]


def test_a_later_reason_overrides_an_earlier_one():
    """The priority is 5 without a link, 10 if suspected, 100 if failed or leaving. The node itself needs no link."""
    broker = make_broker()
    node = add_node(broker, 2, is_linked=False)

    def priority():
        return ask_parsed(broker, make_client(broker), "HELLO")[3][3]

    assert priority() == b"5"
    node.flags |= PFAIL
    assert priority() == b"10"
    node.flags |= FAIL
    assert priority() == b"100"
    node.flags = LEAVING
    assert priority() == b"100"


def test_a_leaving_node_says_so_of_itself():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "CLUSTER", "LEAVING", "yes")
    assert ask_parsed(broker, client, "HELLO")[2][3] == b"100"


def test_a_handshake_is_listed_too():
    broker = make_broker()
    broker.membership.meet("10.0.0.9", 7711)
    assert ask_parsed(broker, make_client(broker), "HELLO")[3][1:] == [b"10.0.0.9", b"7711", b"5"]


def test_extended_names_the_place_of_each_node():
    """Spec ZN1."""
    broker = make_broker(datacenter="east", zone="a b")
    entry = ask_parsed(broker, make_client(broker), "HELLO", "EXTENDED")[2]
    assert entry[-4:] == [b"datacenter", b"east", b"zone", b"a b"]


def test_extended_appends_pairs_to_the_same_four():
    """Spec R5."""
    broker = make_broker()
    add_node(broker, 2)
    entry = ask_parsed(broker, make_client(broker), "HELLO", "extended")[3]
    assert entry[:4] == [b"02" * 20, b"127.0.0.2", b"7711", b"1"]
    pairs = dict(zip(entry[4::2], entry[5::2], strict=True))
    assert pairs == {
        b"bus-port": b"17711",
        b"host": b"127.0.0.2",
        b"version": b"0.1.0",
        b"datacenter": b"",
        b"zone": b"",
    }


def test_hello_with_a_number_agrees_on_the_protocol():
    broker = make_broker()
    client = make_client(broker)
    reply = ask_parsed(broker, client, "HELLO", 3)
    assert (reply[b"server"], reply[b"proto"], reply[b"modules"]) == (b"disque", 3, [])
    assert client.protocol == 3
    assert ask(broker, client, "CLIENT", "GETNAME") == b"_\r\n"
    assert ask_parsed(broker, client, "HELLO", 2)[:2] == [b"server", b"disque"]
    assert client.protocol == 2


def test_bare_hello_is_the_same_array_after_hello_3():
    broker = make_broker()
    client = make_client(broker)
    before = ask(broker, client, "HELLO")
    ask(broker, client, "HELLO", 3)
    assert ask(broker, client, "HELLO") == before


def test_hello_logs_in_and_names_in_one_step():
    broker = make_broker(requirepass="pw")
    client = make_client(broker)
    ask(broker, client, "HELLO", "2", "SETNAME", "worker", "AUTH", "default", "pw")
    assert (client.is_authenticated, client.name) == (True, b"worker")


def test_before_the_login_hello_needs_auth():
    """Spec R7."""
    broker = make_broker(requirepass="pw")
    client = make_client(broker)
    for words in ((), ("EXTENDED",), (3,)):
        assert ask(broker, client, "HELLO", *words).startswith(b"-NOAUTH Authentication required.")
    assert client.protocol == 2


def test_a_refused_hello_changes_nothing():
    broker = make_broker(requirepass="pw")
    client = make_client(broker)
    assert ask(broker, client, "HELLO", 3, "AUTH", "default", "no").startswith(b"-WRONGPASS ")
    assert ask(broker, client, "HELLO", 3, "AUTH", "root", "pw").startswith(b"-WRONGPASS ")
    assert ask(broker, client, "HELLO", 3, "AUTH", "default", "pw", "SETNAME", "a b").startswith(b"-ERR Client names")
    assert ask(broker, client, "HELLO", 3, "AUTH", "default", "pw", "LIB").startswith(b"-ERR Syntax error in HELLO")
    assert (client.protocol, client.is_authenticated, client.name) == (2, False, b"")


def test_versions_that_do_not_exist():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "HELLO", 4) == b"-NOPROTO unsupported protocol version\r\n"
    assert ask(broker, client, "HELLO", "x") == b"-ERR Protocol version is not an integer or out of range\r\n"
    assert ask(broker, client, "HELLO", "EXTENDED", "x").startswith(b"-ERR wrong number of arguments for 'hello'")


def test_hello_names_the_port_of_the_kind_that_asks():
    """So a client that uses TLS connects to other nodes over TLS. A node without a TLS port names its only port."""
    broker = make_broker()
    add_node(broker, 2).tls_port = 7801
    broker.me.tls_port = 7800
    add_node(broker, 3)
    client = make_client(broker)
    assert [node[2] for node in ask_parsed(broker, client, "HELLO")[2:]] == [b"7711"] * 3
    lines = ask(broker, client, "CLUSTER", "NODES")
    client.is_tls = True
    assert [node[2] for node in ask_parsed(broker, client, "HELLO")[2:]] == [b"7800", b"7801", b"7711"]
    assert ask(broker, client, "CLUSTER", "NODES") == lines
