"""Logins: users of the broker, tokens that expire, an access file that changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from disque_py import testing
from disque_py.gateway.access_file import token_entry
from disque_py.gateway.logins import grants_of_rules
from gateways import basic


@pytest.fixture(scope="module")
def closed_node():
    """A node with a password."""
    with testing.node(requirepass="open sesame") as node:
        yield node


def test_a_user_of_the_broker_logs_in_with_its_password(make_gateway, closed_node):
    gateway = make_gateway(url=closed_node.url, broker_users="yes")
    assert gateway.get("/v1/queues").status == 401
    assert gateway.get("/v1/queues", login=basic("", "open sesame")).status == 200
    reply = gateway.get("/v1/queues", login=basic("", "wrong"))
    assert (reply.status, reply.json["code"]) == (401, "WRONGPASS")


def test_an_address_with_too_many_failed_logins_has_to_wait(make_gateway, closed_node):
    gateway = make_gateway(url=closed_node.url, broker_users="yes")
    found = [gateway.get("/v1/queues", login=basic("", "wrong")).status for _ in range(7)]
    assert found == [401] * 5 + [429] * 2


def test_a_login_that_works_is_not_locked_out_by_its_neighbour(make_gateway, closed_node):
    """Both callers may have the same address, because of a proxy."""
    gateway = make_gateway(url=closed_node.url, broker_users="yes")
    good = basic("", "open sesame")
    assert gateway.get("/v1/queues", login=good).status == 200
    for _ in range(7):
        gateway.get("/v1/queues", login=basic("", "wrong"))
    assert gateway.get("/v1/queues", login=good).status == 200


def test_a_user_in_the_access_file_has_its_grants_only(make_gateway, closed_node, tmp_path):
    path = tmp_path / "access.toml"
    path.write_text('[[user]]\nname = "default"\ngrants = ["read:mail"]\n')
    gateway = make_gateway(url=closed_node.url, broker_users="yes", access_file=path)
    login = basic("default", "open sesame")
    assert gateway.get("/v1/queues", login=login).status == 200
    assert gateway.post("/v1/queues/mail/jobs", {"body": "b"}, login=login).status == 403


def test_broker_users_are_off_by_default(make_gateway, tmp_path):
    path = tmp_path / "access.toml"
    path.write_text(token_entry("t", "dq_t", ["read"], None))
    gateway = make_gateway(access_file=path)
    assert gateway.get("/v1/queues", login=basic("default", "")).status == 401


def test_a_token_ends_and_the_file_is_read_again(make_gateway, tmp_path):
    path = tmp_path / "access.toml"
    past = datetime.now(UTC) - timedelta(seconds=1)
    path.write_text(token_entry("old", "dq_old", ["read"], past) + token_entry("new", "dq_new", ["read"], None))
    gateway = make_gateway(access_file=path)
    assert gateway.get("/v1/queues", login="Bearer dq_old").status == 401
    assert gateway.get("/v1/queues", login="Bearer dq_new").status == 200
    path.write_text(token_entry("other", "dq_other", ["read"], None))
    gateway.gateway.service.logins._file_checked = 0
    assert gateway.get("/v1/queues", login="Bearer dq_new").status == 401
    assert gateway.get("/v1/queues", login="Bearer dq_other").status == 200


def test_a_mistake_in_a_changed_file_leaves_the_old_content_in_force(make_gateway, tmp_path):
    path = tmp_path / "access.toml"
    path.write_text(token_entry("t", "dq_t", ["read"], None))
    gateway = make_gateway(access_file=path)
    path.write_text("[[tok")
    gateway.gateway.service.logins._file_checked = 0
    assert gateway.get("/v1/queues", login="Bearer dq_t").status == 200


def test_a_mistake_at_the_start_is_an_error(make_gateway, tmp_path):
    path = tmp_path / "access.toml"
    path.write_text("[[tok")
    with pytest.raises(Exception, match="Expected"):
        make_gateway(access_file=path)


@pytest.mark.parametrize(
    ("commands", "keys", "grants"),
    [
        ("+@all", "~*", {"admin:*", "read:*", "bodies:*", "produce:*", "consume:*", "operate:*"}),
        ("-@all +@read +@produce", "~mail-* ~sms", {"read:mail-*", "read:sms", "produce:mail-*", "produce:sms"}),
        ("-@all +@admin", "~*", set()),
        ("+@all -@operate", "~*", {"read:*", "bodies:*", "produce:*", "consume:*"}),
        ("-@all +qlen", "~*", set()),
    ],
)
def test_rules_of_the_broker_become_grants(commands, keys, grants):
    reply = [b"flags", [b"on"], b"commands", commands.encode(), b"keys", keys.encode()]
    assert {str(grant) for grant in grants_of_rules(reply)} == grants
    assert grants_of_rules(None) == ()


def test_a_user_of_the_broker_has_its_own_rights(make_gateway, closed_node):
    with closed_node.client() as client:
        client.execute("ACL", "SETUSER", "ann", "on", ">pw", "~ann-*", "-@all", "+@connection", "+@read", "+@produce")
        client.add_job("other", "b")
    gateway = make_gateway(url=closed_node.url, broker_users="yes")
    login = basic("ann", "pw")
    assert gateway.post("/v1/queues/ann-1/jobs", {"body": "b"}, login=login).status == 201
    for verb, path, value in (
        ("POST", "/v1/queues/other/jobs", {"body": "b"}),
        ("POST", "/v1/queues/ann-1/dequeue", {}),
        ("POST", "/v1/queues/ann-1/pause", {}),
        ("GET", "/v1/queues/other", None),
    ):
        reply = gateway.request(verb, path, value, login=login)
        assert (reply.status, reply.json["code"]) == (403, "NOPERM"), path
    names = {row["name"] for row in gateway.get("/v1/queues", login=login).json["queues"]}
    assert "other" not in names
