"""Commands about the client's own connection: AUTH, PING, and ECHO, SELECT and RESET, which generic clients send.

Spec R7. A login without a name is one of the user `default` (logins.py). QUIT is not here: it works in all states, so
node/dispatch.py handles it.
"""

from __future__ import annotations

from typing import Final

from disque_py.commands import logins
from disque_py.commands.options import read_integer
from disque_py.core.broker import Broker
from disque_py.core.client import REPLY_ON, Client
from disque_py.core.errors import CommandError
from disque_py.core.users import DEFAULT
from disque_py.resp.replies import OK, bulk, simple

NO_PASSWORD: Final = "ERR Client sent AUTH, but no password is set"

PONG: Final = simple("PONG")


def auth(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """AUTH [username] password. A wrong one also ends an earlier login."""
    if len(argv) > 3:
        raise CommandError("ERR wrong number of arguments for 'auth' command")
    if len(argv) == 2 and not logins.needs_login(broker):
        raise CommandError(NO_PASSWORD)
    name = argv[1] if len(argv) == 3 else DEFAULT

    def log_in() -> bytes:
        user = logins.find(broker, name, argv[-1])
        if user is None:
            logins.refused(broker, client, name)
            raise CommandError(logins.WRONG_PASSWORD if len(argv) == 3 else "ERR invalid password")
        logins.enter(broker, client, user)
        return OK

    return logins.answer(broker, client, log_in)


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
    logins.end_stream(broker, client)
    logins.leave(broker, client)
    client.protocol = 2
    client.name = b""
    client.reply_mode = REPLY_ON
    client.is_in_multi = False
    return simple("RESET")
