"""Patterns of names that a user may use."""

from __future__ import annotations

from random import Random
from time import perf_counter

import pytest

from disque_py.core.name_patterns import NamePattern
from disque_py.resp.glob import matches


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        (b"*", b"", True),
        (b"**", b"mail", True),
        (b"", b"", True),
        (b"", b"a", False),
        (b"mail", b"mail", True),
        (b"mail", b"mails", False),
        (b"mail-*", b"mail-", True),
        (b"mail-*", b"mail", False),
        (b"*-mail", b"a-mail", True),
        (b"a*a", b"a", False),
        (b"a*a", b"aa", True),
        (b"*a*b*", b"xxaxxbxx", True),
        (b"*a*b*", b"xxbxxaxx", False),
        (b"h?llo", b"hello", True),
        (b"h?llo", b"h\nllo", True),
        (b"h[a-e]llo", b"hello", True),
        (b"h[^a-e]llo", b"hello", False),
        (b"h[ae", b"he", True),
        (b"[]x", b"x", False),
        (b"a\\*", b"a*", True),
        (b"a\\*", b"ab", False),
        (b"\xff?", b"\xff\x00", True),
    ],
)
def test_a_pattern_matches_the_whole_name(pattern, name, is_match):
    assert NamePattern(pattern).matches(name) is is_match


def test_name_patterns_agree_with_the_patterns_of_config_get():
    """Both read the same syntax; these match bytes, those characters. Spec US3."""
    rng = Random(7)
    for _ in range(3_000):
        pattern = "".join(rng.choices("ab*?[]^-\\", k=rng.randrange(8)))
        name = "".join(rng.choices("ab*", k=rng.randrange(8)))
        assert NamePattern(pattern.encode()).matches(name.encode()) == matches(pattern, name), (pattern, name)


def test_matching_many_stars_is_fast():
    """Spec US3."""
    pattern = NamePattern(b"*a" * 500 + b"*b")
    begin = perf_counter()
    assert not pattern.matches(b"a" * 100_000)
    assert perf_counter() - begin < 0.5


@pytest.mark.parametrize(
    ("own", "pattern", "is_known"),
    [
        (b"*", b"a?", True),
        (b"mail-*", b"mail-*", True),
        (b"mail-*", b"mail-eu-?", True),
        (b"mail-*", b"mail*", False),
        (b"mail-*", b"*", False),
        (b"mail-?", b"mail-?", False),
        (b"mail-?", b"mail-1", True),
        (b"a*b", b"a*b", True),
        (b"a*b", b"axb*b", False),
        (b"a*", b"\\a*", True),
    ],
)
def test_a_pattern_covers_another_where_that_is_certain(own, pattern, is_known):
    """`?` of the other may stand for several bytes. Spec US5."""
    assert NamePattern(own).covers(pattern) is is_known


def test_patterns_that_begin_with_different_texts_are_apart():
    assert NamePattern(b"mail-*").is_apart(b"sms-*")
    assert not NamePattern(b"mail-*").is_apart(b"ma*")
    assert not NamePattern(b"*").is_apart(b"ma*")


def test_a_long_name_matches_no_pattern_with_sets():
    """Spec US3."""
    assert NamePattern(b"[ab]*").matches(b"a" * 1_024)
    assert not NamePattern(b"[ab]*").matches(b"a" * 1_025)
    assert NamePattern(b"a*a").matches(b"a" * 1_000_000)
