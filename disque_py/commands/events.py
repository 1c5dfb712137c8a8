"""EVENTS INFO, READ, SEEK, TAIL: the node's log of events, for programs that follow the lives of jobs.

Readers work through a log by its id and the numbers of its events. docs/events.md describes both, and the lines.
Spec E6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_py.commands.options import INT64_MAX, read_integer, read_timeout, value_of
from disque_py.commands.subcommands import Form, form_of, text_of
from disque_py.core import deferred_reply, visible_events
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.core.event_source import EventSource
from disque_py.core.users import name_filter
from disque_py.resp.replies import OK, array, bulk, integer

COUNT_DEFAULT: Final = 10_000
BYTES_DEFAULT: Final = 1 << 20
BYTES_MAX: Final = 64 << 20
NAME_BYTES_MAX: Final = 64
NO_WAIT: Final = -1
# The latest moment of SEEK. A moment beyond the year 5000 is a mistake, such as a wrong unit.
MS_MAX: Final = 100_000_000_000_000

NO_LOG: Final = "NOLOG none"
NO_BLOCKS: Final = "NOPERM a user whose names are restricted reads FORMAT LINES"
NO_READ: Final = "NOPERM this user has no permissions to run the 'events|read' command"
# The bytes of lines that are filtered at a time: about a millisecond of work.
FILTERED_BYTES_MAX: Final = 256 << 10

Reply = bytes | CommandError


def events(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """EVENTS INFO | READ | SEEK | TAIL."""
    form = form_of(FORMS, argv)
    if form is None:
        raise CommandError(f"ERR Unknown EVENTS subcommand or wrong number of arguments for '{text_of(argv[1])}'")
    return form.handler(broker, client, argv)


def _source(broker: Broker) -> EventSource:
    if broker.event_source is None:
        raise CommandError(NO_LOG)
    return broker.event_source


def _info(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """INFO → log id, first event, first event that can't be read yet, bytes, as pairs of name and value."""
    log_id, first_seq, durable_seq, size = _source(broker).position()
    pairs = (
        ("log-id", bulk(log_id)),
        ("first-seq", integer(first_seq)),
        ("next-seq", integer(durable_seq)),
        ("bytes", integer(size)),
    )
    return array([part for name, value in pairs for part in (bulk(name), value)])


def _read(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """READ log-id seq [COUNT n] [MAXBYTES b] [BLOCK ms] [READER name] [FORMAT f] → lines or blocks, or nothing."""
    seq = _number(argv[3], "seq", 1)
    count, bytes_max, block_ms, name, is_packed = COUNT_DEFAULT, BYTES_DEFAULT, NO_WAIT, "", False
    for at in range(4, len(argv), 2):
        option = argv[at].lower()
        word = value_of(argv, at)
        if option == b"count":
            count = _number(word, "COUNT", 1)
        elif option == b"maxbytes":
            bytes_max = min(_number(word, "MAXBYTES", 1), BYTES_MAX)
        elif option == b"block":
            block_ms = read_timeout(word)
        elif option == b"reader":
            name = _name(word)
        elif option == b"format":
            is_packed = _is_packed(word)
        else:
            raise CommandError(SYNTAX)
    source = _source(broker)
    log_id = text_of(argv[2])
    if name_filter(client) is not None:
        if is_packed:
            raise CommandError(NO_BLOCKS)
        bytes_max = min(bytes_max, FILTERED_BYTES_MAX)
    return _ask(
        broker,
        client,
        lambda done: source.read(
            client, argv, log_id, seq, count, bytes_max, block_ms, name, done, is_packed=is_packed
        ),
        partial(_visible, client),
    )


def _visible(client: Client, reply: bytes) -> bytes:
    """Return the reply without lines that the client's user may not see, as it is now. CommandError."""
    user = client.user
    if user is not None and "events|read" not in user.units:
        raise CommandError(NO_READ)
    may_name = name_filter(client)
    if may_name is None:
        return reply
    return bulk(visible_events.visible(reply[reply.index(b"\n") + 1 : -2], may_name))


def _seek(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SEEK unix-ms → the first event that is not older, or the number of the next one."""
    wall_ms = _number(argv[2], "SEEK", 0, MS_MAX)
    source = _source(broker)
    return _ask(broker, client, lambda done: source.seek(wall_ms, done), _whole)


def _whole(reply: bytes) -> bytes:
    return reply


def _tail(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """TAIL → OK, then lines as they become readable, for as long as the client takes them in time."""
    _source(broker).tail(client)
    client.is_tail = True
    client.is_monitor = True  # A client of the class `stream`, which no back-pressure slows down.
    return OK


def _ask(
    broker: Broker,
    client: Client,
    ask: Callable[[Callable[[Reply], None]], None],
    shown: Callable[[bytes], bytes],
) -> bytes | None:
    """Ask for a reply, which comes now or later; `shown` returns the part that the client gets."""
    replies: list[Reply] = []

    def start(done: deferred_reply.Done) -> None:
        def over(reply: Reply) -> None:
            replies.append(reply)
            done(None)

        ask(over)

    def outcome(_: OSError | None) -> bytes:
        reply = replies[0]
        if isinstance(reply, CommandError):
            raise reply
        return shown(reply)

    return deferred_reply.begin(broker, client, start, outcome)


def _number(word: bytes, what: str, low: int, high: int = INT64_MAX) -> int:
    text = f"ERR {what} must be a number from {low} to {high}"
    value = read_integer(word, text)
    if not low <= value <= high:
        raise CommandError(text)
    return value


def _is_packed(word: bytes) -> bool:
    known = word.lower()
    if known not in (b"lines", b"packed"):
        raise CommandError("ERR FORMAT must be LINES or PACKED")
    return known == b"packed"


def _name(word: bytes) -> str:
    if not 0 < len(word) <= NAME_BYTES_MAX or not all(char in NAME_CHARS for char in word):
        raise CommandError(f"ERR READER must be 1 to {NAME_BYTES_MAX} letters, digits, '.', '-', '_' or '/'")
    return word.decode("ascii")


NAME_CHARS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_/")

FORMS: Final = {
    b"info": Form(_info, 2, 2),
    b"read": Form(_read, 4, 14),
    b"seek": Form(_seek, 3, 3),
    b"tail": Form(_tail, 2, 2),
}
