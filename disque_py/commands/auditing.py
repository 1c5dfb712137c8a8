"""The audit log: a line of JSON for each change by an operator, and for each refusal. Spec US10.

A change is a command of @operate or @admin that changes something (permissions.py). Its line has the outcome, so the
line of a command that is answered later is written then. A refusal is a failed login, or a command that a user may not
run. Secrets are left out as in MONITOR, and long commands are cut as in SLOWLOG. JSON keeps line ends of a client
inside their strings.

Refusals are also entries of ACL LOG and counted in INFO, with or without an audit log.
"""

from __future__ import annotations

from json import dumps
from typing import Final

from disque_py.commands.clients import line_of
from disque_py.commands.monitoring import redact
from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, Client
from disque_py.core.users import name_of

WORDS_MAX: Final = 32
WORD_BYTES_MAX: Final = 128
OUTCOME_BYTES_MAX: Final = 256
# Bytes of a name in ACL LOG.
WHAT_BYTES_MAX: Final = 128
# The outcome of a change whose client hung up. The work may go on.
HUNG_UP: Final = b"-the client hung up before the end"


def refused(broker: Broker, client: Client, reason: str, what: bytes, argv: list[bytes], command: str) -> None:
    """Note a command that the client's user may not run: reason `command` or `key`, and the command or name."""
    broker.stats.access_refusals += 1
    broker.access_log.add(reason, what[:WHAT_BYTES_MAX], name_of(client), line_of(broker, client), broker.wall_ms)
    if broker.settings.audit_log and broker.access_log.takes_line(broker.now_ms):
        _write(broker, client, name_of(client), cut(redact(argv, command)), "NOPERM")


def login_failed(broker: Broker, client: Client, name: bytes) -> None:
    """Note a failed login as this user."""
    name = name[:WHAT_BYTES_MAX]
    broker.stats.wrong_passwords += 1
    broker.stats.wrong_password_from = client.addr
    broker.access_log.failed(address_of(client), broker.now_ms)
    broker.access_log.add("auth", b"AUTH", name, line_of(broker, client), broker.wall_ms)
    if broker.settings.audit_log and broker.access_log.takes_line(broker.now_ms):
        _write(broker, client, name, [b"AUTH"], "WRONGPASS")


def address_of(client: Client) -> str:
    """Return a client's address without its port."""
    return client.addr.rpartition(":")[0]


class Change:
    """A change whose outcome is not known yet. The client keeps it while the command goes on."""

    __slots__ = ("_argv", "_broker", "_client", "_user")

    def __init__(self, broker: Broker, client: Client, argv: list[bytes], command: str) -> None:
        self._broker = broker
        self._client = client
        self._user = name_of(client)
        self._argv = cut(redact(argv, command))

    def ended(self, reply: bytes | None) -> None:
        """Write the line of the change with its outcome: its reply."""
        self._client.on_outcome = None
        outcome = "ok"
        if reply is not None and reply.startswith(b"-"):
            outcome = reply[1 : OUTCOME_BYTES_MAX + 1].decode("utf-8", "replace").rstrip("\r\n")
        _write(self._broker, self._client, self._user, self._argv, outcome)


def settle(client: Client, change: Change, reply: bytes | None) -> None:
    """End a change after its handler: now, or with the late reply that the client waits for."""
    if reply is None and client.waiting != RUNNING:
        client.on_outcome = change.ended
    else:
        change.ended(reply)


def cut(argv: list[bytes]) -> list[bytes]:
    """Return a command's words, cut to a readable size."""
    words = [word if len(word) <= WORD_BYTES_MAX else word[:WORD_BYTES_MAX] + b"..." for word in argv[:WORDS_MAX]]
    return [*words, b"... (%d more)" % (len(argv) - WORDS_MAX)] if len(argv) > WORDS_MAX else words


def _write(broker: Broker, client: Client, user: bytes, argv: list[bytes], outcome: str) -> None:
    fields: dict[str, object] = {
        "ts": broker.wall_ms,
        "node": broker.me.name.decode(),
        "user": user.decode("utf-8", "replace"),
        "address": client.addr,
        "command": [word.decode("utf-8", "replace") for word in argv],
        "outcome": outcome,
    }
    if broker.access_log.suppressed:
        fields["suppressed"] = broker.access_log.suppressed
        broker.access_log.suppressed = 0
    broker.host.audit(dumps(fields))
