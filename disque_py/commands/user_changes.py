"""Changes of users: in this node, in its ACL file, and in the cluster. Spec US7, US8.

A change is in force immediately. Clients of a removed or disabled user are disconnected. So are clients that wait for
jobs, or stream commands or events, if their user may not see these any more, or if they have to log in now. A client
that waits for a lock, for the ends of jobs or for a batch gets the error of its command. A client that changes its own
user gets the reply first.

With `acl-cluster yes` users are shared state, as queue settings are (core/settings_sync.py): one field with the rules
of a user. Each node obeys each change when it hears of it. Rules that only a newer version knows grant nothing here.
Otherwise users are in the ACL file, if there is one, and each change is written there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_py.commands.access import end_wait, may_fetch_on, may_wait_on
from disque_py.commands.logins import is_stranger
from disque_py.core import deferred_reply, settings_sync
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.deferred_reply import Done
from disque_py.core.errors import CommandError
from disque_py.core.queue_settings import COUNTER_MAX, FULL, NO_VERSION, RESET_FIELD, USER, state_key
from disque_py.core.users import DEFAULT, RuleError, User, changed, is_valid_name, name_of, new_user, read_lines
from disque_py.core.versions import FLOWS, refuse_older
from disque_py.log_lines import tell
from disque_py.resp.replies import OK, integer

RULES: Final = b"rules"
NO_FILE: Final = (
    "ERR This Disque instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER"
    " command, or to set aclfile in the configuration"
)


# -- in this node -----------------------------------------------------------------------------------


def put(broker: Broker, user: User) -> None:
    """Add or replace a user, and apply the change to its clients."""
    broker.users.put(user)
    _obey(broker, user.name)


def drop(broker: Broker, name: bytes) -> None:
    """Forget a user, and disconnect its clients."""
    broker.users.drop(name)
    _obey(broker, name)


def _obey(broker: Broker, name: bytes) -> None:
    user = broker.users.by_name.get(name)
    for client in list(broker.clients.values()):
        if name_of(client) != name:
            continue
        if user is None or not user.is_on:
            _end(broker, client)
            continue
        before = client.user
        client.user = broker.users.pointer(user)
        if not may_wait_on(broker, client) or not may_fetch_on(broker, client, before):
            _end(broker, client)
        else:
            end_wait(broker, client)


def _end(broker: Broker, client: Client) -> None:
    """Disconnect a client. The one whose command this is gets its reply first."""
    if client is broker.users.actor:
        broker.users.is_actor_gone = True
    else:
        client.port.close(after_replies=False)


def end_strangers(broker: Broker, actor: Client) -> None:
    """End the waits and streams of clients that have to log in since `actor` has set `requirepass`."""

    def end_all() -> None:
        for client in list(broker.clients.values()):
            if not is_stranger(broker, client):
                continue
            if not may_wait_on(broker, client):
                _end(broker, client)
            else:
                end_wait(broker, client)

    actor.close_asked |= _as_actor(broker, actor, end_all)


def replace_all(broker: Broker, users: dict[bytes, User]) -> None:
    """Put these users in the place of all others. Without `default` among them, that user stays as it is."""
    for name in [name for name in broker.users.by_name if name not in users and name != DEFAULT]:
        drop(broker, name)
    for user in users.values():
        if broker.users.by_name.get(user.name) is not user:
            put(broker, user)


# -- at the start -----------------------------------------------------------------------------------


def join(broker: Broker) -> None:
    """Obey the users of the cluster, if acl-cluster says so."""
    if broker.settings.acl_cluster:
        broker.queue_settings.watch(USER, partial(_heard, broker))


def _heard(broker: Broker, name: bytes, fields: dict[bytes, bytes]) -> None:
    """Obey a user of the cluster as it is now; without fields it was removed."""
    if not is_valid_name(name):
        return
    if not fields:
        # `default` can't be removed. CLUSTER RESET forgets all users, and must not open what a rule has closed.
        if name != DEFAULT and name in broker.users.by_name:
            drop(broker, name)
        return
    put(broker, _readable(broker, name, fields.get(RULES, b"").split()))


def _readable(broker: Broker, name: bytes, rules: list[bytes]) -> User:
    """Return the user with the rules this version knows. An unknown rule turns it off, unless it names a command."""
    user = new_user(name)
    is_known = True
    for rule in rules:
        try:
            user = changed(user, (rule,), broker.users.catalog)
        except RuleError:
            is_known &= rule[:1] in (b"+", b"-")
            tell(broker.host, "acl-rule-unknown", user=name.decode("utf-8", "replace"))
    return user if is_known else changed(user, (b"off",), broker.users.catalog)


# -- changes by clients -----------------------------------------------------------------------------


def set_user(broker: Broker, client: Client, user: User) -> bytes | None:
    """Make a change of ACL SETUSER: reply OK when it is kept where users are kept. CommandError."""
    if broker.settings.acl_cluster:
        return _share(broker, client, {user.name: [(RULES, b" ".join(user.words()))]}, OK)
    return _change(broker, client, partial(put, broker, user), OK)


def drop_users(broker: Broker, client: Client, names: list[bytes]) -> bytes | None:
    """Make the changes of ACL DELUSER: reply how many users there were. CommandError."""
    known = [name for name in dict.fromkeys(names) if name in broker.users.by_name]
    if broker.settings.acl_cluster:
        return _share(broker, client, {name: [(RESET_FIELD, b"")] for name in known}, integer(len(known)))

    def drop_all() -> None:
        for name in known:
            drop(broker, name)

    return _change(broker, client, drop_all, integer(len(known)))


def _as_actor(broker: Broker, client: Client, action: Callable[[], None]) -> bool:
    """Do `action` for a client. Return whether it removed the client's own user."""
    broker.users.actor = client
    broker.users.is_actor_gone = False
    try:
        action()
    finally:
        broker.users.actor = None
    return broker.users.is_actor_gone


def _change(broker: Broker, client: Client, action: Callable[[], None], reply: bytes) -> bytes | None:
    is_gone = _as_actor(broker, client, action)
    if not broker.settings.aclfile:
        client.close_asked |= is_gone
        return reply
    return _saved(broker, client, reply, is_gone=is_gone)


def _saved(broker: Broker, client: Client, reply: bytes, *, is_gone: bool = False) -> bytes | None:
    def outcome(failure: OSError | None) -> bytes:
        client.close_asked |= is_gone
        if failure is not None:
            tell(broker.host, "acl-file-failed", reason=failure.strerror or str(failure))
            raise CommandError(
                f"ERR the change is in force, but the ACL file can't be written: {failure.strerror or failure}"
            )
        return reply

    return deferred_reply.begin(broker, client, partial(broker.host.write_acl_file, file_of(broker)), outcome)


def file_of(broker: Broker) -> bytes:
    """Return the users as the text of an ACL file."""
    return b"".join([user.describe() + b"\n" for user in broker.users.by_name.values()])


def save(broker: Broker, client: Client) -> bytes | None:
    """Run ACL SAVE. CommandError."""
    if not broker.settings.aclfile:
        raise CommandError(NO_FILE)
    return _saved(broker, client, OK)


def reload(broker: Broker, client: Client) -> bytes | None:
    """Run ACL LOAD: all users of the file, or none. CommandError."""
    if not broker.settings.aclfile:
        raise CommandError(NO_FILE)
    found: list[bytes] = []

    def start(done: Done) -> None:
        broker.host.read_acl_file(found.append, done)

    def outcome(failure: OSError | None) -> bytes:
        if failure is not None:
            raise CommandError(f"ERR the ACL file can't be read: {failure.strerror or failure}")
        try:
            users = read_lines(found[0], broker.users.catalog)
        except ValueError as wrong:
            text = "; ".join(str(wrong).split("\n")[:10])
            raise CommandError(f"ERR {text}. No users were changed") from None
        client.close_asked |= _as_actor(broker, client, partial(replace_all, broker, users))
        return OK

    return deferred_reply.begin(broker, client, start, outcome)


def _share(
    broker: Broker, client: Client, changes: dict[bytes, list[tuple[bytes, bytes]]], reply: bytes
) -> bytes | None:
    """Change users of the cluster. The reply waits for the file and for linked nodes, as that of QUEUE SET."""
    refuse_older(broker, FLOWS)
    keys = {state_key(USER, name): values for name, values in changes.items()}
    for key, values in keys.items():
        if not settings_sync.has_room(broker, key, values):
            raise CommandError(FULL)
        if broker.queue_settings.next_counter(key) > COUNTER_MAX:
            raise CommandError(NO_VERSION)
    if not keys:
        return reply
    is_gone = False
    failures: list[OSError | None] = []

    def start(done: Done) -> None:
        nonlocal is_gone

        def one_done(failure: OSError | None) -> None:
            failures.append(failure)
            if len(failures) == len(keys):
                done(next((each for each in failures if each is not None), None))

        def change_all() -> None:
            for key, values in keys.items():
                settings_sync.change(broker, key, values, one_done)

        is_gone = _as_actor(broker, client, change_all)
        if is_gone and len(failures) == len(keys):
            client.close_asked = True

    def outcome(failure: OSError | None) -> bytes:
        client.close_asked |= is_gone
        if failure is not None:
            raise CommandError(f"ERR the change is in force, but can't be saved: {failure.strerror or failure}")
        return reply

    return deferred_reply.begin(broker, client, start, outcome)
