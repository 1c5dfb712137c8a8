"""Jobs of messages, and messages of jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

pytest.importorskip("kombu", reason="the extra celery is not installed")

from disque_py.client import Job
from disque_py.integrations.kombu import SERIALIZER, wire
from disque_py.integrations.kombu.urls import DAY_S, TTL_S, TransportOptions

NOW = 1_000_000.0
OPTIONS = TransportOptions((), {})
TASK = {"task": "add", "id": "1"}


def options(headers=None, settings=OPTIONS, ttl_ms=None, **properties):
    return wire.options_of({"headers": headers or {}, "properties": properties}, NOW, settings, ttl_ms)


def eta(seconds):
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat()


def test_an_eta_is_a_delay_that_is_rounded_up():
    assert options(TASK | {"eta": eta(1.000_1)})["delay"] == timedelta(milliseconds=1001)
    assert "delay" not in options(TASK | {"eta": eta(-1)})


def test_workers_keep_tasks_where_the_delay_is_not_native():
    assert "delay" not in options(TASK | {"eta": eta(5)}, TransportOptions((), {}, native_delay=False))


def test_the_ttl_of_a_delayed_task_leaves_time_for_leases():
    assert options(TASK | {"eta": eta(100)})["ttl"] == timedelta(seconds=TTL_S + 200)


def test_an_expired_task_lives_on_and_a_plain_message_does_not():
    assert options(expiration="1500")["ttl"] == timedelta(milliseconds=1500)
    assert options(TASK, expiration="1500")["ttl"] == timedelta(seconds=TTL_S)
    late = 1000 * (TTL_S + 5)
    assert options(TASK, expiration=str(late))["ttl"] == timedelta(seconds=TTL_S + 5 + DAY_S)


def test_a_transient_message_has_one_copy_for_a_day_or_less():
    found = options(delivery_mode=1)
    assert (found["replicate"], found["async_"], found["ttl"]) == (1, True, timedelta(days=1))
    assert options(delivery_mode=1, ttl_ms=5000)["ttl"] == timedelta(seconds=5)


def test_priorities_are_served_in_order_and_by_age():
    assert "priority" not in options(priority=0)
    assert options(priority=3)["priority"] == 3 * wire.PRIORITY_STEP + round(NOW * 1000)
    amqp = TransportOptions((), {}, amqp_order=True)
    assert options(priority=9, settings=amqp).get("priority") is None
    assert options(priority=None, settings=amqp)["priority"] // wire.PRIORITY_STEP == 9


def test_each_publication_has_a_key_unless_it_is_switched_off():
    assert options()["key"] != options()["key"]
    assert "key" not in options(settings=TransportOptions((), {}, publish_once=False))
    assert options(delivery_tag="publication-1")["key"] == "publication-1"


def test_a_message_comes_back_with_its_tag_and_whether_it_is_redelivered():
    body = wire.dump({"body": "x", "properties": {"delivery_info": {"exchange": "e", "routing_key": "k"}}}).encode()
    found = wire.message_of(Job("q", "D-1", body, nacks=1, additional_deliveries=0), "tag")
    assert found["properties"]["delivery_tag"] == "tag"
    assert found["properties"]["delivery_info"] == {"exchange": "e", "routing_key": "k", "redelivered": True}


@pytest.mark.parametrize("body", [b"\xff", b"plain", b"[1]", b'{"properties": 1}'])
def test_a_body_without_a_valid_message_becomes_raw_bytes(body):
    found = wire.message_of(Job("q", "D-1", body), "tag")
    assert (found["content-type"], found["properties"]["body_encoding"]) == ("application/data", "base64")
    assert not found["redelivered"]


def test_the_entry_point_is_a_serializer_of_kombus_json():
    encode, decode, _, _ = SERIALIZER
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert decode(encode({"at": moment})) == {"at": moment}


@pytest.mark.parametrize("name", ["__type__", "\\u005f_type__"])
def test_types_of_kombu_are_read_in_both_spellings_of_their_key(name):
    text = f'{{"a": {{"{name}": "decimal", "__value__": "1.5"}}}}'
    assert wire.load(text) == wire.load(text.encode()) == {"a": Decimal("1.5")}


def test_values_of_kombus_types_survive_the_round_trip():
    value = {"at": datetime.fromtimestamp(NOW, UTC), "cost": Decimal("1.5"), "name": "Zoë"}
    assert wire.load(wire.dump(value)) == value
