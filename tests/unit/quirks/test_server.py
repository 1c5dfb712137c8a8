"""Defects of the original's server, bus and administrative commands, and behaviour that must stay.

The name of a test has the number of its defect in the list of defects. Its docstring states the rule of this server.

Spec Q34, Q36 and Q41 need sockets, disks and memory. See tests/unit/cluster_bus/test_link.py,
tests/unit/cluster_bus/test_nodes_store.py and tests/integration.
"""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from cluster_bus.bus import LOOPBACK_ADDRESSES, bind_addresses
from cluster_bus.codec import Decoder, FrameError
from cluster_bus.handshake import ACCEPTOR, DIALER, Handshake, Hello
from cluster_bus.messages import REPLJOB
from cluster_bus.node import FAIL
from disque_py.config.settings import DirectiveError, Settings
from disque_py.node import dispatch
from disque_py.resp.requests import RequestParser

SECRET = "open sesame"


@pytest.fixture
def broker():
    return make_broker()


@pytest.fixture
def client(broker):
    return make_client(broker)


# -- robustness and security ---------------------------------------------------------------------------


def test_q28_without_a_secret_the_bus_stays_on_loopback():
    """A program that reaches the bus can delete and inject jobs, so only nodes may reach it."""
    assert bind_addresses((), has_secret=False, protected_mode=True) == list(LOOPBACK_ADDRESSES)
    assert bind_addresses(("10.0.0.1",), has_secret=False, protected_mode=True) == list(LOOPBACK_ADDRESSES)
    assert bind_addresses(("10.0.0.1",), has_secret=True, protected_mode=True) == ["10.0.0.1"]


def test_q28_a_peer_that_does_not_know_the_secret_is_not_read():
    """Both ends prove that they know the secret before anything else. Knowing a node's id is not enough."""
    ours = Handshake(ACCEPTOR, Hello(b"b" * 20, b"run-b---", "", 1, 2), b"n" * 16, SECRET.encode())
    theirs = Handshake(DIALER, Hello(b"a" * 20, b"run-a---", "", 1, 2), b"m" * 16, b"guess")
    [hello] = Decoder(4096, (0, 255)).feed(ours.first_frame())
    [guess] = Decoder(4096, (0, 255)).feed(theirs.first_frame())
    proof = theirs.receive(hello)
    ours.receive(guess)
    assert proof
    [runs] = Decoder(4096, (0, 255)).feed(proof)
    with pytest.raises(FrameError):
        ours.receive(runs)


def test_q28_a_declared_length_is_bounded_and_lengths_within_are_checked():
    """A frame can't make the node reserve memory for bytes that never arrive."""
    with pytest.raises(FrameError):
        Decoder().feed(b"\xff\xff\xff\xff\x01")


def test_q28_a_malformed_job_closes_the_link_and_changes_nothing(broker):
    """Only numbers and bytes get into a job."""
    node = add_node(broker)
    for snapshot in ((b"x",), (b"D-bad", b"", b"q", b"b", b""), 7, None, (b"\0" * 40, b"\0" * 46, 1, 2, 3)):
        with pytest.raises(dispatch.MalformedMessageError):
            dispatch.receive(broker, node, [[REPLJOB, (snapshot, 0)]])
    assert broker.job_count == 0


def test_q33_a_client_that_leaves_during_a_pause_leaves_nothing_behind(broker, client):
    """CLIENT PAUSE stores the moment when the pause ends, not a list of clients."""
    other = make_client(broker)
    ask(broker, client, "CLIENT", "PAUSE", 1_000)
    dispatch.disconnect(broker, other)
    pass_time(broker, 2_000)
    dispatch.tick(broker)
    assert list(broker.clients.values()) == [client]
    assert broker.waits.clients_paused_until_ms < broker.now_ms


@pytest.mark.parametrize("renamed", ["auth", "x-auth"])
def test_q35_passwords_are_in_neither_monitor_nor_slowlog(renamed):
    """AUTH, HELLO … AUTH and CONFIG SET of a secret are shown without the secret, even if the command is renamed."""
    broker = make_broker(requirepass=SECRET, slowlog_log_slower_than=0, rename_command=(("auth", renamed),))
    watcher, client = make_client(broker), make_client(broker)
    ask(broker, watcher, renamed, SECRET)
    ask(broker, watcher, "MONITOR")
    ask(broker, client, renamed, SECRET)
    ask(broker, client, "HELLO", 2, "AUTH", "default", SECRET)
    ask(broker, client, "CONFIG", "SET", "requirepass", SECRET)
    shown = b"".join(watcher.out) + repr(broker.stats.slowlog).encode()
    assert b"(redacted)" in shown
    assert SECRET.encode() not in shown


def test_q35_config_get_hides_secrets(broker, client):
    """A client can see whether a secret is set, but not its value."""
    ask(broker, client, "CONFIG", "SET", "requirepass", SECRET)
    client.is_authenticated = True
    assert ask_parsed(broker, client, "CONFIG", "GET", "requirepass") == [b"requirepass", b"(hidden)"]


# -- interface -----------------------------------------------------------------------------------------


def test_q24_tcp_keepalive_is_a_number_of_seconds_everywhere(broker, client):
    """CONFIG SET and a file accept each value that CONFIG GET shows."""
    assert ask(broker, client, "CONFIG", "SET", "tcp-keepalive", 60) == b"+OK\r\n"
    assert ask_parsed(broker, client, "CONFIG", "GET", "tcp-keepalive") == [b"tcp-keepalive", b"60"]
    settings = Settings()
    settings.set_text("tcp-keepalive", ["60"], "file")
    assert settings.tcp_keepalive == 60


def test_node_timeout_0_is_refused_everywhere():
    """The original's CONFIG SET accepts it."""
    for source in ("set", "file"):
        with pytest.raises(DirectiveError):
            Settings().set_text("cluster-node-timeout", ["0"], source)


def test_a_port_without_room_for_the_bus_is_refused_before_anything_is_written():
    """The original creates its nodes file first."""
    settings = Settings()
    settings.set_text("port", ["60000"], "file")
    assert any("bus port" in line for line in settings.conflicts())


def test_config_get_matches_in_any_case(broker, client):
    """CONFIG SET does the same."""
    assert ask_parsed(broker, client, "CONFIG", "GET", "MAXMEMORY") == ask_parsed(
        broker, client, "CONFIG", "GET", "maxmemory"
    )


@pytest.mark.parametrize("name", ["appendfilename", "cluster-config-file", "syslog-enabled", "syslog-ident"])
def test_config_get_shows_directives_that_the_original_hides(broker, client, name):
    """Every directive can be read."""
    assert len(ask_parsed(broker, client, "CONFIG", "GET", name)) == 2


def test_units_work_in_set_as_in_files(broker, client):
    """This applies to every directive that is a size."""
    assert ask(broker, client, "CONFIG", "SET", "auto-aof-rewrite-min-size", "64mb") == b"+OK\r\n"
    assert ask(broker, client, "CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 512kb 10") == b"+OK\r\n"


def test_a_negative_slowlog_threshold_can_be_set_live(broker, client):
    """A negative threshold turns the slow log off."""
    assert ask(broker, client, "CONFIG", "SET", "slowlog-log-slower-than", -1) == b"+OK\r\n"


def test_inline_requests_may_end_with_a_bare_newline():
    """The next request does not lose its first byte."""
    assert RequestParser(1 << 20).feed(b"PING\nPING\r\nPING\n") == [[b"PING"]] * 3


def test_client_kill_id_without_a_value_is_a_syntax_error(broker, client):
    """The word ID alone is not an address."""
    assert ask(broker, client, "CLIENT", "KILL", "ID").startswith(b"-ERR syntax")


def test_a_second_monitor_is_answered(broker, client):
    """The second MONITOR changes nothing."""
    assert ask(broker, client, "MONITOR") == b"+OK\r\n"
    assert b"+OK\r\n" in ask(broker, client, "MONITOR")
    assert len(broker.monitors) == 1


def test_bgrewriteaof_says_why_it_fails(broker, client):
    """A bare -ERR does not help an operator."""
    broker.host.failures["rewrite_journal"] = PermissionError(13, "Permission denied")
    assert ask(broker, client, "BGREWRITEAOF") == b"-ERR Permission denied\r\n"


def test_cluster_state_is_not_always_ok(broker, client):
    """A node that can't reach most of the other nodes reports it."""
    for number in (2, 3, 4):
        add_node(broker, number, is_linked=False).flags |= FAIL
    broker.cluster.refresh()
    assert b"cluster_state:fail" in ask_parsed(broker, client, "CLUSTER", "INFO")


def test_norepl_gives_the_true_reason(broker, client):
    """A leaving node names `leaving` as the reason, not memory."""
    add_node(broker)
    ask(broker, client, "CLUSTER", "LEAVING", "yes")
    assert b"I'm leaving the cluster" in ask(broker, client, "ADDJOB", "q", "b", 0, "REPLICATE", 2)


def test_total_deliveries_can_be_counted(broker, client):
    """SHOW has the number of attempts, including the first. A hand-over to another node is not an attempt."""
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "b", 0)
    ask(broker, client, "GETJOB", "FROM", "q")
    reply = ask_parsed(broker, client, "SHOW", job_id)
    assert dict(zip(reply[::2], reply[1::2], strict=True))[b"attempt"] == 1


def test_getjob_nohang_of_many_names_leaves_queues_only_for_a_while(broker, client):
    """They are removed like any idle queue. GETJOB creates the queue, as in the original."""
    ask(broker, client, "GETJOB", "NOHANG", "FROM", "one", "two")
    for _ in range(40):
        pass_time(broker, 10_000)
        dispatch.tick(broker)
    assert broker.queues == {}


def test_keep_negative_cursors_wrap(broker, client):
    """-1 is a valid cursor, as in the original."""
    assert not ask(broker, client, "QSCAN", -1).startswith(b"-")


def test_keep_the_reply_of_config_get_for_no_match(broker, client):
    """The reply is an empty array."""
    assert ask(broker, client, "CONFIG", "GET", "nothing-like-it") == b"*0\r\n"
