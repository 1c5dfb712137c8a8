"""ACL: the replies of Redis."""

from __future__ import annotations

from hashlib import sha256

import pytest

from brokers import ask, ask_parsed, make_broker, make_client, pass_time

HASH = sha256(b"pw").hexdigest()


def test_a_node_begins_with_one_user():
    broker = make_broker()
    client = make_client(broker)
    assert ask_parsed(broker, client, "ACL", "LIST") == [b"user default on nopass ~* +@all"]
    assert ask_parsed(broker, client, "ACL", "USERS") == [b"default"]
    assert ask_parsed(broker, client, "ACL", "WHOAMI") == b"default"


def test_getuser_describes_a_user_as_redis_does():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "ACL", "SETUSER", "ann", "on", ">pw", "~a*", "~b", "+@read", "-qlen", "limit:queues=5")
    reply = ask_parsed(broker, client, "ACL", "GETUSER", "ann")
    assert dict(zip(reply[::2], reply[1::2], strict=True)) == {
        b"flags": [b"on"],
        b"passwords": [HASH.encode()],
        b"commands": b"-@all +@read -qlen",
        b"keys": b"~a* ~b",
        b"channels": b"",
        b"selectors": [],
        b"limits": b"limit:queues=5",
    }
    assert ask(broker, client, "ACL", "GETUSER", "bob") == b"*-1\r\n"
    ask(broker, client, "HELLO", 3)
    assert ask_parsed(broker, client, "ACL", "GETUSER", "ann")[b"keys"] == b"~a* ~b"
    assert ask(broker, client, "ACL", "GETUSER", "bob") == b"_\r\n"


def test_one_bad_rule_changes_nothing():
    """Spec US1."""
    broker = make_broker()
    client = make_client(broker)
    reply = ask(broker, client, "ACL", "SETUSER", "ann", "on", "+nothing")
    assert reply == (b"-ERR Error in ACL SETUSER modifier '+nothing': Unknown command or category name in ACL\r\n")
    assert ask(broker, client, "ACL", "SETUSER", "a b").startswith(b"-ERR Usernames can't contain spaces")
    assert b"secret" not in ask(broker, client, "ACL", "SETUSER", "ann", "<secret")
    assert list(broker.users.by_name) == [b"default"]


def test_deluser_counts_and_keeps_default():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "ACL", "SETUSER", "ann")
    assert ask(broker, client, "ACL", "DELUSER", "ann", "default").startswith(b"-ERR The 'default' user cannot be")
    assert ask(broker, client, "ACL", "DELUSER", "ann", "bob", "ann") == b":1\r\n"


def test_cat_lists_categories_and_their_commands():
    broker = make_broker()
    client = make_client(broker)
    assert ask_parsed(broker, client, "ACL", "CAT") == [
        b"read", b"bodies", b"produce", b"consume", b"operate", b"admin", b"connection",
    ]  # fmt: skip
    assert b"config|get" in ask_parsed(broker, client, "ACL", "CAT", "@admin")
    assert b"addjob" in ask_parsed(broker, client, "ACL", "CAT", "produce")
    assert ask(broker, client, "ACL", "CAT", "x\r\n") == b"-ERR Unknown category 'x\\r\\n'\r\n"


def test_log_counts_equal_refusals_and_forgets_them():
    """Spec US9."""
    broker = make_broker()
    admin, client = make_client(broker), make_client(broker)
    ask(broker, admin, "ACL", "SETUSER", "ann", "on", ">pw", "+qlen", "~a")
    ask(broker, client, "AUTH", "ann", "pw")
    for words in (("PING",), ("PING",), ("QLEN", "b")):
        ask(broker, client, *words)
    ask(broker, make_client(broker), "AUTH", "bob\r\n", "x")
    pass_time(broker, 1_500)
    found = [dict(zip(each[::2], each[1::2], strict=True)) for each in ask_parsed(broker, admin, "ACL", "LOG")]
    assert [(each[b"reason"], each[b"object"], each[b"username"], each[b"count"]) for each in found] == [
        (b"auth", b"AUTH", b"bob\r\n", 1),
        (b"key", b"b", b"ann", 1),
        (b"command", b"ping", b"ann", 2),
    ]
    assert (found[0][b"context"], found[0][b"age-seconds"]) == (b"toplevel", b"1.500")
    assert len(ask_parsed(broker, admin, "ACL", "LOG", 1)) == 1
    assert ask(broker, admin, "ACL", "LOG", "RESET") == b"+OK\r\n"
    assert ask(broker, admin, "ACL", "LOG") == b"*0\r\n"


def test_dryrun_does_nothing():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "ACL", "SETUSER", "ann", "+qlen", "~a", "limit:rate=1/1s")
    assert ask(broker, client, "ACL", "DRYRUN", "ann", "qlen", "a") == b"+OK\r\n"
    assert b"permissions to access 'b'" in ask(broker, client, "ACL", "DRYRUN", "ann", "qlen", "b")
    assert b"run the 'addjob' command" in ask(broker, client, "ACL", "DRYRUN", "ann", "ADDJOB", "a", "b", "0")
    assert ask(broker, client, "ACL", "DRYRUN", "bob", "qlen", "a") == b"-ERR User 'bob' not found\r\n"
    assert ask(broker, client, "ACL", "DRYRUN", "ann", "get", "a") == b"-ERR Command 'get' not found\r\n"
    assert ask(broker, client, "ACL", "DRYRUN", "ann", "qlen").startswith(b"-ERR wrong number of arguments")
    assert not broker.access_log.entries
    assert not broker.queues


@pytest.mark.parametrize(("bits", "digits"), [(None, 64), (1, 1), (5, 2), (4_096, 1_024)])
def test_genpass_gives_hex_digits(bits, digits):
    broker = make_broker()
    words = () if bits is None else (bits,)
    assert len(ask_parsed(broker, make_client(broker), "ACL", "GENPASS", *words)) == digits
    assert ask(broker, make_client(broker), "ACL", "GENPASS", 0).startswith(b"-ERR ACL GENPASS argument")


def test_secrets_are_not_shown_to_other_clients():
    """Spec US9."""
    broker = make_broker(slowlog_log_slower_than=0)
    client, watcher = make_client(broker), make_client(broker)
    ask(broker, watcher, "MONITOR")
    ask(broker, client, "ACL", "SETUSER", "ann", ">topsecret", "<topsecret", "#" + "5" * 64, "~topnames")
    ask(broker, client, "AUTH", "ann", "topsecret")
    seen = b"".join(watcher.out) + repr(broker.stats.slowlog).encode()
    assert b"topsecret" not in seen
    assert b"5" * 64 not in seen
    assert b"topnames" in seen
