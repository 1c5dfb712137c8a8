"""Turn messages into jobs, and jobs into messages. The caller passes the time.

A job's body is the JSON of kombu's virtual transports, so a body that is text is readable in the console. These
properties of a message become options of ADDJOB:

* `eta` of a task: a delay. It is rounded up, so a task never starts early.
* `priority`: the job's PRIORITY, as priority times 10¹³ plus the time in milliseconds. So equal priorities keep
  their order.
* `expiration` of a message: its TTL. A task is different. Its worker must see it even when it has expired, to record
  the state REVOKED. So a task's TTL ends a day after its expiry at the earliest.
* `publish_once`: the tag of each publication is its KEY, so it may be sent again after a lost answer.
* `delivery_mode` 1: the job has one copy, and ends after a day.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kombu.utils.json import JSONEncoder, loads

from disque_py.client.adding_commands import add_job
from disque_py.client.request import Request
from disque_py.client.results import Job
from disque_py.client.templates import AddTemplate, template_of
from disque_py.integrations.kombu.urls import DAY_S, TransportOptions
from disque_py.integrations.patience import once

CONTENT_TYPE: Final = "application/x-disque-json"
PRIORITY_STEP: Final = 10**13
PRIORITY_MAX: Final = 9
TRANSIENT: Final = 1
# Commands of plain messages that are kept. Programs that reply to many others use many queues.
TEMPLATES_MAX: Final = 1_000
# Parts of a message, its properties and its delivery info (`dump_message`).
USUAL_COUNTS: Final = (5, 7, 2)
# Headers of a task (`dump_headers`).
HEADERS_COUNT: Final = 19
# The key of kombu's own types in JSON. Its letters may also be written as escapes.
TYPED: Final = '"__type__"'
ESCAPED: Final = "\\u00"

_ENCODER: Final = JSONEncoder(separators=(",", ":"))
# Text as JSON. Another value is a TypeError.
_text: Final[Callable[[str], str]] = json.encoder.encode_basestring_ascii


def dump(value: Any) -> str:
    """Return JSON as kombu writes it, with its types."""
    return str(_ENCODER.encode(value))


def dump_message(message: Mapping[str, Any]) -> str:
    """Return the JSON of a message.

    Tasks of Celery have the same parts and properties. Putting their values into prepared text takes two thirds of the
    time. The counts, and the absence of a KeyError, prove that nothing is left out. A message with other types, which
    are a TypeError here, is written as a whole.
    """
    properties: Mapping[str, Any] = message["properties"]
    try:
        info, mode, priority = properties["delivery_info"], properties["delivery_mode"], properties["priority"]
        counts = len(message), len(properties), len(info)
        if counts == USUAL_COUNTS and type(mode) is int and type(priority) is int:
            return (
                f'{{"body":{_text(message["body"])},"content-type":{_text(message["content-type"])},'
                f'"content-encoding":{_text(message["content-encoding"])},"headers":{dump_headers(message["headers"])},'
                f'"properties":{{"correlation_id":{_text(properties["correlation_id"])},'
                f'"reply_to":{_text(properties["reply_to"])},"delivery_mode":{mode},"priority":{priority},'
                f'"body_encoding":{_text(properties["body_encoding"])},'
                f'"delivery_tag":{_text(properties["delivery_tag"])},'
                f'"delivery_info":{{"exchange":{_text(info["exchange"])},'
                f'"routing_key":{_text(info["routing_key"])}}}}}}}'
            )
    except (KeyError, TypeError):
        pass
    return dump(message)


def dump_headers(headers: Mapping[str, Any]) -> str:
    """Return the JSON of a message's headers.

    A task of Celery that runs alone, at once and without limits takes a quarter of the time, as in `dump_message`.
    """
    try:
        retries, nesting, is_ignored = headers["retries"], headers["replaced_task_nesting"], headers["ignore_result"]
        if (
            len(headers) == HEADERS_COUNT
            and type(retries) is int
            and type(nesting) is int
            and type(is_ignored) is bool
            and headers["shadow"] is None
            and headers["eta"] is None
            and headers["expires"] is None
            and headers["group"] is None
            and headers["group_index"] is None
            and headers["parent_id"] is None
            and headers["stamped_headers"] is None
            and headers["stamps"] == {}
            and headers["timelimit"] == [None, None]
        ):
            return (
                f'{{"lang":{_text(headers["lang"])},"task":{_text(headers["task"])},"id":{_text(headers["id"])},'
                f'"shadow":null,"eta":null,"expires":null,"group":null,"group_index":null,"retries":{retries},'
                f'"timelimit":[null,null],"root_id":{_text(headers["root_id"])},"parent_id":null,'
                f'"argsrepr":{_text(headers["argsrepr"])},"kwargsrepr":{_text(headers["kwargsrepr"])},'
                f'"origin":{_text(headers["origin"])},"ignore_result":{"true" if is_ignored else "false"},'
                f'"replaced_task_nesting":{nesting},"stamped_headers":null,"stamps":{{}}}}'
            )
    except (KeyError, TypeError):
        pass
    return dump(headers)


def load(text: str | bytes) -> Any:
    """Return the value of JSON as kombu reads it. Raises ValueError."""
    if isinstance(text, bytes):
        text = text.decode()
    # kombu calls a function for each object, which changes only objects of kombu's own types.
    return loads(text) if TYPED in text or ESCAPED in text else json.loads(text)


def options_of(
    message: Mapping[str, Any], now: float, options: TransportOptions, ttl_ms: int | None = None
) -> dict[str, Any]:
    """Return the arguments of `add_job` for a message.

    now      Unix seconds
    ttl_ms   milliseconds that the queue keeps its messages; None: it has no limit of its own
    """
    headers: Mapping[str, Any] = message.get("headers") or {}
    properties: Mapping[str, Any] = message.get("properties") or {}
    found: dict[str, Any] = {"retry": options.lease}
    delay_s = _delay_s(headers, now) if options.native_delay else 0.0
    if delay_s > 0:
        found["delay"] = timedelta(milliseconds=-int(-delay_s * 1000 // 1))
    is_transient = properties.get("delivery_mode") == TRANSIENT
    ttl_s: float = DAY_S if is_transient else options.ttl_s
    expires_s = _number(properties.get("expiration"), 0.001)
    if expires_s is not None and not is_task(headers):
        ttl_s = min(ttl_s, expires_s)
    elif expires_s is not None:
        ttl_s = max(ttl_s, expires_s + DAY_S)
    if ttl_ms is not None:
        ttl_s = min(ttl_s, ttl_ms / 1000)
    # A lease can be extended in the first half of a TTL only, so the delay counts twice.
    found["ttl"] = timedelta(milliseconds=max(1, round((ttl_s + 2 * delay_s) * 1000)))
    if options.publish_once and not is_transient:
        found.update(once(properties.get("delivery_tag")))
    if is_transient:
        found.update(replicate=1, async_=True)
    priority = min(max(int(_number(properties.get("priority"), 1) or 0), 0), PRIORITY_MAX)
    step = PRIORITY_MAX - priority if options.amqp_order else priority
    if step:
        found["priority"] = step * PRIORITY_STEP + round(now * 1000)
    return found


class Publications:
    """The ADDJOBs of one connection's messages.

    Most messages of a queue have no ETA, no expiry and the priority 0. Their commands differ in the body and in KEY
    only, so the other words are made once.
    """

    def __init__(self, options: TransportOptions) -> None:
        self._options = options
        self._templates: dict[tuple[str, bool, int | None], AddTemplate] = {}

    def request(self, queue: str, message: Mapping[str, Any], now: float, ttl_ms: int | None = None) -> Request[str]:
        """Return the command that adds a message to a queue. The other arguments are those of `options_of`."""
        body = dump_message(message).encode()
        properties = message["properties"]
        tag = properties.get("delivery_tag")
        is_plain = (
            not properties.get("priority")
            and properties.get("expiration") is None
            and not message["headers"].get("eta")
            and not self._options.amqp_order
            and isinstance(tag, str)
        )
        if not is_plain:
            return add_job(queue, body, **options_of(message, now, self._options, ttl_ms))
        is_transient = properties.get("delivery_mode") == TRANSIENT
        template = self._templates.get((queue, is_transient, ttl_ms))
        if template is None:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            words = options_of(message, now, self._options, ttl_ms)
            words.pop("key", None)
            template = self._templates[queue, is_transient, ttl_ms] = template_of(queue, **words)
        has_key = self._options.publish_once and not is_transient
        return template.one(body, (b"KEY", tag.encode()) if has_key else ())


def is_task(headers: Mapping[str, Any]) -> bool:
    """Return whether a message is a task of Celery."""
    return "task" in headers and "id" in headers


def _delay_s(headers: Mapping[str, Any], now: float) -> float:
    eta = headers.get("eta")
    if not eta or not is_task(headers):
        return 0.0
    try:
        moment = eta if isinstance(eta, datetime) else datetime.fromisoformat(str(eta))
    except ValueError:
        return 0.0  # The worker reads the header too, and says what is wrong.
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() - now


def _number(value: object, unit: float) -> float | None:
    if isinstance(value, (int, float, str)):
        try:
            return float(value) * unit
        except ValueError:
            return None
    return None


def message_of(job: Job, tag: str) -> dict[str, Any]:
    """Return the message of a job, with its delivery tag. A body without properties becomes a message of raw bytes.

    Raises any error for a body whose parts have other types than those of a message.
    """
    payload: dict[str, Any] | None
    try:
        payload = load(job.body)
    except ValueError:
        payload = None
    if not isinstance(payload, dict) or not isinstance(payload.get("properties"), dict):
        return raw_message_of(job, tag)
    return _delivered(payload, job, tag)


def raw_message_of(job: Job, tag: str) -> dict[str, Any]:
    """Return a message of raw bytes, the body of a job, with its delivery tag."""
    payload = {
        "body": base64.b64encode(job.body).decode(),
        "content-type": "application/data",
        "content-encoding": "binary",
        "headers": {},
        "properties": {"body_encoding": "base64"},
    }
    return _delivered(payload, job, tag)


def _delivered(payload: dict[str, Any], job: Job, tag: str) -> dict[str, Any]:
    properties = payload["properties"]
    info = properties.setdefault("delivery_info", {})
    info.setdefault("exchange", "")
    info.setdefault("routing_key", job.queue)
    info["redelivered"] = was_delivered(job)
    payload["redelivered"] = info["redelivered"]
    properties["delivery_tag"] = tag
    return payload


def was_delivered(job: Job) -> bool:
    """Return whether a job was delivered before."""
    return bool(job.nacks or job.additional_deliveries or (job.attempt or 1) > 1)
