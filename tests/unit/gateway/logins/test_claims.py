"""Claims of tokens, and the grants that rules give for them."""

from __future__ import annotations

import pytest

from disque_py.gateway.logins.access_file import parse_access
from disque_py.gateway.logins.claims import ClaimRule, grants_of_claims, values_of
from disque_py.gateway.logins.grants import grant_of


@pytest.mark.parametrize(
    ("name", "claims", "values"),
    [
        ("groups", {"groups": ["a", "b", 1]}, ["a", "b"]),
        ("team", {"team": "mail us"}, ["mail us"]),
        ("scope", {"scope": "read write"}, ["read", "write"]),
        ("realm_access.roles", {"realm_access": {"roles": ["x"]}}, ["x"]),
        ("https://example.com/roles", {"https://example.com/roles": ["x"]}, ["x"]),
        ("a.b.c", {"a": {"b": "text"}}, []),
        ("admin", {"admin": True}, ["true"]),
        ("level", {"level": 7}, ["7"]),
        ("none", {}, []),
    ],
)
def test_a_claim_is_a_list_of_texts(name, claims, values):
    assert values_of(name, claims) == values


def test_a_token_has_the_grants_of_all_rules_that_hold():
    rules = [
        ClaimRule("groups", "mail", (grant_of("operate:mail-*"),)),
        ClaimRule("groups", "sms", (grant_of("operate:sms-*"),)),
        ClaimRule("sub", "*", (grant_of("read"),)),
    ]
    found = grants_of_claims(rules, {"sub": "ann", "groups": ["mail"]})
    assert {str(grant) for grant in found} == {"operate:mail-*", "read:*"}
    assert grants_of_claims(rules, {}) == ()


def test_the_access_file_has_rules_and_clusters():
    text = '[[claim]]\nname = "g"\nvalue = "v"\ngrants = ["read"]\nclusters = ["eu"]\n'
    assert parse_access(text, "eu").claims[0].grants == (grant_of("read"),)
    assert parse_access(text, "us").claims[0].grants == ()


@pytest.mark.parametrize(
    "text",
    [
        '[[claim]]\nname = "g"\n',
        '[[claim]]\nname = "g"\nvalue = "v"\nrole = "read"\n',
        '[[certificate]]\nname = "robot"\n',
        '[[user]]\nname = "ann"\nclusters = "eu"\n',
    ],
)
def test_a_mistake_in_the_access_file_is_an_error(text):
    with pytest.raises(ValueError, match=r"claim|certificate|clusters"):
        parse_access(text)
