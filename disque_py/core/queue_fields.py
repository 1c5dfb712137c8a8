"""Queue fields: the fields of QUEUE SET, their values, and the settings in force that follow from them.

A field's value is a text, as QUEUE GET shows it. `read_value` checks a user's value and returns that text.
`settings_in_force` parses the texts of a queue into one QueueSettings, for the code that applies the settings.

A field that this software does not know, or a value that only newer software understands, has no effect here. The
default is in force instead. queue_settings.py keeps such fields and passes them on. This module knows nothing about
versions of settings, nodes or the broker. Spec QS1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

INT64_MAX: Final = (1 << 63) - 1
# The same limit as that of DELAY, RETRY and TTL, which are stored in milliseconds in 64 bits.
SPAN_MS_MAX: Final = INT64_MAX // 1_000_000 * 1_000
REPLICATE_MAX: Final = 65_535
ATTEMPTS_MAX: Final = 1_000_000_000  # The same limit as in ADDJOB. Other nodes and the journal accept no more.
# Bounds of `rate` and `max-running`.
CAP_MAX: Final = 1_000_000_000
RATE_MS_MIN: Final = 1_000
RATE_MS_MAX: Final = 86_400_000
NAMES_MAX: Final = 8
NAME_BYTES_MAX: Final = 1_024
# `replicate quorum`: the number of copies follows the size of the cluster.
QUORUM: Final = -1
# The longest text of a value, including values of newer versions.
VALUE_BYTES_MAX: Final = 65_536

# These fields are changed together: a change of one writes all of them with one version.
CLAIM_FIELDS: Final = (b"type", b"exclusive-by", b"assign")
_TIME: Final = re.compile(rb"([0-9]{1,19})(ms|s|m|h|d)?")
_UNIT_MS: Final = {b"ms": 1, b"": 1_000, b"s": 1_000, b"m": 60_000, b"h": 3_600_000, b"d": 86_400_000}
_NUMBER: Final = re.compile(rb"[0-9]{1,19}")
_BACKOFF: Final = re.compile(rb"(fixed|linear|exponential):([0-9]{1,16}):([0-9]{1,16})(?::([0-9]{1,3}))?")


class QueueSettings:
    """The settings in force for one queue, for the code that applies them.

    lease_ms      RETRY of jobs added without one; 0: Disque's default
    delay_ms, ttl_ms   DELAY and TTL of jobs added without one
    replicate     REPLICATE of jobs added without one; 0: Disque's default, QUORUM: a majority of the nodes
    attempts      ATTEMPTS of jobs added without one; 0: any number
    backoff       BACKOFF of jobs added without one, as the option's text; empty: none
    maxlen        the most pending jobs in the whole cluster; 0: any number
    maxsize       the most bytes of a body; 0: any number
    dead_letter   the queue for jobs without attempts left; empty: none
    retention_ms  how long an errored job is kept
    require_meta  names that the META of a job must have
    index         names of META that are indexed from the start
    exclusive_by  in an exclusive queue, the name of META of which at most one job per value runs; empty: not exclusive
    is_quorum     whether each job is delivered under a claim of its own (`assign quorum`)
    rate, rate_ms   at most `rate` deliveries of the queue in `rate_ms`, in the whole cluster; 0: any number
    rate_by       name of META; the rate then applies to each of its values separately; empty: none
    max_running, max_running_by   the same for the number of running leases
    result_retention_ms   how long a result of ACKJOB is kept; 0: only nodes that wait for it are told
    """

    __slots__ = (
        "attempts",
        "backoff",
        "dead_letter",
        "delay_ms",
        "exclusive_by",
        "index",
        "is_quorum",
        "lease_ms",
        "max_running",
        "max_running_by",
        "maxlen",
        "maxsize",
        "rate",
        "rate_by",
        "rate_ms",
        "replicate",
        "require_meta",
        "result_retention_ms",
        "retention_ms",
        "ttl_ms",
    )

    def __init__(self) -> None:
        self.lease_ms = 0
        self.delay_ms = 0
        self.ttl_ms = 86_400_000
        self.replicate = 0
        self.attempts = 0
        self.backoff = b""
        self.maxlen = 0
        self.maxsize = 0
        self.dead_letter = b""
        self.retention_ms = 7 * 86_400_000
        self.rate = 0
        self.rate_ms = 1_000
        self.rate_by = b""
        self.max_running = 0
        self.max_running_by = b""
        self.result_retention_ms = 3_600_000
        self.require_meta: tuple[bytes, ...] = ()
        self.index: tuple[bytes, ...] = ()
        self.exclusive_by = b""
        self.is_quorum = False


# The settings of all queues that have none of their own.
DEFAULTS: Final = QueueSettings()


class InvalidValueError(ValueError):
    """A value that a field may not have. The text is the reason."""


def span_ms(value: bytes) -> int:
    """Return a time in milliseconds: a number of seconds, or a number with ms, s, m, h or d. InvalidValueError."""
    match = _TIME.fullmatch(value)
    if match is None:
        raise InvalidValueError("a time like 30, 500ms, 30s, 5m, 2h or 7d is expected")
    ms = int(match[1]) * _UNIT_MS[match[2] or b""]
    if ms > SPAN_MS_MAX:
        raise InvalidValueError(f"at most {SPAN_MS_MAX // 1000} seconds")
    return ms


def span_text(ms: int) -> bytes:
    """Return a time as QUEUE GET shows it: whole seconds as a number, anything else with ms."""
    return b"%dms" % ms if ms % 1000 else b"%d" % (ms // 1000)


# -- kinds of values: each function returns the text that QUEUE GET shows, or raises InvalidValueError -----------------


def _read_span(name: bytes, value: bytes) -> bytes:
    ms = span_ms(value)
    if not ms:
        raise InvalidValueError("a time above 0 is expected")
    return span_text(ms)


def _read_delay(name: bytes, value: bytes) -> bytes:
    return span_text(span_ms(value))


def _number(value: bytes, low: int, high: int, more: str = "") -> int:
    if _NUMBER.fullmatch(value) is None or not low <= int(value) <= high:
        raise InvalidValueError(f"a number from {low} to {high}{more} is expected")
    return int(value)


def _read_replicate(name: bytes, value: bytes) -> bytes:
    if value.lower() == b"quorum":
        return b"quorum"
    return b"%d" % _number(value, 1, REPLICATE_MAX, ", or quorum,")


def _read_attempts(name: bytes, value: bytes) -> bytes:
    return b"%d" % _number(value, 0, ATTEMPTS_MAX)


def _read_size(name: bytes, value: bytes) -> bytes:
    return b"%d" % _number(value, 0, INT64_MAX)


def _read_backoff(name: bytes, value: bytes) -> bytes:
    match = _BACKOFF.fullmatch(value.lower())
    if match is None:
        raise InvalidValueError("fixed, linear or exponential is expected, as in exponential:1000:60000:20")
    base_ms, cap_ms, jitter = int(match[2]), int(match[3]), int(match[4] or b"0")
    if not 0 < base_ms <= cap_ms <= SPAN_MS_MAX:
        raise InvalidValueError("the base must be above 0 and at most the cap")
    if jitter > 100:
        raise InvalidValueError("the jitter is a percentage from 0 to 100")
    return b"%b:%d:%d:%d" % (match[1], base_ms, cap_ms, jitter) if jitter else b"%b:%d:%d" % (match[1], base_ms, cap_ms)


def _read_queue(name: bytes, value: bytes) -> bytes:
    if value == name:
        raise InvalidValueError("a queue can't be its own dead-letter queue")
    return value


def _read_names(name: bytes, value: bytes) -> bytes:
    names = value.split(b",")
    if len(names) > NAMES_MAX:
        raise InvalidValueError(f"at most {NAMES_MAX} names")
    if not all(0 < len(each) <= NAME_BYTES_MAX for each in names):
        raise InvalidValueError(f"names have 1 to {NAME_BYTES_MAX} bytes and commas between them")
    if len(dict.fromkeys(names)) < len(names):
        raise InvalidValueError("the same name twice")
    return value


def rate_of(text: bytes) -> tuple[int, int]:
    """Return the number and the milliseconds of a stored `rate`."""
    number, has_time, span = text.partition(b"/")
    return int(number), span_ms(span) if has_time else 1_000


def _read_rate(name: bytes, value: bytes) -> bytes:
    if value.lower() == b"none" or value == b"0":
        return b"none"
    number, has_time, span = value.partition(b"/")
    count = _number(number, 0, CAP_MAX, ", as in 100 or 100/10s,")
    ms = span_ms(span) if has_time else 1_000
    if not count:
        return b"none"
    if not RATE_MS_MIN <= ms <= RATE_MS_MAX:
        raise InvalidValueError("a time from 1s to 1d is expected")
    return b"%d" % count if ms == 1_000 else b"%d/%b" % (count, span_text(ms))


def _read_running(name: bytes, value: bytes) -> bytes:
    return b"0" if value.lower() == b"none" else b"%d" % _number(value, 0, CAP_MAX)


def _read_name(name: bytes, value: bytes) -> bytes:
    if not 0 < len(value) <= NAME_BYTES_MAX:
        raise InvalidValueError(f"a name of 1 to {NAME_BYTES_MAX} bytes is expected")
    return value


def _read_type(name: bytes, value: bytes) -> bytes:
    if value.lower() not in (b"simple", b"exclusive"):
        raise InvalidValueError("simple or exclusive is expected")
    return value.lower()


def _read_assign(name: bytes, value: bytes) -> bytes:
    if value.lower() not in (b"local", b"quorum"):
        raise InvalidValueError("local or quorum is expected")
    return value.lower()


class Field(NamedTuple):
    """One field: its default as QUEUE GET shows it, and the function (queue, text) -> stored text that reads values."""

    name: bytes
    default: bytes
    read: Callable[[bytes, bytes], bytes]


# In the order of QUEUE GET.
ALL_FIELDS: Final = (
    Field(b"lease", b"", _read_span),
    Field(b"delay", b"0", _read_delay),
    Field(b"ttl", b"86400", _read_span),
    Field(b"replicate", b"", _read_replicate),
    Field(b"attempts", b"0", _read_attempts),
    Field(b"backoff", b"", _read_backoff),
    Field(b"maxlen", b"0", _read_size),
    Field(b"maxsize", b"0", _read_size),
    Field(b"dead-letter", b"", _read_queue),
    Field(b"retention", b"604800", _read_span),
    Field(b"require-meta", b"", _read_names),
    Field(b"index", b"", _read_names),
    Field(b"type", b"simple", _read_type),
    Field(b"exclusive-by", b"", _read_name),
    Field(b"assign", b"local", _read_assign),
    Field(b"rate", b"none", _read_rate),
    Field(b"rate-by", b"", _read_name),
    Field(b"max-running", b"0", _read_running),
    Field(b"max-running-by", b"", _read_name),
    Field(b"result-retention", b"3600", _read_delay),
)
FIELDS: Final = {field.name: field for field in ALL_FIELDS}


def read_value(queue: bytes, field: Field, value: bytes) -> bytes:
    """Return the text of a field's value as it is stored and shown. An empty value is the default.

    InvalidValueError if the field may not have this value.
    """
    if len(value) > VALUE_BYTES_MAX:
        raise InvalidValueError(f"at most {VALUE_BYTES_MAX} bytes")
    return field.read(queue, value) if value else field.default


def settings_in_force(queue: bytes, values: Iterable[tuple[bytes, bytes]]) -> QueueSettings | None:
    """Return the settings in force that a queue's fields and values result in; None if all of them are defaults."""
    texts: dict[bytes, bytes] = {}
    for name, value in values:
        field = FIELDS.get(name)
        if field is None or not value:
            continue
        try:
            text = field.read(queue, value)
        except InvalidValueError:
            continue  # Newer software allows this value.
        if text != field.default:
            texts[name] = text
    return _parsed(texts) if texts else None


def _parsed(texts: dict[bytes, bytes]) -> QueueSettings:
    found = QueueSettings()
    for name, text in texts.items():
        if name == b"lease":
            found.lease_ms = span_ms(text)
        elif name == b"delay":
            found.delay_ms = span_ms(text)
        elif name == b"ttl":
            found.ttl_ms = span_ms(text)
        elif name == b"retention":
            found.retention_ms = span_ms(text)
        elif name == b"rate":
            found.rate, found.rate_ms = rate_of(text)
        elif name == b"rate-by":
            found.rate_by = text
        elif name == b"max-running":
            found.max_running = int(text)
        elif name == b"max-running-by":
            found.max_running_by = text
        elif name == b"result-retention":
            found.result_retention_ms = span_ms(text)
        elif name == b"replicate":
            found.replicate = QUORUM if text == b"quorum" else int(text)
        elif name == b"attempts":
            found.attempts = min(int(text), ATTEMPTS_MAX)
        elif name == b"backoff":
            found.backoff = text
        elif name == b"maxlen":
            found.maxlen = int(text)
        elif name == b"maxsize":
            found.maxsize = int(text)
        elif name == b"dead-letter":
            found.dead_letter = text
        elif name == b"require-meta":
            found.require_meta = tuple(text.split(b","))
        elif name == b"index":
            found.index = tuple(text.split(b","))
        elif name == b"assign":
            found.is_quorum = text == b"quorum"
    if texts.get(b"type") == b"exclusive":
        found.exclusive_by = texts.get(b"exclusive-by", b"")
    return found
