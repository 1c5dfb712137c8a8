"""Roles on patterns of queues."""

from __future__ import annotations

import pytest

from disque_py.gateway.logins.grants import FOUND_MAX, ROLES, Principal, grant_of


def principal(*grants):
    return Principal("p", tuple(grant_of(text) for text in grants), client=None)


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
def test_admin_includes_every_role_on_its_queues(role):
    assert principal("admin:mail-*").may(role, "mail-1")
    assert not principal("admin:mail-*").may(role, "sms")


@pytest.mark.parametrize("role", ["bodies", "consume", "operate"])
def test_each_of_these_roles_includes_read(role):
    assert principal(f"{role}:a").may("read", "a")


def test_a_producer_reads_nothing():
    assert not principal("produce").may("read", "a")


def test_a_role_does_not_include_other_roles():
    assert not principal("consume:a", "operate:b").may("operate", "a")


def test_a_grant_without_a_pattern_is_on_every_queue():
    assert principal("read").may_everywhere("read")
    assert not principal("read:a*").may_everywhere("read")
    assert principal("read:a*").may_somewhere("read")


def test_a_list_has_the_queues_of_the_role():
    assert principal("read:a*").visible(["a1", "b1"]) == ["a1"]


def test_an_unknown_role_is_refused():
    with pytest.raises(ValueError, match="no role 'root'"):
        grant_of("root:*")


def test_memory_for_names_that_callers_choose_is_bounded():
    asked = principal("read:a*")
    for number in range(FOUND_MAX + 5):
        asked.may("read", str(number))
    assert len(asked._found) <= FOUND_MAX
