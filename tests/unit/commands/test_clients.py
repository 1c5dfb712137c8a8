"""CLIENT."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, make_broker, make_client, pass_time, port_of
from disque_py.commands.clients import runs_in_pause


def test_list_has_the_original_fields_in_their_order():
    broker = make_broker()
    client = make_client(broker)
    pass_time(broker, 2500)
    line = ask_parsed(broker, client, "CLIENT", "LIST").decode()
    assert line == (
        "id=1 addr=127.0.0.1:50001 fd=9 name= age=2 idle=2 flags=N qbuf=0 qbuf-free=0 obl=0 oll=0 omem=0 events=r"
        " cmd=client user=default\n"
    )


def test_list_shows_what_each_client_does():
    broker = make_broker()
    client, blocked, slow = (make_client(broker, f"127.0.0.1:{port}") for port in (1, 2, 3))
    ask(broker, blocked, "GETJOB", "FROM", "q")
    ask(broker, slow, "MONITOR")
    slow.is_unix = True
    port_of(slow).output, port_of(slow).input = 7, 5
    one, two, three = ask_parsed(broker, client, "CLIENT", "LIST").decode().splitlines()
    assert "flags=N" in one
    assert "flags=b" in two
    assert two.endswith("cmd=getjob user=default")
    assert "flags=OU qbuf=5" in three
    assert "omem=7 events=rw" in three


def test_a_new_client_has_run_nothing():
    broker = make_broker()
    client = make_client(broker)
    make_client(broker, "127.0.0.1:2")
    assert ask_parsed(broker, client, "CLIENT", "LIST").decode().endswith("cmd=NULL user=default\n")


def test_id_and_info_are_the_callers():
    broker = make_broker()
    make_client(broker)
    client = make_client(broker, "127.0.0.1:2")
    assert ask_parsed(broker, client, "CLIENT", "ID") == 2
    assert ask_parsed(broker, client, "CLIENT", "INFO").startswith(b"id=2 addr=127.0.0.1:2 ")


def test_client_names_can_be_set_and_read():
    broker = make_broker()
    client = make_client(broker)
    assert ask_parsed(broker, client, "CLIENT", "GETNAME") is None
    assert ask(broker, client, "CLIENT", "SETNAME", "worker-1") == b"+OK\r\n"
    assert ask_parsed(broker, client, "CLIENT", "GETNAME") == b"worker-1"
    assert ask(broker, client, "CLIENT", "SETNAME", "a b").startswith(b"-ERR Client names cannot contain spaces")
    assert ask(broker, client, "CLIENT", "SETNAME", "") == b"+OK\r\n"
    assert ask_parsed(broker, client, "CLIENT", "GETNAME") is None


def test_kill_by_address_closes_at_once():
    broker = make_broker()
    client, other = make_client(broker), make_client(broker, "127.0.0.1:2")
    assert ask(broker, client, "CLIENT", "KILL", "127.0.0.1:2") == b"+OK\r\n"
    assert port_of(other).closed == [False]
    assert ask(broker, client, "CLIENT", "KILL", "127.0.0.1:3") == b"-ERR No such client\r\n"


def test_a_client_that_kills_itself_gets_the_reply_first():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "CLIENT", "KILL", "127.0.0.1:50001") == b"+OK\r\n"
    assert client.close_asked
    assert port_of(client).closed == []


def test_kill_filters_fit_together_and_spare_the_caller():
    broker = make_broker()
    client, second, third = (make_client(broker, f"127.0.0.1:{port}") for port in (1, 2, 3))
    assert ask_parsed(broker, client, "CLIENT", "KILL", "ID", 2, "ADDR", "127.0.0.1:3") == 0
    assert ask_parsed(broker, client, "CLIENT", "KILL", "ID", 2, "TYPE", "normal") == 1
    assert ask_parsed(broker, client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no") == 3
    assert (port_of(second).closed, port_of(third).closed, client.close_asked) == ([False, False], [False], True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), b"-ERR syntax error"),
        (("ID",), b"-ERR syntax error"),
        (("ID", "x"), b"-ERR syntax error"),
        (("ID", "0"), b"-ERR syntax error"),
        (("ID", "1", "ADDR"), b"-ERR syntax error"),
        (("SKIPME", "perhaps"), b"-ERR syntax error"),
        (("TYPE", "master"), b"-ERR Unknown client type 'master'"),
    ],
)
def test_client_kill_refuses_these_requests(words, text):
    broker = make_broker()
    assert ask(broker, make_client(broker), "CLIENT", "KILL", *words) == text + b"\r\n"


def test_reply_off_suppresses_all_and_on_answers():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "CLIENT", "REPLY", "off") == b""
    assert ask(broker, client, "PING") == b""
    assert ask(broker, client, "NONSENSE") == b""
    assert ask(broker, client, "CLIENT", "REPLY", "skip") == b""
    assert ask(broker, client, "PING") == b""
    assert ask(broker, client, "CLIENT", "REPLY", "on") == b"+OK\r\n"
    assert ask(broker, client, "PING") == b"+PONG\r\n"


def test_reply_skip_suppresses_one():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "CLIENT", "REPLY", "skip") == b""
    assert ask(broker, client, "PING") == b""
    assert ask(broker, client, "PING") == b"+PONG\r\n"
    assert ask(broker, client, "CLIENT", "REPLY", "maybe") == b"-ERR syntax error\r\n"


def test_a_shorter_pause_never_replaces_a_longer_one():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "CLIENT", "PAUSE", 5000) == b"+OK\r\n"
    assert ask(broker, client, "CLIENT", "PAUSE", 100) == b"+OK\r\n"
    assert broker.waits.clients_paused_until_ms == broker.now_ms + 5000
    assert ask(broker, client, "CLIENT", "PAUSE", -1) == b"-ERR timeout is negative\r\n"
    assert ask(broker, client, "CLIENT", "PAUSE", "x") == b"-ERR timeout is not an integer or out of range\r\n"


def test_unpause_ends_any_pause_and_wakes_all_clients():
    broker = make_broker()
    client, other = make_client(broker), make_client(broker)
    ask(broker, other, "CLIENT", "PAUSE", 2**62)
    broker.outbox.clients.clear()
    assert ask(broker, client, "CLIENT", "UNPAUSE") == b"+OK\r\n"
    assert broker.waits.clients_paused_until_ms == 0
    assert set(broker.outbox.clients) == {client, other}


def test_a_pause_lets_unpause_and_the_login_through():
    broker = make_broker(rename_command=(("client", "people"),))
    for words in ([b"People", b"unpause"], [b"AUTH", b"x"], [b"hello"]):
        assert runs_in_pause(broker, words)
    for words in ([b"CLIENT", b"UNPAUSE"], [b"people", b"LIST"], [b"PING"], [b"people"]):
        assert not runs_in_pause(broker, words)


def test_commands_that_generic_clients_send_when_they_connect():
    broker = make_broker()
    client = make_client(broker)
    for words in (("SETINFO", "LIB-NAME", "redis-py"), ("NO-EVICT", "on"), ("NO-TOUCH", "off"), ("TRACKING", "OFF")):
        assert ask(broker, client, "CLIENT", *words) == b"+OK\r\n"
    assert ask(broker, client, "CLIENT", "NO-EVICT", "perhaps") == b"-ERR syntax error\r\n"


@pytest.mark.parametrize("words", [("TRACKING", "on"), ("LIST", "x"), ("SETNAME",), ("KILLALL",)])
def test_other_forms_are_told_the_known_ones(words):
    broker = make_broker()
    reply = ask(broker, make_client(broker), "CLIENT", *words)
    assert reply == (b"-ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)\r\n")
