"""event_offsets.py: the position of a query, and the end of its next batch."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.event_log import LogState
from disque_py.spark.event_offsets import (
    EventRange,
    Position,
    offset_of,
    plan,
    positions_of,
    ranges,
    read_json_offsets,
    split_limit,
)
from disque_py.spark.options import OptionError

STATES = {"a": LogState("la", 10, 110, 0), "b": LogState("lb", 0, 50, 0)}


def test_an_offset_survives_its_journey_as_json():
    places = {"b": Position("lb", 3), "a": Position(since=17)}
    assert positions_of(offset_of(places, {})["nodes"]) == places
    assert list(offset_of(places, {})["nodes"]) == ["a", "b"]


def test_a_limit_is_divided_in_proportion_to_waiting_events():
    assert split_limit({"a": 100, "b": 300, "c": 0}, 40) == {"a": 10, "b": 30, "c": 0}
    assert split_limit({"a": 1, "b": 1000}, 10) == {"a": 1, "b": 9}
    assert split_limit({"a": 5, "b": 5}, None) == {"a": 5, "b": 5}


def test_no_node_starves_under_a_limit_smaller_than_the_cluster():
    assert split_limit({"a": 9, "b": 9, "c": 9}, 1) == {"a": 1, "b": 1, "c": 1}


def test_a_batch_ends_where_logs_or_the_limit_end():
    starts = {"a": Position("la", 100), "b": Position("lb", 0)}
    assert plan(starts, STATES, None) == {"a": Position("la", 110), "b": Position("lb", 50)}
    assert plan(starts, STATES, 6) == {"a": Position("la", 101), "b": Position("lb", 5)}


def test_a_node_that_is_away_or_has_another_log_stays_where_it_is():
    starts = {"a": Position("old", 100), "c": Position("lc", 7)}
    assert plan(starts, STATES, None) == starts


def test_ranges_are_cut_into_as_many_pieces_as_asked_for():
    starts = {"a": Position("la", 10), "b": Position("lb", 0)}
    ends = {"a": Position("la", 110), "b": Position("lb", 50)}
    assert ranges(starts, ends) == [EventRange("a", "la", 10, 110), EventRange("b", "lb", 0, 50)]
    pieces = ranges(starts, ends, 6)
    assert [piece.end - piece.start for piece in pieces] == [25, 25, 25, 25, 25, 25]
    assert [(piece.start, piece.end) for piece in pieces if piece.node == "b"] == [(0, 25), (25, 50)]


def test_json_offsets_are_numbers_or_ends_or_places_in_a_log():
    given = {"a": -2, "b": {"log": "lb", "next": 4}}
    assert read_json_offsets("startingOffsets", given, STATES) == {"a": Position("la", 10), "b": Position("lb", 4)}
    assert read_json_offsets("startingOffsets", {"a": 20, "b": -1}, STATES)["b"] == Position("lb", 50)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"a": 1}, "startingOffsets lacks node b"),
        ({"a": 1, "b": 1, "c": 1}, "names c, which is not a node"),
        ({"a": -3, "b": 1}, "node a has -3"),
        ({"a": True, "b": 1}, "node a has True"),
        ({"a": 0, "b": 1}, "node a has 0; write a sequence number .the first is 1."),
        ({"a": -1, "b": 51}, "node b has 51, and its log lb ends before 50"),
    ],
)
def test_json_offsets_name_every_node_once_and_make_sense(given, text):
    with pytest.raises(OptionError, match=text):
        read_json_offsets("startingOffsets", given, STATES)
