"""SCHEDULE: jobs at moments that a cron expression or a span names, on all nodes.

SET reads all words before anything is changed. The options of its jobs are read by ADDJOB itself, so both commands know
the same options and refuse them with the same words. A change is answered as QUEUE SET is: when it is on this node's
disk and linked nodes had a second to confirm it (core/settings_sync.py). core/firing.py fires.

Spec SD1, SD3, SD5, SD10.
"""

from __future__ import annotations

from typing import Final

from disque_py.commands import settings_changes
from disque_py.commands.adding import RESERVED_ERROR, RESERVED_META, addjob
from disque_py.commands.name_lists import list_names
from disque_py.commands.options import between
from disque_py.commands.subcommands import ANY, SHOWN_BYTES_MAX, Form, run_form, syntax_error, text_of
from disque_py.core import incremental, memory, settings_sync
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.cron import Cron, CronError, Ticks
from disque_py.core.errors import OOM, SYNTAX, CommandError
from disque_py.core.firing import ADD_MS, KEY_PREFIX, META_SCHEDULE, META_TICK
from disque_py.core.queue_fields import VALUE_BYTES_MAX, InvalidValueError, span_ms, span_text
from disque_py.core.queue_settings import QUEUES_MAX, RESET_FIELD, SCHEDULE, state_key
from disque_py.core.recurring import (
    CATCHUPS,
    EVERY_MS_MIN,
    MOMENT_MAX,
    NAME_BYTES_MAX,
    OVERLAPS,
    PAUSE,
    PROGRESS,
    SPEC,
    Definition,
    Schedule,
    pack_pause,
)
from disque_py.core.users import sees_bodies
from disque_py.core.versions import FLOWS, refuse_older
from disque_py.resp.replies import OK, array, bulk, bulk_array, integer, nil_array, nil_bulk

CRON_ERROR: Final = "ERR invalid cron expression: {}"
ZONE_ERROR: Final = "ERR unknown time zone '{}'"
EVERY_ERROR: Final = "ERR EVERY must be at least 1s"
NAME_ERROR: Final = f"ERR the name of a schedule must have 1 to {NAME_BYTES_MAX} bytes"
SIZE_ERROR: Final = f"ERR a schedule has at most {VALUE_BYTES_MAX} bytes, body and options included"
NO_SUCH: Final = "ERR no such schedule"
NO_VERSION: Final = "ERR the schedule has the highest version there is"
# Files of a system's zone database that are no IANA names. Their rules differ from machine to machine, so nodes would
# disagree about the ticks.
LOCAL_ZONES: Final = (b"localtime", b"posixrules", b"posix/", b"right/")
SCHEDULES_MAX: Final = 10_000
TOO_MANY: Final = f"ERR too many schedules, at most {SCHEDULES_MAX}"
FULL: Final = f"ERR too many schedules and settings, at most {QUEUES_MAX}"
TEXTS: Final = settings_changes.Texts(FULL, NO_VERSION, "schedule")
COUNT_ERROR: Final = "ERR COUNT must be a number from 1 to 1000"

# NEXT: ticks without COUNT, at most, and in one part. A part with rare ticks ends earlier, because the zone's rules are
# read for the whole time between them.
NEXT_COUNT: Final = 10
NEXT_COUNT_MAX: Final = 1_000
NEXT_PER_PART: Final = 20
NEXT_MS_PER_PART: Final = 366 * 86_400_000
# The words of SET before the options of ADDJOB; and those of ADDJOB that a schedule's jobs can't have.
WORDS: Final = (b"cron", b"every", b"tz", b"catchup", b"overlap", b"queue", b"body")
NOT_ALLOWED: Final = (b"async", b"key", b"window", b"replace")
# Options of ADDJOB that are a single word, or have two behind them. The others have one.
SINGLE: Final = (b"async", b"replace")
DOUBLE: Final = (b"meta",)
# The most options among which the wrong word is searched for.
SEARCHED_MAX: Final = 64


def schedule(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SCHEDULE SET name … | GET name | LIST [pattern] | PAUSE name | RESUME name | DEL name | RUN name | NEXT name …"""
    return run_form(FORMS, broker, client, argv)


# -- SET ----------------------------------------------------------------------------------------------------------


def _set(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SET name CRON expr|EVERY time [TZ zone] [CATCHUP …] [OVERLAP …] QUEUE queue [BODY body] [options of ADDJOB]."""
    name = argv[2]
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise CommandError(NAME_ERROR)
    known = broker.recurring.known
    if name not in known and len(known) >= SCHEDULES_MAX:
        raise CommandError(TOO_MANY)
    definition = _read_definition(broker, name, argv)
    _check_options(broker, client, definition)
    packed = definition.pack()
    if len(packed) > VALUE_BYTES_MAX:
        raise CommandError(SIZE_ERROR)
    return _change(broker, client, name, [(PAUSE, b""), (PROGRESS, b""), (SPEC, packed)])


def _read_definition(broker: Broker, name: bytes, argv: list[bytes]) -> Definition:
    words: dict[bytes, bytes] = {}
    at = 3
    while at < len(argv) and argv[at].lower() in WORDS:
        word = argv[at].lower()
        if at + 1 == len(argv) or (word == b"cron" and b"every" in words) or (word == b"every" and b"cron" in words):
            raise syntax_error(argv[at])
        words[word] = argv[at + 1]
        at += 2
    options = argv[at:]
    if b"queue" not in words or (b"cron" not in words and b"every" not in words):
        raise syntax_error(argv[at] if options else argv[-1])
    catchup = words.get(b"catchup", b"last").lower()
    overlap = words.get(b"overlap", b"allow").lower()
    if catchup not in CATCHUPS:
        raise syntax_error(words[b"catchup"])
    if overlap not in OVERLAPS:
        raise syntax_error(words[b"overlap"])
    known = broker.recurring.known.get(name)
    generation = max(broker.wall_ms, known.definition.generation + 1 if known is not None else 0)
    definition = Definition(
        min(generation, MOMENT_MAX),
        broker.wall_ms,
        words.get(b"cron", b""),
        _read_every(words[b"every"]) if b"every" in words else 0,
        words.get(b"tz", b"UTC"),
        catchup,
        overlap,
        words[b"queue"],
        words.get(b"body", b""),
        options,
    )
    if b"cron" in words:
        _check_cron(definition.cron)
    if definition.zone.startswith(LOCAL_ZONES) or broker.recurring.zone(definition.zone, broker.host.time_zone) is None:
        raise CommandError(ZONE_ERROR.format(text_of(definition.zone[:SHOWN_BYTES_MAX])))
    return definition


def _read_every(value: bytes) -> int:
    try:
        ms = span_ms(value)
    except InvalidValueError:
        ms = 0
    if not EVERY_MS_MIN <= ms <= MOMENT_MAX:
        raise CommandError(EVERY_ERROR)
    return ms


def _check_cron(expression: bytes) -> None:
    try:
        Cron(expression.decode("ascii", "replace"))
    except CronError as wrong:
        raise CommandError(CRON_ERROR.format(str(wrong)[:SHOWN_BYTES_MAX])) from None


def _check_options(broker: Broker, client: Client, definition: Definition) -> None:
    """Have ADDJOB read the options. CommandError, with the wrong word if it does not understand one."""
    options = definition.options
    at = 0
    while at < len(options):
        option = options[at].lower()
        if option in NOT_ALLOWED:
            raise syntax_error(options[at])
        if option in DOUBLE and at + 1 < len(options) and options[at + 1].startswith(RESERVED_META):
            raise CommandError(RESERVED_ERROR)
        at += 1 if option in SINGLE else 3 if option in DOUBLE else 2
    try:
        _read_options(broker, client, definition, options)
    except CommandError as refused:
        if refused.text != SYNTAX:
            raise
        raise syntax_error(_wrong_word(broker, client, definition)) from None


def _read_options(broker: Broker, client: Client, definition: Definition, options: list[bytes]) -> None:
    recurring = broker.recurring
    argv = [b"ADDJOB", definition.queue, definition.body, b"%d" % ADD_MS, b"KEY", KEY_PREFIX]
    argv += [b"META", META_SCHEDULE, b"", b"META", META_TICK, b"", *options]
    recurring.is_internal = recurring.is_checking = True
    try:
        addjob(broker, client, argv)
    finally:
        recurring.is_internal = recurring.is_checking = False


def _wrong_word(broker: Broker, client: Client, definition: Definition) -> bytes:
    """Return the first option that ADDJOB does not understand: it understands those before it."""
    options = definition.options
    for count in range(min(len(options), SEARCHED_MAX) - 1, 0, -1):
        try:
            _read_options(broker, client, definition, options[:count])
        except CommandError:
            continue
        return options[count]
    return options[0]


def _change(
    broker: Broker, client: Client, name: bytes, values: list[tuple[bytes, bytes]], reply: bytes = OK
) -> bytes | None:
    key = state_key(SCHEDULE, name)
    refuse_older(broker, FLOWS)
    return settings_changes.change(broker, client, key, values, TEXTS, reply)


# -- PAUSE, RESUME, DEL, RUN --------------------------------------------------------------------------------------


def _pause(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """PAUSE name: nothing fires until RESUME."""
    found = broker.recurring.known.get(argv[2])
    if found is None:
        return integer(0)
    if found.is_paused:
        return integer(1)
    return _change(broker, client, argv[2], [(PAUSE, pack_pause(True, found.floor_ms))], integer(1))


def _resume(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """RESUME name: ticks from now on fire again. Ticks during the pause neither fire nor count as missed."""
    found = broker.recurring.known.get(argv[2])
    if found is None:
        return integer(0)
    if not found.is_paused:
        return integer(1)
    return _change(broker, client, argv[2], [(PAUSE, pack_pause(False, broker.wall_ms))], integer(1))


def _delete(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """DEL name: the schedule is gone. Its jobs stay."""
    if argv[2] not in broker.recurring.known:
        return integer(0)
    return _change(broker, client, argv[2], [(RESET_FIELD, b"")], integer(1))


def _run(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """RUN name: a job now, outside the ticks."""
    found = broker.recurring.known.get(argv[2])
    if found is None:
        raise CommandError(NO_SUCH)
    if broker.used_memory > broker.memory.limits[1] and memory.is_full(broker):
        raise CommandError(OOM)
    definition = found.definition
    words = [b"ADDJOB", definition.queue, definition.body, b"%d" % ADD_MS, b"META", META_SCHEDULE, found.name]
    broker.recurring.is_internal = True
    try:
        return addjob(broker, client, words + definition.options)
    finally:
        broker.recurring.is_internal = False


# -- GET, LIST, NEXT ----------------------------------------------------------------------------------------------


def _get(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """GET name: pairs of its definition and its progress; nil if there is no such schedule."""
    found = broker.recurring.known.get(argv[2])
    if found is None:
        return nil_array(client.protocol)
    definition, progress = found.definition, found.progress
    nil = nil_bulk(client.protocol)
    ticks = _ticks_of(broker, found)
    next_ms = ticks.after(max(broker.wall_ms, found.base_ms)) if ticks is not None and not found.is_paused else 0
    pairs = [
        ("name", bulk(found.name)),
        ("cron", bulk(definition.cron) if definition.cron else nil),
        ("every", bulk(span_text(definition.every_ms)) if definition.every_ms else nil),
        ("tz", bulk(definition.zone)),
        ("catchup", bulk(definition.catchup)),
        ("overlap", bulk(definition.overlap)),
        ("queue", bulk(definition.queue)),
        ("body", bulk(definition.body) if sees_bodies(client) else nil),
        ("options", bulk_array(definition.options if sees_bodies(client) else ())),
        ("paused", integer(int(found.is_paused))),
        ("next", integer(next_ms) if next_ms else nil),
        ("last", integer(progress.last_ms) if progress.last_ms else nil),
        ("last-id", bulk(progress.job_id) if progress.job_id else nil),
        ("fired", integer(progress.fired)),
        ("missed", integer(progress.missed)),
        ("behind", integer(settings_sync.behind(broker, state_key(SCHEDULE, found.name)))),
    ]
    return array([part for name, value in pairs for part in (bulk(name), value)])


def _ticks_of(broker: Broker, found: Schedule) -> Ticks | None:
    if found.ticks is None:
        found.ticks = broker.recurring.ticks_of(found.definition, broker.host.time_zone)
    return found.ticks


def _list(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """LIST [pattern]: the names of schedules, sorted."""
    return list_names(broker, client, argv, broker.recurring.known)


def _next(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """NEXT name [COUNT n]: the next ticks as Unix ms, also of a paused schedule; empty if there is no such schedule."""
    count = NEXT_COUNT
    for at in range(3, len(argv), 2):
        if argv[at].lower() != b"count" or at + 1 == len(argv):
            raise syntax_error(argv[at])
        count = between(argv[at + 1] or b"-", 1, NEXT_COUNT_MAX, COUNT_ERROR)
    found = broker.recurring.known.get(argv[2])
    ticks = _ticks_of(broker, found) if found is not None else None
    if found is None or ticks is None:
        return array([])
    return incremental.begin(broker, client, _next_ticks(ticks, max(broker.wall_ms, found.base_ms), count))


def _next_ticks(ticks: Ticks, at_ms: int, count: int) -> incremental.Steps:
    parts: list[bytes] = []
    begin_ms = at_ms
    while len(parts) < count:
        at_ms = ticks.after(at_ms)
        if not at_ms:
            break
        parts.append(integer(at_ms))
        if len(parts) % NEXT_PER_PART == 0 or at_ms - begin_ms > NEXT_MS_PER_PART:
            begin_ms = at_ms
            yield
    return array(parts)


FORMS: Final = {
    b"set": Form(_set, 7, ANY),
    b"get": Form(_get, 3, 3),
    b"list": Form(_list, 2, 3),
    b"pause": Form(_pause, 3, 3),
    b"resume": Form(_resume, 3, 3),
    b"del": Form(_delete, 3, 3),
    b"run": Form(_run, 3, 3),
    b"next": Form(_next, 3, ANY),
}
