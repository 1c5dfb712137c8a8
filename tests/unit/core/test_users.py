"""Rules of users, and the permissions that they make."""

from __future__ import annotations

from hashlib import sha256

import pytest

from brokers import make_broker, make_client
from disque_py.core.users import (
    BODIES,
    Catalog,
    Limits,
    Meter,
    RuleError,
    Users,
    changed,
    first_default,
    may_name,
    name_of,
    new_user,
    read_lines,
    sees_bodies,
    visible,
)

CATALOG = Catalog(
    {
        "qlen": frozenset({"read"}),
        "qpeek": frozenset({"bodies"}),
        "addjob": frozenset({"produce"}),
        "config|get": frozenset({"admin"}),
        "config|set": frozenset({"admin"}),
    }
)
HASH = sha256(b"secret").hexdigest()


def made(*rules):
    return changed(new_user(b"ann"), [rule.encode() for rule in rules], CATALOG)


@pytest.mark.parametrize(
    ("rules", "units"),
    [
        (("+@read",), {"qlen"}),
        (("+config",), {"config|get", "config|set"}),
        (("+config", "-config|set"), {"config|get"}),
        (("+@all", "-@admin", "-@bodies"), {"qlen", "addjob"}),
        (("+@bodies",), {"qpeek", BODIES}),
        (("+QLEN", "-@all", "+addjob"), {"addjob"}),
        (("allcommands", "nocommands"), set()),
        (("-qlen", "+@read"), {"qlen"}),
    ],
)
def test_rules_are_obeyed_in_order(rules, units):
    """Spec US1, US2."""
    assert made(*rules).units == units


@pytest.mark.parametrize(
    "rules",
    [
        ("on", ">secret", "~mail-*", "~a?", "+@all", "-config|set"),
        ("nopass", "allkeys", "+config", "-config|get", "+@read"),
        ("limit:connections=3", "limit:queues=9", "limit:rate=5000/1s"),
        ("limit:rate=5/1500ms",),
    ],
)
def test_a_description_makes_the_same_user_again(rules):
    user = made(*rules)
    again = changed(new_user(b"ann"), user.words(), CATALOG)
    assert (again.describe(), again.units) == (user.describe(), user.units)


def test_passwords_are_kept_as_hashes():
    user = made(">secret", "#" + "0" * 64)
    assert user.passwords == (HASH, "0" * 64)
    assert user.is_password(b"secret")
    assert not user.is_password(b"secre")
    assert b"secret" not in user.describe()
    assert made(">secret", "<secret").passwords == made(">secret", f"!{HASH}").passwords == ()


@pytest.mark.parametrize(
    "rule",
    [
        "onn", "", "+", "+@none", "+qlenx", "+config|x", "~", "~a b", "#abc", "!" + "g" * 64, "<no", "limit:x=1",
        "limit:connections=-1", "limit:rate=5", "limit:rate=0/1s", "limit:rate=5/0s", "~" + "a" * 2_000, "%R~x", "&x",
        "(+@all)", "+\u00e9",
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_read_changes_nothing(rule):
    """Spec US1."""
    user = made("on")
    with pytest.raises(RuleError):
        changed(user, [b"+@all", rule.encode()], CATALOG)
    assert user.units == set()


def test_the_error_of_a_rule_names_no_password():
    for rule in (b"<hidden", b"#hidden", b"!hidden"):
        with pytest.raises(RuleError) as refused:
            changed(new_user(b"ann"), [rule], CATALOG)
        assert "hidden" not in refused.value.reason


def test_reset_takes_everything():
    user = made("on", ">secret", "~x", "+@all", "limit:queues=1", "reset")
    assert user.describe() == new_user(b"ann").describe() == b"user ann off -@all"


def test_names_must_match_a_pattern():
    """Spec US3."""
    user = made("~mail-*", "~exact")
    assert [user.may_name(name) for name in (b"mail-1", b"exact", b"exact2", b"mail", b"mail-1")] == [
        True, True, False, False, True,
    ]  # fmt: skip
    assert not user.has_all_names
    assert made("~*").has_all_names
    with pytest.raises(RuleError, match="resetkeys"):
        made("allkeys", "~x")


def test_an_acl_file_is_taken_as_a_whole():
    users = read_lines(b"# people\n\nuser ann on +@read\nuser bob off\n", CATALOG)
    assert list(users) == [b"ann", b"bob"]
    with pytest.raises(ValueError, match=r"(?s)2: .*Unknown command.*3: line should start.*4: .*twice"):
        read_lines(b"user ann on\nuser bob +nothing\nusr x\nuser ann\n", CATALOG)


def test_default_without_rules_has_nothing_to_check():
    """Spec US4."""
    users = Users()
    users.install(CATALOG)
    assert users.of_clients is None
    users.put(changed(first_default(CATALOG), [b"-config|set"], CATALOG))
    assert users.of_clients is not None
    users.put(changed(users.of_clients, [b"+@all"], CATALOG))
    assert users.of_clients is None


@pytest.mark.parametrize("rule", [b"off", b"resetpass", b"resetkeys", b"limit:rate=1/1s", b"-@bodies"])
def test_default_with_a_rule_is_checked(rule):
    assert Users().pointer(changed(first_default(CATALOG), [rule], CATALOG)) is not None


def test_a_password_belongs_to_a_user_that_is_on():
    users = Users()
    users.install(CATALOG)
    users.put(made("on", ">secret"))
    assert users.find(b"ann", b"secret") is users.by_name[b"ann"]
    assert users.find(b"ann", b"wrong") is users.find(b"bob", b"secret") is None
    users.put(changed(users.by_name[b"ann"], [b"off"], CATALOG))
    assert users.find(b"ann", b"secret") is None


def test_a_rate_allows_one_span_at_once_and_refills():
    """Spec US11."""
    meter, limits = Meter(), Limits(rate=3, per_ms=1_000)
    assert [meter.spend(limits, 5_000) for _ in range(4)] == [True, True, True, False]
    assert not meter.spend(limits, 5_333)
    assert meter.spend(limits, 5_334)
    assert [meter.spend(limits, 60_000) for _ in range(4)] == [True, True, True, False]


def test_a_client_sees_the_names_of_its_user():
    """Spec US5."""
    client = make_client(make_broker())
    assert (name_of(client), may_name(client, b"x"), sees_bodies(client)) == (b"default", True, True)
    client.user = made("~a*", "+@read")
    assert (name_of(client), may_name(client, b"x"), sees_bodies(client)) == (b"ann", False, False)
    assert visible(client, [b"x", b"a2", b"a1"]) == [b"a2", b"a1"]
