"""MONITOR and SLOWLOG: the executed commands, and the slow ones.

Both show commands to other clients, so passwords are replaced first (spec Q35). While a client monitors,
node/dispatch.py calls `monitor_line` for each executed command. It calls `redact` before a slow command is remembered.
Spec R8.
"""

from __future__ import annotations

from typing import Final

from disque_py.commands.options import read_integer
from disque_py.commands.permissions import UNITS
from disque_py.commands.subcommands import Form, form_of, text_of
from disque_py.config.directives import BY_NAME
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.resp.replies import OK, array, bulk_array, integer

REDACTED: Final = b"(redacted)"
# Rules of ACL SETUSER with a password or its hash begin with these.
SECRET_RULES: Final = (b">", b"<", b"#", b"!")
SLOWLOG_WRONG_FORM: Final = "ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."
SLOWLOG_COUNT: Final = 10
# Bytes of a word that MONITOR shows. The body of a job may have 64 MiB, and each byte costs time.
WORD_BYTES_MAX: Final = 16 * 1024

# The original names of all commands.
_COMMANDS: Final = frozenset([unit.name.partition("|")[0] for unit in UNITS])

_LETTERS: Final = dict(zip(b'\\"\n\r\t\a\b', b'\\"nrtab', strict=True))


def _shown(char: int) -> bytes:
    if char in _LETTERS:
        return b"\\" + bytes((_LETTERS[char],))
    return bytes((char,)) if 32 <= char <= 126 else b"\\x%02x" % char


_ESCAPES: Final = tuple(_shown(char) for char in range(256))


def monitor(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """MONITOR → OK, then a line per executed command of any client. Repeating it changes nothing."""
    client.is_monitor = True
    broker.monitors[client] = None
    return OK


def monitor_line(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """Return the line of one command: time, address, arguments in quotes."""
    row = broker.commands.get(argv[0]) or broker.commands.get(argv[0].lower())
    addr = f"unix:{client.addr.removesuffix(':0')}" if client.is_unix else client.addr
    words = b" ".join(map(_quoted, redact(argv, row.name if row is not None else None)))
    seconds, ms = divmod(broker.wall_ms, 1000)
    return b"+%d.%06d [%b] %b\r\n" % (seconds, ms * 1000, addr.encode(), words)


def _quoted(word: bytes) -> bytes:
    rest = len(word) - WORD_BYTES_MAX
    return b'"%b"' % escaped(word) if rest <= 0 else b'"%b... (%d more bytes)"' % (escaped(word[:WORD_BYTES_MAX]), rest)


def escaped(word: bytes) -> bytes:
    """Return the word with quotes, backslashes and unprintable bytes as escapes."""
    if word.isalnum():
        return word
    return b"".join([_ESCAPES[char] for char in word])


def redact(argv: list[bytes], name: str | None = None) -> list[bytes]:
    """Return the command without its passwords. `name` is its original name if it may have been renamed.

    ACL DRYRUN and COMMAND GETKEYS have another command as their arguments, which may again be one of these, and so on.
    """
    command = argv[0].lower() if name is None else name.encode()
    at = 0
    while (skipped := _words_before_inner(command, argv, at)) > 0:
        at += skipped
        command = argv[at].lower()
        if command.decode("utf-8", "replace") not in _COMMANDS:  # This may be the name of a renamed AUTH.
            return _hidden_behind(argv, at)
    return _redact_one(command, argv) if at == 0 else [*argv[:at], *_redact_one(command, argv[at:])]


def _words_before_inner(command: bytes, argv: list[bytes], at: int) -> int:
    """Return how many words are between a command at `at` and the command in its arguments; 0 without one."""
    left = len(argv) - at
    if command == b"acl" and left > 3 and argv[at + 1].lower() == b"dryrun":
        return 3
    if command == b"command" and left > 2 and argv[at + 1].lower() == b"getkeys":
        return 2
    return 0


def _redact_one(command: bytes, argv: list[bytes]) -> list[bytes]:
    if command == b"auth":
        return _hidden_behind(argv, 0)
    if command == b"hello":
        return _redact_hello(argv)
    if command == b"acl":
        return [REDACTED if word[:1] in SECRET_RULES else word for word in argv]
    if command == b"config" and len(argv) > 3 and argv[1].lower() == b"set":
        return _redact_config(argv)
    return argv


def _hidden_behind(argv: list[bytes], at: int) -> list[bytes]:
    """Return the words up to this one, and hide all others."""
    return [*argv[: at + 1], *[REDACTED] * (len(argv) - at - 1)]


def _redact_config(argv: list[bytes]) -> list[bytes]:
    """Hide all words behind the name of a secret directive.

    A name that is unknown may be a misspelled one, or one of another server. Such servers also take several pairs.
    """
    for at in range(2, len(argv) - 1):
        directive = BY_NAME.get(text_of(argv[at]).lower())
        if at % 2 == 0 if directive is None else directive.is_secret:
            return _hidden_behind(argv, at)
    return argv


def _redact_hello(argv: list[bytes]) -> list[bytes]:
    """Hide both words after AUTH. If the name of the user is missing, the first one is the password."""
    shown = list(argv)
    for at in range(1, len(argv) - 1):  # Even a HELLO without a version may contain a password.
        if argv[at].lower() == b"auth":
            shown[at + 1 : at + 3] = [REDACTED] * len(shown[at + 1 : at + 3])
    return shown


def slowlog(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SLOWLOG GET [count] | LEN | RESET."""
    form = form_of(SLOWLOG_FORMS, argv)
    if form is None:
        raise CommandError(SLOWLOG_WRONG_FORM)
    return form.handler(broker, client, argv)


def _get(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """GET [count]: the newest first; a negative count: all."""
    count = read_integer(argv[2]) if len(argv) == 3 else SLOWLOG_COUNT
    log = list(broker.stats.slowlog)
    return array(
        array((integer(number), integer(wall_s), integer(usec), bulk_array(words)))
        for number, wall_s, usec, words in (log if count < 0 else log[:count])
    )


def _len(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return integer(len(broker.stats.slowlog))


def _reset(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    broker.stats.slowlog.clear()
    return OK


SLOWLOG_FORMS: Final = {
    b"get": Form(_get, 2, 3),
    b"len": Form(_len, 2, 2),
    b"reset": Form(_reset, 2, 2),
}
