"""ACL: users, their permissions, and what was refused. Replies are those of Redis. Spec US1, US2, US7, US9.

`docs/users.md` is the guide. permissions.py has the categories, user_changes.py makes changes.
"""

from __future__ import annotations

from typing import Final

from disque_py.commands import access, user_changes
from disque_py.commands.monitoring import SECRET_RULES, escaped
from disque_py.commands.options import read_integer
from disque_py.commands.subcommands import ANY, Form, form_of, text_of
from disque_py.core.access_log import LogEntry
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.users import (
    CATEGORIES,
    DEFAULT,
    USERS_MAX,
    RuleError,
    User,
    changed,
    is_valid_name,
    name_of,
    new_user,
)
from disque_py.resp.replies import OK, array, bulk, bulk_array, integer, nil_array, pairs, simple

WRONG_FORM: Final = (
    "ERR unknown subcommand or wrong number of arguments for 'acl'. Try SETUSER, GETUSER, DELUSER, LIST, USERS, WHOAMI,"
    " CAT, LOG, SAVE, LOAD, DRYRUN or GENPASS"
)
BAD_NAME: Final = "ERR Usernames can't contain spaces or null characters"
DEFAULT_STAYS: Final = "ERR The 'default' user cannot be removed"
BITS_MAX: Final = 4_096
BITS_DEFAULT: Final = 256
BITS_ERROR: Final = f"ERR ACL GENPASS argument must be the number of bits for the output password, from 1 to {BITS_MAX}"
LOG_COUNT: Final = 10
RULE_BYTES_MAX: Final = 64


def acl(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ACL subcommand [argument ...]."""
    form = form_of(FORMS, argv)
    if form is None:
        raise CommandError(WRONG_FORM)
    return form.handler(broker, client, argv)


def _setuser(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SETUSER name [rule ...]: all rules or none."""
    name = argv[2]
    if not is_valid_name(name):
        raise CommandError(BAD_NAME)
    users = broker.users
    old = users.by_name.get(name)
    if old is None and len(users.by_name) >= USERS_MAX:
        raise CommandError(f"ERR too many users, at most {USERS_MAX}")
    try:
        user = changed(old or new_user(name), argv[3:], users.catalog)
    except RuleError as refused:
        raise CommandError(f"ERR Error in ACL SETUSER modifier '{_shown(refused.rule)}': {refused.reason}") from None
    return user_changes.set_user(broker, client, user)


def _shown(rule: bytes) -> str:
    """Return a rule for an error, without its password."""
    if rule[:1] in SECRET_RULES:
        return f"{rule[:1].decode()}..."
    return escaped(rule[:RULE_BYTES_MAX]).decode()


def _deluser(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    if DEFAULT in argv[2:]:
        raise CommandError(DEFAULT_STAYS)
    return user_changes.drop_users(broker, client, argv[2:])


def _getuser(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """GETUSER name: a map of flags, passwords, commands, names and limits; nil for an unknown user."""
    user = broker.users.by_name.get(argv[2])
    if user is None:
        return nil_array(client.protocol)
    return pairs(
        (
            ("flags", array(map(bulk, _flags(broker, user)))),
            ("passwords", bulk_array(user.passwords)),
            ("commands", bulk(" ".join(user.rules))),
            ("keys", bulk(b" ".join([b"~" + each.text for each in user.patterns]))),
            ("channels", bulk("")),
            ("selectors", array(())),
            ("limits", bulk(b" ".join(user.limits.words()))),
        ),
        client.protocol,
    )


def _flags(broker: Broker, user: User) -> list[str]:
    flags = ["on" if user.is_on else "off"]
    if user.is_nopass and not (user.name == DEFAULT and broker.settings.requirepass):
        flags.append("nopass")
    return flags


def _list(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return bulk_array(broker.users.by_name[name].describe() for name in sorted(broker.users.by_name))


def _users(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return bulk_array(sorted(broker.users.by_name))


def _whoami(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return bulk(name_of(client))


def _cat(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """CAT: the categories; CAT category: its commands, and subcommands as command|subcommand."""
    if len(argv) == 2:
        return bulk_array(CATEGORIES)
    category = text_of(argv[2]).lower().removeprefix("@")
    if category != "all" and category not in CATEGORIES:
        raise CommandError(f"ERR Unknown category '{escaped(argv[2][:RULE_BYTES_MAX]).decode()}'")
    return bulk_array(broker.users.catalog.of_category(category))


def _log(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """LOG [count] | LOG RESET: refusals, newest first."""
    if len(argv) == 3 and argv[2].lower() == b"reset":
        broker.access_log.entries.clear()
        return OK
    count = read_integer(argv[2]) if len(argv) == 3 else LOG_COUNT
    if count < 0:
        raise CommandError("ERR the count must be a number >= 0")
    return array([_log_entry(broker, client, each) for each in list(broker.access_log.entries)[:count]])


def _log_entry(broker: Broker, client: Client, entry: LogEntry) -> bytes:
    age = f"{max(0, broker.wall_ms - entry.created_ms) / 1000:.3f}"
    return pairs(
        (
            ("count", integer(entry.count)),
            ("reason", bulk(entry.reason)),
            ("context", bulk("toplevel")),
            ("object", bulk(entry.what)),
            ("username", bulk(entry.user)),
            ("age-seconds", b",%b\r\n" % age.encode() if client.protocol == 3 else bulk(age)),
            ("client-info", bulk(entry.client)),
            ("entry-id", integer(entry.number)),
            ("timestamp-created", integer(entry.created_ms)),
            ("timestamp-last-updated", integer(entry.updated_ms)),
        ),
        client.protocol,
    )


def _save(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    return user_changes.save(broker, client)


def _load(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    return user_changes.reload(broker, client)


def _dryrun(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """DRYRUN name command [argument ...]: OK, or the reason why the user may not run it. Nothing is done."""
    user = broker.users.by_name.get(argv[2])
    if user is None:
        raise CommandError(f"ERR User '{escaped(argv[2][:RULE_BYTES_MAX]).decode()}' not found")
    request = argv[3:]
    entry = broker.commands.get(request[0]) or broker.commands.get(request[0].lower())
    if entry is None:
        raise CommandError(f"ERR Command '{escaped(request[0][:RULE_BYTES_MAX]).decode()}' not found")
    if not entry.accepts(len(request)):
        raise CommandError(f"ERR wrong number of arguments for '{entry.name}' command")
    found = access.denied(broker, user, entry.access, request, is_free=entry.is_for_strangers)
    if found is None:
        return simple("OK")
    what = escaped(found.what[:RULE_BYTES_MAX]).decode()
    shown = escaped(user.name).decode()
    if found.reason == access.COMMAND:
        return bulk(f"User {shown} has no permissions to run the '{what}' command")
    return bulk(f"User {shown} has no permissions to access '{what}'")


def _genpass(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """GENPASS [bits]: as many random bits in hex, rounded up to a digit."""
    bits = read_integer(argv[2], BITS_ERROR) if len(argv) == 3 else BITS_DEFAULT
    if not 1 <= bits <= BITS_MAX:
        raise CommandError(BITS_ERROR)
    digits = -(-bits // 4)
    return bulk(broker.host.random_bytes(-(-digits // 2)).hex()[:digits])


FORMS: Final = {
    b"setuser": Form(_setuser, 3, ANY),
    b"getuser": Form(_getuser, 3, 3),
    b"deluser": Form(_deluser, 3, ANY),
    b"list": Form(_list, 2, 2),
    b"users": Form(_users, 2, 2),
    b"whoami": Form(_whoami, 2, 2),
    b"cat": Form(_cat, 2, 3),
    b"log": Form(_log, 2, 3),
    b"save": Form(_save, 2, 2),
    b"load": Form(_load, 2, 2),
    b"dryrun": Form(_dryrun, 4, ANY),
    b"genpass": Form(_genpass, 2, 3),
}
