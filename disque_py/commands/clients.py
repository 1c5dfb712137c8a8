"""CLIENT: lists connections; sets names and reply modes; pauses and disconnects clients.

Spec R8. SETINFO, ID, INFO, NO-EVICT, NO-TOUCH and TRACKING off exist because generic clients send them when they
connect. SETINFO, NO-EVICT, NO-TOUCH and TRACKING off have no effect here.
"""

from __future__ import annotations

from typing import Final

from disque_py.commands.options import read_integer, read_timeout
from disque_py.commands.subcommands import ANY, Form, form_of, text_of
from disque_py.core import incremental
from disque_py.core.broker import Broker
from disque_py.core.client import REPLY_OFF, REPLY_ON, REPLY_SKIP, REPLY_SKIP_AGAIN, Client
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.core.users import name_of
from disque_py.resp.replies import OK, bulk, integer, nil_bulk

WRONG_FORM: Final = "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
BAD_NAME: Final = "ERR Client names cannot contain spaces, newlines or special characters."
NAME_BYTES_MAX: Final = 1024
LONG_NAME: Final = f"ERR Client names have at most {NAME_BYTES_MAX} bytes"
# Lines of CLIENT LIST written before the loop does other work.
CLIENTS_PER_PART: Final = 50
KILL_OPTIONS: Final = (b"id", b"type", b"addr", b"skipme")


def client(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """CLIENT subcommand [argument ...]."""
    form = form_of(FORMS, argv)
    if form is None:
        raise CommandError(WRONG_FORM)
    client.last_command = "client"  # LIST shows its caller with the command that it is running.
    return form.handler(broker, client, argv)


def line_of(broker: Broker, client: Client) -> str:
    """Return a client's line of CLIENT LIST, without the line end.

    Our connections have no spare input buffer and no fixed output buffer, so qbuf-free and obl are 0. oll counts the
    replies of this turn. omem counts the bytes that the client has not taken yet.
    """
    output = client.port.output_bytes()
    return (
        f"id={client.id} addr={client.addr} fd={client.fd} name={text_of(client.name)}"
        f" age={max(0, broker.now_ms - client.connected_ms) // 1000}"
        f" idle={max(0, broker.now_ms - client.active_ms) // 1000}"
        f" flags={_flags(client)} qbuf={client.port.input_bytes()} qbuf-free=0"
        f" obl=0 oll={len(client.out)} omem={output} events={'rw' if output else 'r'}"
        f" cmd={client.last_command or 'NULL'} user={text_of(name_of(client))}"
    )


def _flags(client: Client) -> str:
    flags = (
        ("O", client.is_monitor),
        ("b", bool(client.waiting)),
        ("c", client.close_asked),
        ("U", client.is_unix),
    )
    return "".join(letter for letter, is_set in flags if is_set) or "N"


def check_name(name: bytes) -> bytes:
    """Return the name if it is valid. CommandError."""
    if len(name) > NAME_BYTES_MAX:
        raise CommandError(LONG_NAME)
    if any(not 33 <= char <= 126 for char in name):
        raise CommandError(BAD_NAME)
    return name


def _list(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    return incremental.begin(broker, client, _list_in_parts(broker))


def _list_in_parts(broker: Broker) -> incremental.Steps:
    lines: list[str] = []
    for at, number in enumerate(sorted(broker.clients)):
        if at and at % CLIENTS_PER_PART == 0:
            yield
        each = broker.clients.get(number)
        if each is not None:  # The client may have disconnected since the last part.
            lines.append(line_of(broker, each) + "\n")
    return bulk("".join(lines))


def _info(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return bulk(line_of(broker, client) + "\n")


def _id(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return integer(client.id)


def _getname(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return bulk(client.name) if client.name else nil_bulk(client.protocol)


def _setname(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    client.name = check_name(argv[2])
    return OK


def _kill(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """KILL addr; or KILL with filters, all of which must match."""
    if len(argv) == 2:
        raise CommandError(SYNTAX)
    if len(argv) == 3:
        if argv[2].lower() in KILL_OPTIONS:
            raise CommandError(SYNTAX)
        addr = text_of(argv[2])
        found = [each for each in broker.clients.values() if each.addr == addr]
        if not found:
            raise CommandError("ERR No such client")
        _end(found, client)
        return OK
    found = _matching(broker, client, argv)
    _end(found, client)
    return integer(len(found))


def _matching(broker: Broker, client: Client, argv: list[bytes]) -> list[Client]:
    if len(argv) % 2:
        raise CommandError(SYNTAX)
    ids: set[int] = set()
    addrs: set[str] = set()
    skips_me = True
    for at in range(2, len(argv), 2):
        option, word = argv[at].lower(), argv[at + 1]
        if option == b"id":
            number = read_integer(word, SYNTAX)
            if number < 1:
                raise CommandError(SYNTAX)
            ids.add(number)
        elif option == b"addr":
            addrs.add(text_of(word))
        elif option == b"type":
            if word.lower() != b"normal":  # There is no other type.
                raise CommandError(f"ERR Unknown client type '{text_of(word)}'")
        elif option == b"skipme" and word.lower() in (b"yes", b"no"):
            skips_me = word.lower() == b"yes"
        else:
            raise CommandError(SYNTAX)
    if len(ids) > 1 or len(addrs) > 1:
        return []  # All filters must match.
    return [
        each
        for each in broker.clients.values()
        if (not ids or each.id in ids) and (not addrs or each.addr in addrs) and not (skips_me and each is client)
    ]


def _end(found: list[Client], me: Client) -> None:
    """Disconnect these clients. A client that kills itself gets the reply first."""
    for each in found:
        if each is me:
            me.close_asked = True
        else:
            each.port.close(after_replies=False)


def _reply(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """REPLY on|off|skip. node/dispatch.py applies the mode to each command's reply."""
    word = argv[2].lower()
    if word == b"on":
        client.reply_mode = REPLY_ON
        return OK
    if word == b"off":
        client.reply_mode = REPLY_OFF
    elif word == b"skip":
        if client.reply_mode != REPLY_OFF:
            client.reply_mode = REPLY_SKIP_AGAIN if client.reply_mode == REPLY_SKIP else REPLY_SKIP
    else:
        raise CommandError(SYNTAX)
    return None


def _pause(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """PAUSE milliseconds: run no client's commands until then, except UNPAUSE. A shorter pause changes nothing."""
    until_ms = broker.now_ms + read_timeout(argv[2])
    broker.waits.clients_paused_until_ms = max(broker.waits.clients_paused_until_ms, until_ms)
    return OK


def _unpause(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """UNPAUSE: end the pause, and run the commands that clients sent meanwhile."""
    broker.waits.clients_paused_until_ms = 0
    broker.outbox.clients.update(dict.fromkeys(broker.clients.values()))
    return OK


def runs_in_pause(broker: Broker, argv: list[bytes]) -> bool:
    """Return whether a command runs in a pause: UNPAUSE and a login, so that a pause of a year needs no restart."""
    entry = broker.commands.get(argv[0]) or broker.commands.get(argv[0].lower())
    if entry is None:
        return False
    is_unpause = entry.name == "client" and len(argv) == 2 and argv[1].lower() == b"unpause"
    return is_unpause or entry.name in ("auth", "hello")


def _accept(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """Accept a subcommand of other servers that has no meaning here."""
    return OK


def _accept_switch(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    if argv[2].lower() not in (b"on", b"off"):
        raise CommandError(SYNTAX)
    return OK


def _accept_off(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    if argv[2].lower() != b"off":
        raise CommandError(WRONG_FORM)
    return OK


FORMS: Final = {
    b"list": Form(_list, 2, 2),
    b"info": Form(_info, 2, 2),
    b"id": Form(_id, 2, 2),
    b"getname": Form(_getname, 2, 2),
    b"setname": Form(_setname, 3, 3),
    b"kill": Form(_kill, 2, ANY),
    b"reply": Form(_reply, 3, 3),
    b"pause": Form(_pause, 3, 3),
    b"unpause": Form(_unpause, 2, 2),
    b"setinfo": Form(_accept, 4, 4),
    b"no-evict": Form(_accept_switch, 3, 3),
    b"no-touch": Form(_accept_switch, 3, 3),
    b"tracking": Form(_accept_off, 3, 3),
}
