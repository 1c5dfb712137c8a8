"""AUTH, PING, ECHO, SELECT, RESET."""

from __future__ import annotations

import pytest

from brokers import ask, make_broker, make_client


def test_a_password_opens_the_connection_and_a_wrong_one_closes_it_again():
    broker = make_broker(requirepass="s3cret")
    client = make_client(broker)
    assert ask(broker, client, "PING") == b"-NOAUTH Authentication required.\r\n"
    assert ask(broker, client, "AUTH", "s3cret") == b"+OK\r\n"
    assert ask(broker, client, "PING") == b"+PONG\r\n"
    assert ask(broker, client, "AUTH", "s3cre") == b"-ERR invalid password\r\n"
    assert ask(broker, client, "PING") == b"-NOAUTH Authentication required.\r\n"


def test_a_login_without_a_name_is_one_of_default():
    broker = make_broker(requirepass="pw")
    client = make_client(broker)
    assert ask(broker, client, "AUTH", "root", "pw").startswith(b"-WRONGPASS ")
    assert ask(broker, client, "AUTH", "default", "pw") == b"+OK\r\n"
    assert ask(broker, client, "AUTH", "a", "b", "c").startswith(b"-ERR wrong number of arguments for 'auth'")


def test_a_password_where_none_is_set_is_an_error():
    broker = make_broker()
    assert ask(broker, make_client(broker), "AUTH", "x") == b"-ERR Client sent AUTH, but no password is set\r\n"


def test_passwords_need_not_be_text():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "CONFIG", "SET", "requirepass", b"\xff\xe9")
    assert ask(broker, client, "AUTH", b"\xff\xe9") == b"+OK\r\n"


def test_a_new_password_locks_out_clients_that_never_logged_in():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "CONFIG", "SET", "requirepass", "new") == b"+OK\r\n"
    assert ask(broker, client, "PING") == b"-NOAUTH Authentication required.\r\n"


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (("PING",), b"+PONG\r\n"),
        (("ping", "hi"), b"$2\r\nhi\r\n"),
        (("PING", "a", "b"), b"-ERR wrong number of arguments for 'ping' command\r\n"),
        (("ECHO", b"\x00\xff"), b"$2\r\n\x00\xff\r\n"),
        (("SELECT", "0"), b"+OK\r\n"),
        (("SELECT", "1"), b"-ERR DB index is out of range\r\n"),
        (("SELECT", "x"), b"-ERR invalid DB index\r\n"),
    ],
)
def test_simple_commands_are_answered(words, reply):
    broker = make_broker()
    assert ask(broker, make_client(broker), *words) == reply


def test_reset_brings_back_the_state_of_a_new_connection():
    broker = make_broker(requirepass="pw")
    client = make_client(broker)
    ask(broker, client, "HELLO", 3, "AUTH", "default", "pw", "SETNAME", "x")
    ask(broker, client, "MONITOR")
    ask(broker, client, "RESET")
    assert (client.protocol, client.name, client.is_monitor, client.is_authenticated) == (2, b"", False, False)
    assert broker.monitors == {}
    assert ask(broker, client, "PING") == b"-NOAUTH Authentication required.\r\n"
