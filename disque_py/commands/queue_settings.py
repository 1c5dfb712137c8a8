"""QUEUE: the settings of a queue, the same on all nodes.

SET and RESET are answered when the settings are on this node's disk and linked nodes had a second to confirm them
(core/settings_sync.py). All words are checked before anything is changed. Spec QS3, QS6.
"""

from __future__ import annotations

from typing import Final

from disque_py.commands import settings_changes
from disque_py.commands.adding import OF_SCHEDULES, RESERVED_META
from disque_py.commands.name_lists import list_names
from disque_py.commands.subcommands import ANY, SHOWN_BYTES_MAX, Form, run_form, syntax_error, text_of
from disque_py.core import settings_sync
from disque_py.core.broker import Broker
from disque_py.core.changeable import HISTORY_NAMES
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.job_attributes import TRACE_NAMES
from disque_py.core.queue import PAUSE_NAMES
from disque_py.core.queue_fields import CLAIM_FIELDS, FIELDS, InvalidValueError, read_value
from disque_py.core.queue_settings import (
    FULL,
    NO_VERSION,
    QUEUE,
    RESET_FIELD,
    state_key,
)
from disque_py.core.versions import FLOWS, refuse_older
from disque_py.resp.replies import OK, array, bulk, integer, nil_array

NOT_A_FIELD: Final = "ERR unknown queue setting '{}'"
INVALID: Final = "ERR invalid value for '{}': {}"
NO_NAME: Final = "ERR exclusive needs exclusive-by"
NEEDS_VOTERS: Final = "ERR {} needs voters"
NO_META: Final = "no job has META {}"
# Fields whose values are lists of names of META, and all fields whose values are such names.
LISTS: Final = (b"require-meta", b"index")
OF_META: Final = (*LISTS, b"exclusive-by", b"rate-by", b"max-running-by")
# The reserved names that nodes give to jobs.
GIVEN_META: Final = frozenset((*OF_SCHEDULES, *HISTORY_NAMES))
PAUSED_BY: Final = "ERR paused is set with PAUSE"
TEXTS: Final = settings_changes.Texts(FULL, NO_VERSION, "queue settings")


def queue(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QUEUE SET queue field value [field value ...] | GET queue | LIST [pattern] | RESET queue."""
    return run_form(FORMS, broker, client, argv)


def _set(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SET queue field value [field value ...]: all fields or none."""
    if len(argv) % 2 == 0:
        raise syntax_error(argv[-1])
    name = argv[2]
    values: dict[bytes, bytes] = {}
    for at in range(3, len(argv), 2):
        word = argv[at].lower()
        field = FIELDS.get(word)
        if word == b"paused":
            raise CommandError(PAUSED_BY)
        if field is None:
            raise CommandError(NOT_A_FIELD.format(text_of(argv[at][:SHOWN_BYTES_MAX])))
        try:
            values[word] = read_value(name, field, argv[at + 1])
            if word == b"maxsize" and int(values[word]) > broker.settings.proto_max_bulk_len:
                raise InvalidValueError(f"at most proto-max-bulk-len, {broker.settings.proto_max_bulk_len} bytes")
            if word == b"index" and not set(TRACE_NAMES).isdisjoint(values[word].split(b",")):
                raise InvalidValueError("WHERE can't use the names traceparent and tracestate")
            if word in OF_META:
                _refuse_reserved(values[word].split(b",") if word in LISTS else [values[word]])
        except InvalidValueError as refused:
            raise CommandError(INVALID.format(word.decode(), refused)) from None
    if any(field in values for field in CLAIM_FIELDS):
        _with_claim_fields(broker, name, values)
    return _change(broker, client, state_key(QUEUE, name), list(values.items()))


def _refuse_reserved(names: list[bytes]) -> None:
    """Refuse reserved names that no node gives to a job. A producer can't give them, either. Spec QS2."""
    for each in names:
        if each.startswith(RESERVED_META) and each not in GIVEN_META:
            raise InvalidValueError(NO_META.format(text_of(each[:SHOWN_BYTES_MAX])))


def _with_claim_fields(broker: Broker, name: bytes, values: dict[bytes, bytes]) -> None:
    """Add those fields that share a version with a changed one, and refuse claims without voters. Spec EX1."""
    shown = dict(broker.queue_settings.shown(name))
    changed = [field for field in CLAIM_FIELDS if field in values]
    for field in CLAIM_FIELDS:
        values.setdefault(field, shown[field])
    if values[b"type"] == b"exclusive" and not values[b"exclusive-by"]:
        raise CommandError(NO_NAME)
    for field, value in ((b"type", b"exclusive"), (b"assign", b"quorum")):
        if field in changed and values[field] == value:
            refuse_older(broker, FLOWS)
            if broker.claims.memory.list is None:
                raise CommandError(NEEDS_VOTERS.format(field.decode()))


def _change(broker: Broker, client: Client, key: bytes, values: list[tuple[bytes, bytes]]) -> bytes | None:
    refuse_older(broker)
    return settings_changes.change(broker, client, key, values, TEXTS)


def _get(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """GET queue: pairs of all fields, then `paused`, `version` and `behind`; nil if nothing was ever set."""
    name = argv[2]
    key = state_key(QUEUE, name)
    state = broker.queue_settings.states.get(key)
    pause = broker.pauses.versions.get(name)
    if state is None and pause is None:
        return nil_array(client.protocol)
    parts = [bulk(text) for pair in broker.queue_settings.shown(name) for text in pair]
    parts += [bulk("paused"), bulk(PAUSE_NAMES[pause[0] if pause is not None else 0])]
    parts += [bulk("version"), integer(state.highest() if state is not None else 0)]
    parts += [bulk("behind"), integer(settings_sync.behind(broker, key))]
    return array(parts)


def _list(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """LIST [pattern]: the names of queues with a setting that is no default, sorted."""
    return list_names(broker, client, argv, broker.queue_settings.in_force)


def _reset(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """RESET queue: each field has its default again, in a new version. A pause stays."""
    key = state_key(QUEUE, argv[2])
    if key not in broker.queue_settings.states:
        return OK
    return _change(broker, client, key, [(RESET_FIELD, b"")])


FORMS: Final = {
    b"set": Form(_set, 5, ANY),
    b"get": Form(_get, 3, 3),
    b"list": Form(_list, 2, 3),
    b"reset": Form(_reset, 3, 3),
}
