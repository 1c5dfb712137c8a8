"""The conversion of messages to jobs and back."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("kombu", reason="the extra [celery] is not installed")

from celery import Celery

from disque_py.client.adding_commands import add_job
from disque_py.integrations.kombu import wire
from disque_py.integrations.kombu.urls import read_options

NOW = 1_700_000_000.0
TASK = {"task": "tasks.add", "id": "1"}
SAFE, DIRECT, AMQP = (
    read_options(["disque://"], options)
    for options in ({}, {"publish_once": "no"}, {"priority_order": "amqp", "message_ttl": 60})
)


def message(headers=TASK, body="[]", **properties):
    """Return a message as kombu makes it."""
    return {
        "body": body,
        "headers": dict(headers),
        "properties": {"delivery_tag": "tag-1", "priority": 0, **properties},
    }


def words(request):
    """Return the first four words of an ADDJOB, and its options in sorted order."""
    argv = [word.decode() for word in request.argv]
    return argv[:4], sorted(argv[4:])


@pytest.mark.parametrize("options", [SAFE, DIRECT, AMQP])
@pytest.mark.parametrize("ttl_ms", [None, 5_000])
@pytest.mark.parametrize(
    "sent",
    [
        message(),
        message(headers={}),
        message(delivery_mode=2),
        message(delivery_mode=1),
        message(priority=None),
        message(priority=3),
        message(expiration="2500"),
        message(headers=TASK | {"eta": "2023-11-14T22:13:30+00:00"}),
    ],
)
def test_a_command_of_prepared_words_has_the_options_of_its_message(options, ttl_ms, sent):
    """This is true for the first command of a queue and for later ones."""
    publications = wire.Publications(options)
    whole = add_job("mail", wire.dump(sent), **wire.options_of(sent, NOW, options, ttl_ms))
    for _ in range(2):
        made = publications.request("mail", sent, NOW, ttl_ms)
        assert words(made) == words(whole)
        assert (made.repeat, made.lane, made.wait_ms) == (whole.repeat, whole.lane, whole.wait_ms)
        assert made.awaits_nodes == whole.awaits_nodes


def test_each_message_has_its_own_body_and_key():
    publications = wire.Publications(SAFE)
    first = publications.request("mail", message(body="1"), NOW)
    second = publications.request("mail", message(body="2", delivery_tag="tag-2"), NOW)
    assert [json.loads(made.argv[2])["body"] for made in (first, second)] == ["1", "2"]
    assert [made.argv[made.argv.index(b"KEY") + 1] for made in (first, second)] == [b"tag-1", b"tag-2"]


def test_the_number_of_queues_is_not_bounded_but_that_of_prepared_commands_is(monkeypatch):
    monkeypatch.setattr(wire, "TEMPLATES_MAX", 2)
    publications = wire.Publications(SAFE)
    for number in range(5):
        assert publications.request(f"reply-{number}", message(), NOW).argv[1] == b"reply-%d" % number
    assert len(publications._templates) <= 2


USUAL = {
    "body": '[["gr\u00fc\u00dfe\\n"], {}]',
    "content-type": "application/json",
    "content-encoding": "utf-8",
    "headers": {"task": "tasks.add", "id": "1", "timelimit": [None, None], "when": wire.datetime(2023, 11, 14)},
    "properties": {
        "correlation_id": "1",
        "reply_to": "2",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": 'a "queue"'},
        "priority": 0,
        "body_encoding": "utf-8",
        "delivery_tag": "3-4",
    },
}
INFO = USUAL["properties"]["delivery_info"]


def but(message, without=(), **properties):
    """Return a message with other properties."""
    kept = {name: value for name, value in message["properties"].items() if name not in without}
    return message | {"properties": kept | properties}


@pytest.mark.parametrize(
    "sent",
    [
        USUAL,
        USUAL | {"redelivered": True},
        USUAL | {"body": None, "content-encoding": None},
        but(USUAL, reply_to=None, correlation_id=7),
        but(USUAL, delivery_mode=True, priority=None),
        but(USUAL, timestamp=5),
        but(USUAL, without=["reply_to"]),
        but(USUAL, without=["reply_to"], timestamp=5),
        but(USUAL, without=["priority"], expiration="9"),
        but(USUAL, delivery_info=INFO | {"redelivered": False}),
        but(USUAL, delivery_info={"exchange": "e", "consumer": "c"}),
        but(USUAL, without=["delivery_info"]),
    ],
)
def test_prepared_text_has_the_same_values_as_the_json_of_the_whole_message(sent):
    """The most frequent message has prepared text, and others do not."""
    assert json.loads(wire.dump_message(sent)) == json.loads(wire.dump(sent))


class Oddity(str):
    """Text whose JSON is that of plain text."""


def test_prepared_text_escapes_as_the_json_of_the_whole_message_does():
    """Also text of other types, and headers with all kinds of values."""
    headers = {"task": Oddity('\u2028"'), "id": "\ud800", "n": 1.5, "list": [{}, (), True, None, -1], 7: {"a": "ü"}}
    made = wire.dump_message(USUAL | {"headers": headers, "body": Oddity("\\\x00")})
    assert f'"headers":{wire.dump(headers)},' in made
    assert made.startswith('{"body":' + wire.dump("\\\x00") + ",")


@pytest.fixture
def headers():
    """The headers that Celery makes for a task."""
    return Celery("test").amqp.as_task_v2("id-1", "tasks.add", (1, "ü"), {"x": 2}, ignore_result=True).headers


def test_the_headers_of_a_task_of_celery_have_prepared_text(headers, monkeypatch):
    """So a new release of Celery with other headers is noticed here."""
    whole = wire.dump(headers)
    monkeypatch.delattr(wire, "dump")
    assert wire.dump_headers(headers) == whole


@pytest.mark.parametrize("value", [None, True, 0, 1, -7, 1.0, "", "ü", [], [None, None], [None, 5], {}, {"a": 1}])
def test_prepared_headers_are_the_json_of_the_headers_whatever_their_values_are(headers, value):
    for name in headers:
        changed = headers | {name: value}
        assert wire.dump_headers(changed) == wire.dump(changed)
        without = {other: kept for other, kept in headers.items() if other != name}
        for fewer in (without, without | {"mine": value}):
            assert wire.dump_headers(fewer) == wire.dump(fewer)
        assert wire.dump_headers(headers | {"mine": value}) == wire.dump(headers | {"mine": value})


def test_a_message_without_json_is_the_same_error_as_elsewhere():
    """Headers that contain themselves, or an object that has no JSON."""
    headers = {"task": "tasks.add"}
    headers["own"] = headers
    for wrong in ({"headers": headers}, {"headers": {"x": object()}}):
        errors = []
        for dump in (wire.dump, wire.dump_message):
            with pytest.raises((ValueError, TypeError)) as caught:
                dump(USUAL | wrong)
            errors.append((type(caught.value), str(caught.value)))
        assert errors[0] == errors[1]


def test_a_message_comes_back_as_it_was():
    """The message has types that only kombu's JSON knows, and text outside ASCII."""
    sent = message(body="grüße", blob=b"\xff", set_at=wire.datetime(2023, 11, 14, tzinfo=wire.UTC))
    assert wire.load(wire.dump(sent)) == sent
