"""Commands about the client's own connection: AUTH, PING, and ECHO, SELECT and RESET, which generic clients send.

Spec R7. There is one password and no users. Where a user name is required (HELLO … AUTH) it is `default`. Passwords are
compared in constant time. QUIT is not here: it works in all states, so node/dispatch.py handles it.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import Final

from disque_py.commands.options import read_integer
from disque_py.core.broker import Broker
from disque_py.core.client import REPLY_ON, Client
from disque_py.core.errors import CommandError
from disque_py.resp.replies import OK, bulk, simple

DEFAULT_USER: Final = b"default"
NO_PASSWORD: Final = "ERR Client sent AUTH, but no password is set"

PONG: Final = simple("PONG")


def is_password(broker: Broker, word: bytes) -> bool:
    """Return whether this is the password. CommandError if none is set."""
    password = broker.settings.requirepass
    if not password:
        raise CommandError(NO_PASSWORD)
    return compare_digest(password.encode("utf-8", "surrogateescape"), word)


def note_wrong_password(broker: Broker, client: Client) -> None:
    """Count a wrong password, for INFO and the log."""
    broker.stats.wrong_passwords += 1
    broker.stats.wrong_password_from = client.addr


def auth(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """AUTH [username] password. A wrong one also ends an earlier login."""
    if len(argv) > 3:
        raise CommandError("ERR wrong number of arguments for 'auth' command")
    is_right = is_password(broker, argv[-1])
    client.is_authenticated = is_right and (len(argv) == 2 or argv[1] == DEFAULT_USER)
    if not client.is_authenticated:
        note_wrong_password(broker, client)
        raise CommandError("ERR invalid password")
    return OK


def ping(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """PING [message] → PONG, or the message."""
    if len(argv) > 2:
        raise CommandError("ERR wrong number of arguments for 'ping' command")
    return bulk(argv[1]) if len(argv) == 2 else PONG


def echo(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """ECHO message → the message."""
    return bulk(argv[1])


def select(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """SELECT index: accept database 0, the only one, for clients that always choose one."""
    if read_integer(argv[1], "ERR invalid DB index"):
        raise CommandError("ERR DB index is out of range")
    return OK


def reset(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """RESET: bring the connection back to the state it had when it was opened. A login and MONITOR end."""
    client.is_authenticated = False
    client.protocol = 2
    client.name = b""
    client.reply_mode = REPLY_ON
    client.is_monitor = False
    client.is_in_multi = False
    broker.monitors.pop(client, None)
    return simple("RESET")
