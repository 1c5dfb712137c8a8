"""Logins: users of the broker, tokens that expire, an access file that changes."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from disque_py import testing
from disque_py.client.options import make_options, settings_of_url
from disque_py.gateway.logins import authentication
from disque_py.gateway.logins.access_file import token_entry
from disque_py.gateway.logins.authentication import Logins, grants_of_rules
from disque_py.gateway.settings import Settings
from gateways import basic, until


@pytest.fixture(scope="module")
def closed_node():
    """A node with a password."""
    with testing.node(requirepass="open sesame") as node:
        yield node


@pytest.fixture
def make_user(closed_node):
    """A function that gives the user `ann` these rules and the password `pw`."""

    def make(*rules):
        with closed_node.client() as client:
            client.execute("ACL", "SETUSER", "ann", "reset", "on", ">pw", *rules)

    yield make
    with closed_node.client() as client:
        client.execute("ACL", "DELUSER", "ann")


@asynccontextmanager
async def opened(node):
    """Logins of users of the broker, without a gateway."""
    settings = Settings({"url": node.url, "broker-users": "yes"})
    found = Logins(settings, make_options(*settings_of_url(node.url)))
    try:
        yield found
    finally:
        await found.close()


def connections_of(node, user):
    with node.client() as client:
        return client.execute("CLIENT", "LIST").decode().count(f"user={user}")


def test_a_user_of_the_broker_logs_in_with_its_password(make_gateway, closed_node):
    gateway = make_gateway(url=closed_node.url, broker_users="yes")
    assert gateway.get("/v1/queues").status == 401
    assert gateway.get("/v1/queues", login=basic("", "open sesame")).status == 200
    reply = gateway.get("/v1/queues", login=basic("", "wrong"))
    assert (reply.status, reply.json["code"]) == (401, "WRONGPASS")


def test_only_a_gateway_with_users_of_the_broker_offers_basic(make_gateway, closed_node, tmp_path):
    (tmp_path / "access.toml").write_text("")
    with_tokens = make_gateway(url=closed_node.url, access_file=tmp_path / "access.toml")
    with_users = make_gateway(url=closed_node.url, broker_users="yes")
    offered = [each.get("/v1/queues").headers["www-authenticate"] for each in (with_tokens, with_users)]
    assert [each.partition(" ")[0] for each in offered] == ["Bearer", "Basic"]
    assert list(with_tokens.get("/v1/openapi.json").json["components"]["securitySchemes"]) == ["bearer"]


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


def test_a_login_without_a_user_name_is_the_user_default_of_the_access_file(make_gateway, closed_node, tmp_path):
    path = tmp_path / "access.toml"
    path.write_text('[[user]]\nname = "default"\ngrants = ["read:mail"]\n')
    gateway = make_gateway(url=closed_node.url, broker_users="yes", access_file=path)
    login = basic("", "open sesame")
    assert gateway.get("/v1/queues", login=login).status == 200
    assert gateway.post("/v1/queues/mail/jobs", {"body": "b"}, login=login).status == 403


def test_guesses_at_the_same_time_are_limited(make_gateway, closed_node):
    gateway = make_gateway(url=closed_node.url, broker_users="yes")
    with ThreadPoolExecutor(20) as pool:
        found = list(
            pool.map(lambda number: gateway.get("/v1/queues", login=basic("", f"guess {number}")).status, range(20))
        )
    assert (found.count(401), found.count(429)) == (5, 15)


def test_a_changed_access_file_leaves_no_connections_behind(make_gateway, closed_node, make_user, tmp_path):
    path = tmp_path / "access.toml"
    path.write_text('[[user]]\nname = "ann"\ngrants = ["read"]\n')
    make_user("~*", "+@all")
    gateway = make_gateway(url=closed_node.url, broker_users="yes", access_file=path)
    for number in range(4):
        path.write_text(path.read_text() + f"# {number}\n")
        gateway.gateway.service.logins._file_checked = 0
        assert gateway.get("/v1/queues/mail/depth", login=basic("ann", "pw")).status == 200
    assert until(lambda: connections_of(closed_node, "ann") == 1)


def test_a_changed_access_file_changes_the_grants_of_users(make_gateway, closed_node, tmp_path):
    path = tmp_path / "access.toml"
    path.write_text("")
    gateway = make_gateway(url=closed_node.url, broker_users="yes", access_file=path)
    login = basic("default", "open sesame")
    assert gateway.post("/v1/queues/mail/jobs", {"body": "b"}, login=login).status == 201
    path.write_text('[[user]]\nname = "default"\ngrants = ["read"]\n')
    gateway.gateway.service.logins._file_checked = 0
    assert gateway.post("/v1/queues/mail/jobs", {"body": "b"}, login=login).status == 403


def test_the_first_requests_of_a_user_share_a_connection(make_gateway, closed_node, make_user):
    make_user("~*", "+@all")
    gateway = make_gateway(url=closed_node.url, broker_users="yes")
    with ThreadPoolExecutor(8) as pool:
        login = basic("ann", "pw")
        found = list(pool.map(lambda _: gateway.get("/v1/queues/mail/depth", login=login).status, range(8)))
    assert found == [200] * 8
    assert until(lambda: connections_of(closed_node, "ann") == 1)


def test_a_caller_that_hangs_up_does_not_end_the_check_of_another(closed_node):
    async def run():
        async with opened(closed_node) as found:
            tasks = [asyncio.create_task(found.principal(basic("", "open sesame"), "a")) for _ in range(2)]
            while not found._asking:
                await asyncio.sleep(0)
            tasks[0].cancel()
            return (await tasks[1]).name

    assert asyncio.run(run()) == "user:default"


def test_a_login_that_is_checked_again_is_the_same_caller(closed_node, monkeypatch):
    """Otherwise its streams were admitted again at each check, which used up the rate of its requests."""
    monkeypatch.setattr(authentication, "CHECK_AGAIN_S", 0.0)

    async def run():
        async with opened(closed_node) as found:
            first = await found.principal(basic("", "open sesame"), "a")
            return await found.principal(basic("", "open sesame"), "a") is first

    assert asyncio.run(run())


def test_simultaneous_checks_of_an_old_password_count_as_one_guess(closed_node, make_user):
    """A program with five streams locked its address out when its password was changed."""
    make_user("~*", "+@all")

    async def run():
        async with opened(closed_node) as found:
            await found.principal(basic("ann", "pw"), "a")
            with closed_node.client() as client:
                client.execute("ACL", "SETUSER", "ann", "resetpass", ">new")
            for key, (principal, _) in list(found._users.items()):
                found._users[key] = (principal, float("-inf"))
            old = [found.principal(basic("ann", "pw"), "a") for _ in range(5)]
            await asyncio.gather(*old, return_exceptions=True)
            return (await found.principal(basic("ann", "new"), "a")).name

    assert asyncio.run(run()) == "user:ann"


def test_the_client_of_a_login_that_is_being_checked_is_not_closed(closed_node, monkeypatch):
    """Even if more users than clients are kept log in meanwhile."""
    monkeypatch.setattr(authentication, "CLIENTS_MAX", 1)

    async def run():
        async with opened(closed_node) as found:
            first = await found.principal(basic("", "open sesame"), "a")
            [key] = found._users
            found._asking[key] = asyncio.create_task(asyncio.sleep(60))
            await found.principal(basic("default", "open sesame"), "a")
            return [kept.client is first.client for kept, _ in found._users.values()]

    assert asyncio.run(run()) == [True, False]


def test_a_client_that_may_be_in_use_is_not_closed_for_another_user(closed_node, monkeypatch):
    """A request may wait with it. Clients that are idle are closed."""
    monkeypatch.setattr(authentication, "CLIENTS_MAX", 1)

    async def run():
        async with opened(closed_node) as found:
            first = await found.principal(basic("", "open sesame"), "a")
            second = await found.principal(basic("default", "open sesame"), "a")
            await first.client.hello()
            [key, other] = found._users
            found._users[key] = (first, time.monotonic() - 1000)
            found._users[other] = (second, time.monotonic() - authentication.CHECK_AGAIN_S)
            await found.principal(basic("default", "open sesame"), "a")
            return list(found._users) == [other]

    assert asyncio.run(run())


def test_a_user_that_may_see_no_events_sees_the_page_of_a_job(make_gateway, closed_node, make_user):
    """The gateway's own login may not ask for the rules, so only the broker knows them."""
    make_user("~*", "+@read", "+@connection")
    with closed_node.client() as client:
        client.execute("ACL", "SETUSER", "gateway", "on", ">gw", "~*", "+@all", "-acl")
        job = client.execute("ADDJOB", "mail", "b", "5000").decode()
    gateway = make_gateway(url=f"disque://gateway:gw@{closed_node.address}", broker_users="yes")
    reply = gateway.get(f"/console/job?id={quote(job)}", login=basic("ann", "pw"))
    assert (reply.status, "mail" in reply.text) == (200, True)


def test_broker_users_are_off_by_default(make_gateway, tmp_path):
    """The login is refused, so the audit log has it."""
    path, log = tmp_path / "access.toml", tmp_path / "audit.log"
    path.write_text(token_entry("t", "dq_t", ["read"], None))
    gateway = make_gateway(access_file=path, audit_log=log)
    assert gateway.get("/v1/queues", login=basic("default", "")).status == 401
    assert gateway.get("/v1/queues").status == 401
    [line] = map(json.loads, log.read_text().splitlines())
    assert (line["operation"], line["outcome"]) == ("login", "WRONGPASS")


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


def test_a_mistake_in_a_changed_file_leaves_the_old_content_in_force(make_gateway, tmp_path, caplog):
    """The log says so once, because a token that was taken out of the file is still valid."""
    path = tmp_path / "access.toml"
    path.write_text(token_entry("t", "dq_t", ["read"], None))
    gateway = make_gateway(access_file=path)
    path.write_text("[[tok")
    with caplog.at_level("INFO", "disque-gateway"):
        for _ in range(2):
            gateway.gateway.service.logins._file_checked = 0
            assert gateway.get("/v1/queues", login="Bearer dq_t").status == 200
        path.write_text(token_entry("other", "dq_other", ["read"], None))
        gateway.gateway.service.logins._file_checked = 0
        assert gateway.get("/v1/queues", login="Bearer dq_t").status == 401
    told = [each.message for each in caplog.records if "access-file" in each.message]
    assert ["stays in force" in message for message in told] == [True, False]


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


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("[^s]*", ["mail"], ["secret"]),
        (r"a\*b", ["a*b"], ["axb"]),
        ("[!a]", ["a", "!"], ["b"]),
        ("m?il*", ["mail-1"], ["mil"]),
        ("a\u00a0*", ["a\u00a0b"], ["a", "b"]),
    ],
)
def test_patterns_of_the_broker_mean_the_same_as_in_the_broker(pattern, covered, others):
    reply = [b"commands", b"+@read", b"keys", b"~" + pattern.encode()]
    [grant] = grants_of_rules(reply)
    assert all(map(grant.covers, covered))
    assert not any(map(grant.covers, others))


def test_lists_follow_changed_rules_of_a_user(make_gateway, closed_node, make_user, monkeypatch):
    monkeypatch.setattr(authentication, "CHECK_AGAIN_S", 0)
    gateway = make_gateway(url=closed_node.url, broker_users="yes")
    for name in ("list-1", "list-2"):
        gateway.post(f"/v1/queues/{name}/jobs", {"body": "b"}, login=basic("", "open sesame"))

    def names():
        return [row["name"] for row in gateway.get("/v1/queues", login=basic("ann", "pw")).json["queues"]]

    make_user("~list-*", "+@read")
    assert until(lambda: names() == ["list-1", "list-2"])
    with closed_node.client() as client:
        client.execute("ACL", "SETUSER", "ann", "resetkeys", "~list-1")
    assert names() == ["list-1"]


def test_a_user_of_the_broker_needs_no_more_rights_than_its_requests(make_gateway, closed_node, make_user):
    """Not CLIENT SETNAME either."""
    make_user("~orders-*", "+@produce")
    gateway = make_gateway(url=closed_node.url, broker_users="yes")
    assert gateway.post("/v1/queues/orders-1/jobs", {"body": "b"}, login=basic("ann", "pw")).status == 201


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
