"""The broker's patterns as regular expressions."""

from __future__ import annotations

import random

from disque_py.core.name_patterns import NamePattern
from disque_py.gateway.logins.broker_patterns import NAME_BYTES_MAX, expression_of


def covers(pattern, name):
    expression = expression_of(pattern)
    return expression is None or expression.match(name) is not None


def test_the_expressions_match_as_the_broker_does():
    rng = random.Random(9)
    letters = b"ab*?[]^-\\!."
    for _ in range(5_000):
        pattern = bytes(rng.choices(letters, k=rng.randrange(1, 9)))
        for _ in range(5):
            name = bytes(rng.choices(letters, k=rng.randrange(7)))
            assert covers(pattern, name) == NamePattern(pattern).matches(name), (pattern, name)


def test_patterns_of_stars_alone_match_every_name():
    assert expression_of(b"*") is expression_of(b"***") is None


def test_a_long_name_matches_as_in_the_broker():
    for size in (NAME_BYTES_MAX, NAME_BYTES_MAX + 1):
        for pattern in (b"?*", b"[a]*", b"a*", rb"a*\a"):
            assert covers(pattern, b"a" * size) == NamePattern(pattern).matches(b"a" * size)


def test_a_pattern_with_many_stars_takes_little_time():
    assert not covers(b"a*" * 500 + b"b", b"a" * 1_000)
