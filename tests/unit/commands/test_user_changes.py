"""Changes of users, which are stored in the ACL file or in the cluster."""

from __future__ import annotations

from errno import ENOSPC
from hashlib import sha256

import pytest

from brokers import add_node, ask, host_of, make_broker, make_client, port_of
from claimed_worlds import add, begin_get, exclusive
from disque_py.commands import user_changes
from disque_py.core import settings_sync
from disque_py.core.queue_settings import USER, state_key

HASH = sha256(b"pw").hexdigest()


# -- the file ---------------------------------------------------------------------------------------


def test_each_change_is_written_to_the_acl_file():
    """Spec US7."""
    broker = make_broker(aclfile="users.acl")
    client = make_client(broker)
    assert ask(broker, client, "ACL", "SETUSER", "ann", "on", ">pw") == b"+OK\r\n"
    assert host_of(broker).acl_file == b"user default on nopass ~* +@all\nuser ann on #%b -@all\n" % HASH.encode()
    ask(broker, client, "ACL", "DELUSER", "ann")
    assert b"ann" not in host_of(broker).acl_file
    assert ask(broker, client, "ACL", "SAVE") == b"+OK\r\n"


def test_a_file_that_cannot_be_written_is_reported():
    broker = make_broker(aclfile="users.acl")
    host_of(broker).failures["write_acl_file"] = OSError(ENOSPC, "No space left on device")
    reply = ask(broker, make_client(broker), "ACL", "SETUSER", "ann")
    assert reply.startswith(b"-ERR the change is in force, but the ACL file can't be written: No space")
    assert b"ann" in broker.users.by_name


def test_load_takes_all_users_of_the_file_or_none():
    """Spec US7."""
    broker = make_broker(aclfile="users.acl")
    client, bob = make_client(broker), make_client(broker)
    ask(broker, client, "ACL", "SETUSER", "bob", "on", "nopass", "+@all")
    ask(broker, bob, "AUTH", "bob", "any")
    host_of(broker).acl_file = b"user ann on\nuser carl onn\n"
    assert ask(broker, client, "ACL", "LOAD") == b"-ERR 2: Syntax error. No users were changed\r\n"
    assert list(broker.users.by_name) == [b"default", b"bob"]
    host_of(broker).acl_file = b"user ann on\n"
    assert ask(broker, client, "ACL", "LOAD") == b"+OK\r\n"
    assert list(broker.users.by_name) == [b"default", b"ann"]
    assert port_of(bob).closed == [False]


def test_without_a_file_there_is_nothing_to_save():
    broker = make_broker()
    for word in ("SAVE", "LOAD"):
        assert ask(broker, make_client(broker), "ACL", word).startswith(b"-ERR This Disque instance is not configured")


# -- logins -----------------------------------------------------------------------------------------


def test_a_password_of_default_ends_the_waits_and_streams_of_clients_that_have_not_logged_in():
    """Spec US8."""
    broker = make_broker()
    monitor, consumer, idle, admin = (make_client(broker) for _ in range(4))
    ask(broker, monitor, "MONITOR")
    ask(broker, consumer, "GETJOB", "FROM", "q")
    assert ask(broker, admin, "ACL", "SETUSER", "default", "resetpass", ">pw") == b"+OK\r\n"
    assert [port_of(each).closed for each in (monitor, consumer, idle, admin)] == [[False], [False], [], []]


# -- the cluster ------------------------------------------------------------------------------------


def make_shared(**settings):
    broker = make_broker(acl_cluster=True, cluster_secret="s", **settings)
    user_changes.join(broker)
    return broker


def test_users_of_the_cluster_are_shared_state():
    """Spec US8."""
    broker = make_shared()
    client = make_client(broker)
    assert ask(broker, client, "ACL", "SETUSER", "ann", "on", "~a", "+@read") == b"+OK\r\n"
    assert broker.users.by_name[b"ann"].describe() == b"user ann on ~a -@all +@read"
    assert [(item[0], item[2]) for item in host_of(broker).settings_file] == [
        (state_key(USER, b"ann"), b"on ~a -@all +@read"),
    ]
    assert ask(broker, client, "ACL", "DELUSER", "ann") == b":1\r\n"
    assert list(broker.users.by_name) == [b"default"]


def heard(broker, name, rules, counter):
    node = broker.cluster.find(b"\x02" * 20)
    settings_sync.on_setting(
        broker, node, [(state_key(USER, name), b"rules" if rules else b"", rules, counter, node.id)]
    )


def test_a_user_that_another_node_removes_is_disconnected_here():
    """Spec US8."""
    broker = make_shared()
    add_node(broker, 2)
    heard(broker, b"ann", b"on nopass ~* +@all", 1)
    client = make_client(broker)
    assert ask(broker, client, "AUTH", "ann", "any") == b"+OK\r\n"
    heard(broker, b"ann", b"", 2)
    assert port_of(client).closed == [False]
    assert b"ann" not in broker.users.by_name


def test_rules_of_a_newer_version_grant_nothing():
    """Spec US8."""
    broker = make_shared()
    add_node(broker, 2)
    heard(broker, b"ann", b"on ~* +novel +qlen", 1)
    assert broker.users.by_name[b"ann"].units == {"qlen"}
    heard(broker, b"ann", b"on ~* +qlen only-on-mondays", 2)
    assert not broker.users.by_name[b"ann"].is_on


def test_a_reset_of_the_cluster_does_not_open_default():
    broker = make_shared()
    add_node(broker, 2)
    heard(broker, b"default", b"on ~* +@read", 1)
    broker.queue_settings.clear()
    assert broker.users.by_name[b"default"].describe() == b"user default on ~* -@all +@read"


def test_a_user_of_the_cluster_that_removes_itself_gets_the_reply():
    broker = make_shared()
    client = make_client(broker)
    ask(broker, client, "ACL", "SETUSER", "ann", "on", "nopass", "+@all")
    ask(broker, client, "AUTH", "ann", "x")
    assert ask(broker, client, "ACL", "DELUSER", "ann", "bob") == b":1\r\n"
    assert client.close_asked
    assert port_of(client).closed == []


# -- a GETJOB that is done in parts ---------------------------------------------------------------------


@pytest.mark.parametrize("words", [("FROM", "q"), ("FROMMATCH", "q*")])
@pytest.mark.parametrize("rule", ["-getjob", "resetkeys", "off"])
def test_a_getjob_that_waits_for_a_claim_ends_with_its_permission(words, rule):
    """Spec US8."""
    world = exclusive()
    add(world, "a", "ann")
    world.ask("a", "ACL", "SETUSER", "bob", "on", "nopass", "~q*", "+@consume")
    world.cut("a", "b")
    world.cut("a", "c")
    talker = world.client("a")
    talker.say("AUTH", "bob", "x")
    talker.say("GETJOB", *words)
    world.run(50)
    world.ask("a", "ACL", "SETUSER", "bob", rule)
    world.heal()
    world.run(5_000)
    assert talker.replies == [b"OK"]


def test_a_getjob_that_waits_for_a_claim_goes_on_while_its_user_keeps_its_names():
    """Spec US8."""
    world = exclusive()
    job_id = add(world, "a", "ann")
    world.ask("a", "ACL", "SETUSER", "bob", "on", "nopass", "~q?", "~q", "+@consume")
    world.cut("a", "b")
    world.cut("a", "c")
    talker = world.client("a")
    talker.say("AUTH", "bob", "x")
    talker.say("GETJOB", "FROM", "q")
    world.run(50)
    world.ask("a", "ACL", "SETUSER", "bob", "~other", "-qlen")
    world.heal()
    world.run(5_000)
    assert [entry[1] for entry in talker.replies[1]] == [job_id]


def test_a_getjob_that_waits_for_a_claim_ends_when_its_client_has_to_log_in():
    """Spec US8."""
    world = exclusive()
    add(world, "a", "ann")
    world.cut("a", "b")
    world.cut("a", "c")
    talker = begin_get(world, "a")
    world.run(50)
    assert world.ask("a", "CONFIG", "SET", "requirepass", "pw") == b"OK"
    world.heal()
    world.run(5_000)
    assert talker.replies == []
