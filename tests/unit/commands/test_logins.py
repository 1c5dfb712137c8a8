"""Logins: users, requirepass, guessed passwords, certificates."""

from __future__ import annotations

import pytest

from brokers import ask, make_broker, make_client, pass_time
from disque_py.commands import logins
from disque_py.core.users import DEFAULT, name_of
from disque_py.node import dispatch

WRONG = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"


def with_ann(**settings):
    broker = make_broker(**settings)
    admin = make_client(broker)
    if "requirepass" in settings:
        ask(broker, admin, "AUTH", settings["requirepass"])
    assert ask(broker, admin, "ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all") == b"+OK\r\n"
    return broker


@pytest.mark.parametrize("words", [("AUTH", "ann", "pw"), ("HELLO", 3, "AUTH", "ann", "pw")])
def test_a_user_logs_in(words):
    """Spec US1."""
    broker = with_ann()
    client = make_client(broker)
    assert not ask(broker, client, *words).startswith(b"-")
    assert ask(broker, client, "ACL", "WHOAMI") == b"$3\r\nann\r\n"
    ask(broker, client, "RESET")
    assert name_of(client) == DEFAULT


@pytest.mark.parametrize("words", [("AUTH", "ann", "no"), ("AUTH", "bob", "pw"), ("HELLO", 2, "AUTH", "bob", "pw")])
def test_a_failed_login_ends_an_earlier_one(words):
    broker = with_ann()
    client = make_client(broker)
    ask(broker, client, "AUTH", "ann", "pw")
    assert ask(broker, client, *words) == WRONG
    assert (name_of(client), client.is_authenticated) == (DEFAULT, False)
    assert broker.stats.wrong_passwords == 1


def test_a_disabled_user_is_refused_in_the_same_words():
    broker = with_ann()
    ask(broker, make_client(broker), "ACL", "SETUSER", "ann", "off")
    assert ask(broker, make_client(broker), "AUTH", "ann", "pw") == WRONG


def test_requirepass_is_the_password_of_default():
    """Spec US1."""
    broker = with_ann(requirepass="main")
    client = make_client(broker)
    assert ask(broker, client, "ACL", "WHOAMI").startswith(b"-NOAUTH")
    assert ask(broker, client, "AUTH", "default", "other") == WRONG
    assert ask(broker, client, "AUTH", "main") == b"+OK\r\n"
    assert b"nopass" not in ask(broker, client, "ACL", "GETUSER", "default")
    ask(broker, client, "ACL", "SETUSER", "default", ">second")
    for password in ("main", "second"):
        assert ask(broker, make_client(broker), "AUTH", password) == b"+OK\r\n"
    assert ask(broker, make_client(broker), "AUTH", "ann", "main") == WRONG


def test_default_that_is_off_serves_no_one_without_a_login():
    """Spec US1."""
    broker = with_ann()
    ann = make_client(broker)
    ask(broker, ann, "AUTH", "ann", "pw")
    ask(broker, ann, "ACL", "SETUSER", "default", "off")
    client = make_client(broker)
    assert ask(broker, client, "PING").startswith(b"-NOAUTH")
    assert ask(broker, client, "HELLO").startswith(b"-NOAUTH")
    assert ask(broker, client, "HELLO", 3).startswith(b"-NOAUTH")
    assert ask(broker, client, "AUTH", "any") == b"-ERR invalid password\r\n"
    assert ask(broker, client, "AUTH", "ann", "pw") == b"+OK\r\n"


def test_a_user_without_password_takes_any():
    broker = make_broker()
    ask(broker, make_client(broker), "ACL", "SETUSER", "bob", "on", "nopass")
    assert ask(broker, make_client(broker), "AUTH", "bob", "anything") == b"+OK\r\n"
    assert ask(broker, make_client(broker), "AUTH", "default", "anything") == b"+OK\r\n"


def test_an_address_that_guesses_waits_a_second_for_each_answer():
    """Spec US9."""
    broker = with_ann()
    guesser = make_client(broker, "10.0.0.1:1")
    for _ in range(5):
        assert ask(broker, guesser, "AUTH", "ann", "x") == WRONG
    assert ask(broker, guesser, "AUTH", "ann", "pw") == b""
    assert dispatch.execute(broker, guesser, [[b"PING"]]) == 0
    assert ask(broker, make_client(broker, "10.0.0.2:1"), "AUTH", "ann", "pw") == b"+OK\r\n"
    pass_time(broker, 999)
    dispatch.tick(broker)
    assert guesser.out == []
    pass_time(broker, 1)
    dispatch.tick(broker)
    assert guesser.out == [b"+OK\r\n"]
    assert name_of(guesser) == b"ann"


def test_a_minute_later_the_address_is_served_at_once():
    broker = with_ann()
    guesser = make_client(broker, "[::1]:1")
    for _ in range(5):
        ask(broker, guesser, "HELLO", 2, "AUTH", "ann", "x")
    pass_time(broker, 60_000)
    assert ask(broker, guesser, "AUTH", "ann", "pw") == b"+OK\r\n"


def test_a_client_that_hangs_up_while_it_waits_learns_nothing():
    broker = with_ann()
    guesser = make_client(broker, "10.0.0.1:1")
    for _ in range(5):
        ask(broker, guesser, "AUTH", "ann", "x")
    ask(broker, guesser, "AUTH", "ann", "pw")
    del broker.clients[guesser.id]
    pass_time(broker, 1_000)
    dispatch.tick(broker)
    assert guesser.out == []


def test_a_certificate_names_a_user():
    """Spec US1."""
    broker = with_ann()
    client = make_client(broker)
    logins.enter_by_certificate(broker, client, b"bob")
    assert name_of(client) == DEFAULT
    logins.enter_by_certificate(broker, client, b"ann")
    assert (name_of(client), client.is_authenticated) == (b"ann", True)


def test_connections_of_default_are_counted_as_they_come():
    """Spec US11."""
    broker = with_ann()
    ann = make_client(broker)
    ask(broker, ann, "AUTH", "ann", "pw")
    ask(broker, ann, "ACL", "SETUSER", "default", "limit:connections=2")
    assert not logins.is_full(make_broker())
    assert not logins.is_full(broker)
    make_client(broker)
    assert logins.is_full(broker)
    assert logins.connections_text(broker).startswith("LIMIT the user may have 2")


def test_a_password_of_any_length_is_refused_at_once():
    """A stranger must not make the node hash megabytes. Spec US1."""
    broker = with_ann()
    assert ask(broker, make_client(broker), "AUTH", "ann", b"x" * 5_000) == WRONG
    assert ask(broker, make_client(broker), "AUTH", b"a" * 5_000, "x") == WRONG
    reply = ask(broker, make_client(broker), "ACL", "SETUSER", "ann", b">" + b"x" * 5_000)
    assert reply == b"-ERR Error in ACL SETUSER modifier '>...': A password has at most 4096 bytes\r\n"
