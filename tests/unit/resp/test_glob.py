"""Patterns of CONFIG GET."""

from __future__ import annotations

import pytest

from disque_py.resp.glob import Glob, matches


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("max*", "maxmemory", True),
        ("*max", "maxmemory", False),
        ("*m*y", "maxmemory", True),
        ("maxmemor?", "maxmemory", True),
        ("?", "", False),
        ("[l-n]ax", "max", True),
        ("[n-l]ax", "max", True),
        ("[^m]ax", "max", False),
        ("[^a]ax", "max", True),
        (r"[\]]", "]", True),
        ("[ab", "b", True),
        ("[]x", "x", False),
        (r"a\*", "a*", True),
        (r"a\*", "ab", False),
        ("a\\", "a\\", True),
        ("port", "PORT", False),
    ],
)
def test_glob_patterns_match_like_those_of_redis(pattern, text, fits):
    assert matches(pattern, text) is fits


def test_case_can_be_ignored():
    assert matches("MaxM*", "maxmemory", ignore_case=True)


def test_many_stars_cost_no_exponential_time():
    assert not matches("*a" * 200 + "*b", "a" * 2000)


def test_many_stars_in_a_row_mean_the_same_as_one():
    """Otherwise the cost of a pattern would grow with the square of its number of stars."""
    assert matches("*" * 100_000 + "y", "maxmemory")
    assert not matches("*" * 100_000 + "x", "maxmemory")


@pytest.mark.parametrize("pattern", ["", "*", "a*b", "**a?", "[a-c]*[^x]", "a\\*b", "a*b*c*", "?é*", "[", "ab["])
@pytest.mark.parametrize("text", ["", "a", "ab", "axxb", "a*b", "abcabc", "bxé", "aéb", "ab[", "x" * 300])
def test_a_glob_takes_what_matches_takes(pattern, text):
    assert Glob(pattern).matches(text) == matches(pattern, text)


def test_a_glob_knows_what_all_its_texts_begin_with():
    assert [Glob(pattern).prefix for pattern in ("mail.*", "*x", "a\\*b?", "[a]b[cd]")] == ["mail.", "", "a*b", "ab"]


def test_a_glob_forgets_characters_when_there_are_very_many():
    glob = Glob("x*")
    assert all(glob.matches("x" + chr(0x4E00 + number)) for number in range(1_000))
