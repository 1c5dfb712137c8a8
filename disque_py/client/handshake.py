"""The first commands of a connection, and the errors that its callers get when it breaks.

AUTH, CLIENT SETNAME and HELLO leave in one write, so a connection is ready after one round trip (spec X4). The asyncio
and the blocking connection share this module. Pure.
"""

from __future__ import annotations

import os
from typing import Final

from disque_py.client import results
from disque_py.client.address import Address
from disque_py.client.errors import (
    ConnectionLostError,
    DisqueConnectionError,
    NoPermissionError,
    ProtocolError,
    ReplyError,
)
from disque_py.client.options import ClientOptions
from disque_py.client.protocol import Reply, encode, text, word
from disque_py.client.results import Hello

# The reason of a handshake with a server without TLS, as OpenSSL names it.
NOT_TLS: Final = "WRONG_VERSION_NUMBER"


def handshake(options: ClientOptions) -> list[bytes]:
    """Return the commands that a connection begins with."""
    commands: list[list[bytes]] = []
    if options.password is not None:
        secret = word(options.password)
        commands.append([b"AUTH", secret] if options.username is None else [b"AUTH", word(options.username), secret])
    if options.name is not None:
        commands.append([b"CLIENT", b"SETNAME", word(options.name)])
    commands.append([b"HELLO"] if options.place is None else [b"HELLO", b"EXTENDED"])
    return [encode(command) for command in commands]


def read_handshake(replies: list[Reply], address: Address) -> Hello:
    """Return the HELLO among a handshake's replies. Raises the first ReplyError among them.

    A user without permission for CLIENT SETNAME may use its connection, which has no name then. The same is true for a
    node that has no CLIENT, because an operator renamed it. Raises ProtocolError
    for the HELLO of another kind of server. A wrong port often leads to one.
    """
    for reply in replies:
        if isinstance(reply, ReplyError) and not _is_about_the_name(reply):
            raise reply
    try:
        return results.hello(replies[-1])
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ProtocolError(f"{address}: {_kind_of(replies[-1])} answers here, and no Disque node") from error


def _kind_of(reply: Reply) -> str:
    is_redis = isinstance(reply, list) and reply[:1] == [b"server"] and len(reply) > 1 and isinstance(reply[1], bytes)
    return f"a {text(reply[1])} server" if is_redis else "another server"


def _is_about_the_name(reply: ReplyError) -> bool:
    is_unknown = reply.text.lower().startswith("err unknown command 'client'")
    return is_unknown or (isinstance(reply, NoPermissionError) and "'client|setname'" in reply.text)


def reason_of(error: BaseException, *, is_tls: bool) -> str:
    """Return why a connection could not be made, with advice if one side may expect TLS, and the other one not."""
    advice = ""
    if is_tls and getattr(error, "reason", None) == NOT_TLS:
        advice = " (the port may not speak TLS)"
    elif not is_tls and type(error) is ConnectionLostError:
        advice = " (if it speaks TLS, use disques:// or tls=)"
    # asyncio's own text of a refused connection repeats the address.
    number = error.errno if isinstance(error, OSError) and not hasattr(error, "reason") else None
    return f"{os.strerror(number) if number is not None and number > 0 else error}{advice}"


def failure(error: DisqueConnectionError, *, sent: bool) -> DisqueConnectionError:
    """Return a connection's failure for one of its callers: a new object, with its own traceback."""
    kind = type(error) if isinstance(error, ConnectionLostError) else ConnectionLostError
    return kind(str(error), sent=sent)
