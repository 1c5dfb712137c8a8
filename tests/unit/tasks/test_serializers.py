"""Serializers return plain values, and refuse other values."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from disque_py.tasks import JSONSerializer, MsgPackSerializer, SerializerError

VALUES = [None, True, 42, 1.5, "Zürich ✓", [1, [2]], {"a": {"b": None}}]


@pytest.mark.parametrize("serializer", [JSONSerializer(), MsgPackSerializer()])
@pytest.mark.parametrize("value", VALUES)
def test_plain_values_come_back(serializer, value):
    assert serializer.loads(serializer.dumps(value)) == value


@pytest.mark.parametrize("serializer", [JSONSerializer(), MsgPackSerializer()])
def test_other_values_are_refused(serializer):
    with pytest.raises(SerializerError):
        serializer.dumps(object())
    with pytest.raises(SerializerError):
        serializer.loads(b"\xc1")


def test_msgpack_keeps_keys_that_are_no_text():
    serializer = MsgPackSerializer()
    assert serializer.loads(serializer.dumps({1: "a", None: "b"})) == {1: "a", None: "b"}


def test_threads_may_share_a_msgpack_serializer():
    """While one of them converts a value, another one may write."""
    turn = threading.Barrier(2, timeout=5)

    def default(value):
        turn.wait()
        return list(value)

    serializer = MsgPackSerializer(default=default)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(serializer.dumps, ([1, {2}], ["a", {"b"}])))
    assert list(map(serializer.loads, found)) == [[1, [2]], ["a", ["b"]]]


def test_nan_is_not_json():
    with pytest.raises(SerializerError):
        JSONSerializer().dumps(float("nan"))


def test_json_can_be_extended_by_further_values():
    """The two functions are those of Python's json module."""
    serializer = JSONSerializer(
        default=lambda value: {"at": value.isoformat()},
        object_hook=lambda found: datetime.fromisoformat(found["at"]) if "at" in found else found,
    )
    moment = datetime(2026, 11, 23, tzinfo=UTC)
    assert serializer.loads(serializer.dumps([moment])) == [moment]


def test_msgpack_packs_bytes_and_datetimes():
    serializer = MsgPackSerializer()
    value = {"data": b"\x00\xff", "at": datetime(2026, 11, 23, tzinfo=UTC)}
    assert serializer.loads(serializer.dumps(value)) == value
