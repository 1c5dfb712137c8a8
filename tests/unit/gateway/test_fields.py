"""Kinds of arguments."""

from __future__ import annotations

import pytest

from disque_py.gateway.fields import Choice, Flag, Octets, Pairs, Text, Texts, Whole, merged
from disque_py.gateway.problems import RefusedError


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        (Text(1, 3), "abc"),
        (Whole(0, 9), 9),
        (Flag(), True),
        (Choice(("a", "b")), "a"),
        (Pairs(2), {"a": "b"}),
        (Texts(3, 2), ["a", "b"]),
    ],
)
def test_a_good_value_is_taken_unchanged(kind, good):
    assert kind.read("x", good) == good


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (Text(1, 3), ""),
        (Text(1, 3), "abcd"),
        (Text(), 1),
        (Whole(0, 9), 10),
        (Whole(0, 9), -1),
        (Whole(0, 9), 1.0),
        (Whole(0, 9), True),
        (Whole(0, 9), "1"),
        (Flag(), 1),
        (Choice(("a",)), "b"),
        (Choice(("a",)), ["a"]),
        (Pairs(), {"a": 1}),
        (Pairs(1), {"a": "b", "c": "d"}),
        (Pairs(), []),
        (Texts(), []),
        (Texts(), "a"),
        (Texts(1), ["ab"]),
        (Octets(), "a"),
        (Octets(), 5),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_argument(kind, bad):
    with pytest.raises(RefusedError, match=r"^x "):
        kind.read("x", bad)


def test_a_query_has_numbers_and_truth_values_as_text():
    assert (Whole(-5, 9).read_text("x", "-5"), Flag().read_text("x", "true")) == (-5, True)


@pytest.mark.parametrize("text", ["", "-", "1.0", "0x1", "٣", "1" * 30])
def test_a_text_that_is_not_a_whole_number_is_refused(text):
    with pytest.raises(RefusedError):
        Whole(0, 9).read_text("x", text)


def test_pairs_of_a_query_may_be_repeated():
    assert merged(Pairs(), "where", ["a:b", "c:d:e"]) == {"a": "b", "c": "d:e"}


def test_pairs_have_each_name_once():
    """As for the broker: no job has two values under one name."""
    with pytest.raises(RefusedError, match="where has the name a twice"):
        merged(Pairs(), "where", ["a:b", "a:c"])


def test_any_other_argument_of_a_query_comes_once():
    with pytest.raises(RefusedError, match="2 times"):
        merged(Text(), "x", ["a", "b"])


def test_bytes_are_base64():
    assert Octets().read("x", "AAE=") == b"\0\1"


@pytest.mark.parametrize("kind", [Text(), Whole(), Flag(), Choice(("a",)), Pairs(), Texts(), Octets()])
def test_every_kind_has_a_schema_with_a_type(kind):
    assert kind.schema()["type"] in ("string", "integer", "boolean", "object", "array")
