"""Logins: AUTH, HELLO … AUTH, and the user of a client certificate. Spec R7, US1, US8, US9.

`requirepass` is a password of the user `default`. Others may be added with ACL SETUSER. A login is refused in the same
words and in the same time whether the user is unknown, disabled, or has another password. An address from which several
logins failed lately waits a second for each further answer, also for a right one. Meanwhile its connection does nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from typing import Final

from disque_py.commands import auditing
from disque_py.core import deferred_reply
from disque_py.core.access_log import DELAY_MS
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.users import DEFAULT, NAME_BYTES_MAX, PASSWORD_BYTES_MAX, User, name_of

WRONG_PASSWORD: Final = "WRONGPASS invalid username-password pair or user is disabled."
CONNECTIONS: Final = "LIMIT the user may have {} connections to this node"


def needs_login(broker: Broker) -> bool:
    """Return whether a client that has not logged in may do nothing: `default` has a password, or is off."""
    if broker.settings.requirepass:
        return True
    user = broker.users.of_clients
    return user is not None and not (user.is_on and user.is_nopass)


def is_stranger(broker: Broker, client: Client) -> bool:
    """Return whether a client has to log in first."""
    return not client.is_authenticated and needs_login(broker)


def find(broker: Broker, name: bytes, password: bytes) -> User | None:
    """Return the user with this name and password, if it may log in."""
    if len(name) > NAME_BYTES_MAX or len(password) > PASSWORD_BYTES_MAX:
        return None
    found = broker.users.find(name, password)
    required = broker.settings.requirepass
    if name != DEFAULT or not required:
        return found
    default = broker.users.by_name[DEFAULT]
    is_right = compare_digest(required.encode("utf-8", "surrogateescape"), password)
    is_right |= found is not None and default.is_password(password)
    return default if is_right and default.is_on else None


def count_of(broker: Broker, name: bytes) -> int:
    """Return how many clients of this node have logged in as a user, or are `default` without a login."""
    return sum([name_of(each) == name and not is_stranger(broker, each) for each in broker.clients.values()])


def is_full(broker: Broker) -> bool:
    """Return whether a new connection would be one too many for `default`, which it begins as."""
    user = broker.users.of_clients
    if user is None or not user.limits.connections or needs_login(broker):
        return False
    return count_of(broker, DEFAULT) >= user.limits.connections


def connections_text(broker: Broker) -> str:
    """Return the error of a connection that `is_full` refuses."""
    user = broker.users.by_name[DEFAULT]
    broker.stats.limit_refusals += 1
    return CONNECTIONS.format(user.limits.connections)


def enter(broker: Broker, client: Client, user: User) -> None:
    """Make the client one of this user. CommandError if the user has enough connections."""
    most = user.limits.connections
    if most and (name_of(client) != user.name or is_stranger(broker, client)) and count_of(broker, user.name) >= most:
        broker.stats.limit_refusals += 1
        raise CommandError(CONNECTIONS.format(most))
    client.user = broker.users.pointer(user)
    client.is_authenticated = True
    if client.is_monitor and not may_stream(broker, client):
        end_stream(broker, client)


def leave(broker: Broker, client: Client) -> None:
    """End the client's login."""
    client.user = broker.users.of_clients
    client.is_authenticated = False
    if client.is_monitor and not may_stream(broker, client):
        end_stream(broker, client)


def may_stream(broker: Broker, client: Client) -> bool:
    """Return whether a client's user allows all that the client streams: commands, events, or both. Spec US8."""
    if is_stranger(broker, client):
        return not client.is_monitor
    user = client.user
    if user is None:
        return True
    if client in broker.monitors and "monitor" not in user.units:
        return False
    return not client.is_tail or "events|tail" in user.units


def end_stream(broker: Broker, client: Client) -> None:
    """End MONITOR and EVENTS TAIL of a client, if it uses them."""
    client.is_monitor = client.is_tail = False
    broker.monitors.pop(client, None)
    if broker.event_source is not None:
        broker.event_source.forget(client)


def refused(broker: Broker, client: Client, name: bytes) -> None:
    """Note a failed login. It also ends an earlier one."""
    auditing.login_failed(broker, client, name)
    leave(broker, client)


def enter_by_certificate(broker: Broker, client: Client, common_name: bytes) -> None:
    """Make the client the user that its certificate names, if there is one that is on. Otherwise it has to log in."""
    user = broker.users.by_name.get(common_name)
    if user is not None and user.is_on and user.name != DEFAULT:
        enter(broker, client, user)


def answer(broker: Broker, client: Client, reply: Callable[[], bytes]) -> bytes | None:
    """Return the reply to a login, or let the client wait for it if its address guesses passwords."""
    if not broker.access_log.is_guessing(auditing.address_of(client), broker.now_ms):
        return reply()

    def start(done: deferred_reply.Done) -> None:
        broker.schedule.call_at(broker.now_ms + DELAY_MS, partial(done, None))

    def outcome(_: OSError | None) -> bytes:
        if broker.clients.get(client.id) is not client:
            return b""  # The client has hung up, so it gets no reply.
        return reply()

    return deferred_reply.begin(broker, client, start, outcome)
