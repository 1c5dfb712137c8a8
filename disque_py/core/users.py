"""Users: their names and passwords, and the commands and names that each user may use.

A `User` is immutable. `changed` applies rules, such as those of ACL SETUSER, and returns a new User. If a rule is
invalid, it raises RuleError. Rules are applied from left to right, as in Redis. `user.describe()` returns rules that
make the same user again. They are the line of ACL LIST, of the ACL file and of the shared state.

Permissions are *units*: a command, or a command and its subcommand (`config|get`). The `Catalog` says which units exist
and which categories each unit has. It derives from the table of commands (commands/permissions.py). A user has a set of
units, so a check is one look-up. The unit `@bodies` is not a command. It says whether the user sees bodies and
metadata in commands that also show other facts.

`Users` holds the users of a node. Each client has a reference to its user, `client.user`. It is None for the user
`default` as long as no rule restricts that user, so such a client costs one test per batch of requests. Spec US1, US2,
US3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

from disque_py.core.name_patterns import PATTERN_BYTES_MAX, NamePattern

if TYPE_CHECKING:
    from disque_py.core.client import Client

DEFAULT: Final = b"default"
CATEGORIES: Final = ("read", "bodies", "produce", "consume", "operate", "admin", "connection")
BODIES: Final = "@bodies"
NO_NAME: Final = "NOPERM No permissions to access a queue"

NAME_BYTES_MAX: Final = 1_024
# The most bytes of a user's rules as text. They must fit into one field of the shared state.
RULES_BYTES_MAX: Final = 60_000
USERS_MAX: Final = 10_000
PASSWORDS_MAX: Final = 100
# Clients that have not logged in send passwords, and hashing takes time, so their length is limited.
PASSWORD_BYTES_MAX: Final = 4_096
PATTERNS_MAX: Final = 500
NUMBER_MAX: Final = 1_000_000_000
# The most names whose permission is cached per user. Longer names are matched each time.
KNOWN_MAX: Final = 10_000
KNOWN_BYTES_MAX: Final = 256

SYNTAX: Final = "Syntax error"
UNKNOWN: Final = "Unknown command or category name in ACL"
NO_PASSWORD: Final = "The password you are trying to remove from the user does not exist"
BAD_HASH: Final = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
LONG_PASSWORD: Final = f"A password has at most {PASSWORD_BYTES_MAX} bytes"
AFTER_ALL: Final = (
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect."
    " Try 'resetkeys' to start with an empty list of patterns"
)
TOO_MANY: Final = "Too many passwords, patterns or rules"

_HASH: Final = re.compile(rb"[0-9a-f]{64}")
_RATE: Final = re.compile(rb"([0-9]{1,10})/([0-9]{1,10})(ms|s|m|h)?")
_NUMBER: Final = re.compile(rb"[0-9]{1,10}")
_UNIT_MS: Final = {b"ms": 1, b"": 1_000, b"s": 1_000, b"m": 60_000, b"h": 3_600_000}
# Compared in place of the passwords of an unknown user, so that the comparison takes the same time.
_NO_USER: Final = ("0" * 64,)


class RuleError(ValueError):
    """A rule that can't be applied. The text is the reason. It never contains a password."""

    def __init__(self, rule: bytes, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason


class Catalog:
    """The units that exist.

    categories   unit -> its categories
    commands     command -> its units
    """

    __slots__ = ("categories", "commands")

    def __init__(self, categories: dict[str, frozenset[str]]) -> None:
        self.categories = categories
        self.commands: dict[str, tuple[str, ...]] = {}
        for unit in categories:
            name = unit.partition("|")[0]
            self.commands[name] = (*self.commands.get(name, ()), unit)

    def of_category(self, category: str) -> list[str]:
        """Return the units of a category, sorted. The category `all` has every unit."""
        return sorted([unit for unit, found in self.categories.items() if category == "all" or category in found])


class Limits:
    """The limits of a user on each node. 0 means no limit.

    connections      clients at the same time
    queues           queues that the user has made and that still exist
    rate, per_ms     at most `rate` commands in `per_ms` milliseconds
    """

    __slots__ = ("connections", "per_ms", "queues", "rate")

    def __init__(self, connections: int = 0, queues: int = 0, rate: int = 0, per_ms: int = 0) -> None:
        self.connections = connections
        self.queues = queues
        self.rate = rate
        self.per_ms = per_ms

    def words(self) -> list[bytes]:
        """Return the rules of the limits that are set."""
        words = []
        if self.connections:
            words.append(b"limit:connections=%d" % self.connections)
        if self.queues:
            words.append(b"limit:queues=%d" % self.queues)
        if self.rate:
            span = b"%ds" % (self.per_ms // 1000) if self.per_ms % 1000 == 0 else b"%dms" % self.per_ms
            words.append(b"limit:rate=%d/%b" % (self.rate, span))
        return words


class User:
    """One user. It is immutable; a change makes another User.

    name        1 to 1,024 bytes without blanks and control characters
    is_on       whether the user may log in
    is_nopass   whether the user needs no password
    passwords   the SHA-256 of each password, in hex
    patterns    patterns of the names that the user may use
    rules       categories, commands and subcommands, in order, as ACL GETUSER shows them
    units       the units that these rules allow
    limits      the user's limits on each node
    """

    __slots__ = ("_known", "is_nopass", "is_on", "limits", "name", "passwords", "patterns", "rules", "units")

    def __init__(
        self,
        name: bytes,
        *,
        is_on: bool,
        is_nopass: bool,
        passwords: tuple[str, ...],
        patterns: tuple[NamePattern, ...],
        rules: tuple[str, ...],
        units: frozenset[str],
        limits: Limits,
    ) -> None:
        self.name = name
        self.is_on = is_on
        self.is_nopass = is_nopass
        self.passwords = passwords
        self.patterns = patterns
        self.rules = rules
        self.units = units
        self.limits = limits
        self._known: dict[bytes, bool] = {}

    @property
    def has_all_names(self) -> bool:
        """Whether the user may use every name."""
        return bool(self.patterns) and self.patterns[0].is_all

    @property
    def sees_bodies(self) -> bool:
        """Whether the user sees bodies and metadata of jobs."""
        return BODIES in self.units

    def may_name(self, name: bytes) -> bool:
        """Return whether the user may use a queue, topic, lock, schedule or batch of this name."""
        known = self._known.get(name)
        if known is not None:
            return known
        found = any(pattern.matches(name) for pattern in self.patterns)
        if len(name) <= KNOWN_BYTES_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[name] = found
        return found

    def may_match(self, pattern: bytes) -> bool:
        """Return whether the user may use every name that matches a pattern."""
        return any(own.covers(pattern) for own in self.patterns)

    def narrowed(self, patterns: list[bytes]) -> list[bytes] | None:
        """Return patterns that match the same names, but only those that the user may use.

        A pattern that the user's own patterns cover stays as it is. A wider pattern is replaced by those of the user's
        own patterns that it covers. None if no patterns match exactly these names.
        """
        found: list[bytes] = []
        for pattern in patterns:
            if self.may_match(pattern):
                found.append(pattern)
                continue
            wide = NamePattern(pattern)
            if wide.is_all or pattern.find(b"*") == len(pattern) - 1:
                inner = [own for own in self.patterns if wide.covers(own.text)]
                others = [own for own in self.patterns if own not in inner and not own.is_apart(pattern)]
                if inner and not others and all(own.covers(own.text) for own in inner):
                    found += [own.text for own in inner]
                    continue
            return None
        return found

    def words(self) -> list[bytes]:
        """Return the rules that make this user, without the name."""
        words = [b"on" if self.is_on else b"off"]
        if self.is_nopass:
            words.append(b"nopass")
        words += [b"#" + each.encode() for each in self.passwords]
        words += [b"~" + each.text for each in self.patterns]
        words += [rule.encode("utf-8", "surrogateescape") for rule in self.rules]
        return words + self.limits.words()

    def describe(self) -> bytes:
        """Return the line of ACL LIST."""
        return b"user %b %b" % (self.name, b" ".join(self.words()))

    def is_password(self, word: bytes) -> bool:
        """Return whether this is one of the user's passwords. Each one is compared in constant time."""
        return _is_among(self.passwords, word)


def _is_among(passwords: tuple[str, ...], word: bytes) -> bool:
    hashed = sha256(word).hexdigest()
    found = False
    for each in passwords:
        found |= compare_digest(each, hashed)
    return found


def is_valid_name(name: bytes) -> bool:
    """Return whether a user may have this name. A name must be one word of a line."""
    return 0 < len(name) <= NAME_BYTES_MAX and all(char > 32 and char != 127 for char in name)


def new_user(name: bytes) -> User:
    """Return a user that is off and has no passwords, names or commands."""
    return User(
        name,
        is_on=False,
        is_nopass=False,
        passwords=(),
        patterns=(),
        rules=("-@all",),
        units=frozenset(),
        limits=Limits(),
    )


def first_default(catalog: Catalog) -> User:
    """Return the user `default` of a node without rules. This user may do everything."""
    return changed(new_user(DEFAULT), (b"on", b"nopass", b"~*", b"+@all"), catalog)


class _Draft:
    """A user while rules are applied to it."""

    def __init__(self, user: User, catalog: Catalog) -> None:
        self.name = user.name
        self._catalog = catalog
        self._is_on = user.is_on
        self._is_nopass = user.is_nopass
        self._passwords = dict.fromkeys(user.passwords)
        self._patterns = {each.text: each for each in user.patterns}
        self._rules = list(user.rules)
        self._units = set(user.units)
        limits = user.limits
        self._limits = Limits(limits.connections, limits.queues, limits.rate, limits.per_ms)

    def read(self, rule: bytes) -> None:
        """Apply one rule. RuleError if it is invalid."""
        word = rule.lower()
        first = rule[:1]
        if word == b"on" or word == b"off":
            self._is_on = word == b"on"
        elif word == b"nopass":
            self._is_nopass = True
            self._passwords.clear()
        elif word == b"resetpass":
            self._is_nopass = False
            self._passwords.clear()
        elif first in (b">", b"<", b"#", b"!"):
            self._password(rule, first)
        elif word in (b"allkeys", b"~*"):
            self._patterns = {b"*": NamePattern(b"*")}
        elif word == b"resetkeys":
            self._patterns = {}
        elif first == b"~":
            self._pattern(rule)
        elif word == b"allcommands":
            self._command("+@all")
        elif word == b"nocommands":
            self._command("-@all")
        elif first in (b"+", b"-"):
            if not word.isascii():
                raise RuleError(rule, UNKNOWN)
            self._command(word.decode())
        elif word.startswith(b"limit:"):
            self._limit(rule, word[6:])
        elif word == b"reset":
            self._reset()
        else:
            raise RuleError(rule, SYNTAX)

    def _reset(self) -> None:
        self._is_on = self._is_nopass = False
        self._passwords.clear()
        self._patterns = {}
        self._command("-@all")
        self._limits = Limits()

    def _password(self, rule: bytes, first: bytes) -> None:
        word = rule[1:]
        if first in (b"#", b"!"):
            if _HASH.fullmatch(word) is None:
                raise RuleError(rule, BAD_HASH)
            hashed = word.decode()
        elif len(word) > PASSWORD_BYTES_MAX:
            raise RuleError(rule, LONG_PASSWORD)
        else:
            hashed = sha256(word).hexdigest()
        if first in (b">", b"#"):
            self._passwords[hashed] = None
            self._is_nopass = False
        elif hashed in self._passwords:
            del self._passwords[hashed]
        else:
            raise RuleError(rule, NO_PASSWORD)

    def _pattern(self, rule: bytes) -> None:
        text = rule[1:]
        if not text or len(text) > PATTERN_BYTES_MAX or any(char <= 32 or char == 127 for char in text):
            raise RuleError(rule, SYNTAX)
        pattern = NamePattern(text)
        if pattern.is_all:
            self._patterns = {b"*": NamePattern(b"*")}
        elif b"*" in self._patterns:
            raise RuleError(rule, AFTER_ALL)
        else:
            self._patterns[text] = pattern

    def _command(self, rule: str) -> None:
        """Apply `+x` or `-x`, where x is a category, a command or a subcommand. RuleError if x is unknown."""
        catalog = self._catalog
        target = rule[1:]
        units: Iterable[str]
        if target == "@all":
            units = [*catalog.categories, BODIES]
            self._rules = []
        elif target.startswith("@"):
            if target[1:] not in CATEGORIES:
                raise RuleError(rule.encode(), UNKNOWN)
            units = catalog.of_category(target[1:])
            if target == BODIES:
                units.append(BODIES)
        elif target in catalog.commands:
            units = catalog.commands[target]
            self._rules = [each for each in self._rules if not each[1:].startswith(f"{target}|")]
        elif target in catalog.categories:
            units = (target,)
        else:
            raise RuleError(rule.encode(), UNKNOWN)
        self._rules = [each for each in self._rules if each[1:] != target]
        self._rules.append(rule)
        if rule[0] == "+":
            self._units.update(units)
        else:
            self._units.difference_update(units)

    def _limit(self, rule: bytes, word: bytes) -> None:
        name, _, value = word.partition(b"=")
        if name in (b"connections", b"queues"):
            if _NUMBER.fullmatch(value) is None or int(value) > NUMBER_MAX:
                raise RuleError(rule, f"{name.decode()} must be a number from 0 to {NUMBER_MAX}")
            if name == b"connections":
                self._limits.connections = int(value)
            else:
                self._limits.queues = int(value)
        elif name == b"rate":
            if value == b"0":
                self._limits.rate = self._limits.per_ms = 0
                return
            match = _RATE.fullmatch(value)
            rate = int(match[1]) if match is not None else 0
            per_ms = int(match[2]) * _UNIT_MS[match[3] or b""] if match is not None else 0
            if not 0 < rate <= NUMBER_MAX or not 0 < per_ms <= NUMBER_MAX:
                raise RuleError(rule, "rate must be commands and a span, as in 5000/1s")
            self._limits.rate = rate
            self._limits.per_ms = per_ms
        else:
            raise RuleError(rule, SYNTAX)

    def user(self) -> User:
        """Return the user. RuleError if it is too large."""
        user = User(
            self.name,
            is_on=self._is_on,
            is_nopass=self._is_nopass,
            passwords=tuple(self._passwords),
            patterns=tuple(self._patterns.values()),
            rules=tuple(self._rules),
            units=frozenset(self._units),
            limits=self._limits,
        )
        if (
            len(user.passwords) > PASSWORDS_MAX
            or len(user.patterns) > PATTERNS_MAX
            or len(user.describe()) > RULES_BYTES_MAX
        ):
            raise RuleError(b"", TOO_MANY)
        return user


def changed(user: User, rules: Iterable[bytes], catalog: Catalog) -> User:
    """Return the user with these rules applied. RuleError names the first invalid rule."""
    draft = _Draft(user, catalog)
    for rule in rules:
        draft.read(rule)
    return draft.user()


def read_lines(text: bytes, catalog: Catalog) -> dict[bytes, User]:
    """Return the users of an ACL file, by name.

    Each line is `user <name> <rule> ...`. Empty lines and lines that begin with # are ignored. ValueError lists all
    errors, one per line. Its text contains no passwords.
    """
    users: dict[bytes, User] = {}
    wrong: list[str] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        if words[0].lower() != b"user" or len(words) < 2 or not is_valid_name(words[1]):
            wrong.append(f"{number}: line should start with user <username>")
        elif words[1] in users:
            wrong.append(f"{number}: this user is in the file twice")
        elif len(users) >= USERS_MAX:
            wrong.append(f"{number}: too many users, at most {USERS_MAX}")
            break
        else:
            try:
                users[words[1]] = changed(new_user(words[1]), words[2:], catalog)
            except RuleError as refused:
                wrong.append(f"{number}: {refused.reason}")
    if wrong:
        raise ValueError("\n".join(wrong))
    return users


class Meter:
    """A user's consumption on this node, for the user's limits. It survives changes of the user's rules.

    queues      queues that the user has made -> whether it has also named the queue for later
    looked_ms   when queues that are gone were last removed from `queues`
    spent_ms    the moment until which the user's commands have used up the rate, multiplied by `rate`
    """

    __slots__ = ("looked_ms", "queues", "spent_ms")

    def __init__(self) -> None:
        self.queues: dict[bytes, bool] = {}
        self.looked_ms = -1_000
        self.spent_ms = 0

    def spend(self, limits: Limits, now_ms: int) -> bool:
        """Count a command if the rate allows it, and return whether it does. The burst is `rate` commands."""
        now = now_ms * limits.rate
        spent = max(self.spent_ms, now)
        if spent + limits.per_ms > now + limits.rate * limits.per_ms:
            return False
        self.spent_ms = spent + limits.per_ms
        return True


class Users:
    """The users of a node.

    catalog        the units that exist; dispatch installs it
    by_name        all users, `default` first
    of_clients     the user of a new connection; None: `default` without restrictions
    meters         name -> the user's consumption on this node
    is_audited     whether there is an audit log, so that `client.user` is set for every client
    actor          the client whose command changes users now
    is_actor_gone  whether that command ends the client's own connection
    """

    __slots__ = ("actor", "by_name", "catalog", "is_actor_gone", "is_audited", "meters", "of_clients")

    def __init__(self) -> None:
        self.catalog = Catalog({})
        self.by_name: dict[bytes, User] = {DEFAULT: first_default(self.catalog)}
        self.of_clients: User | None = None
        self.meters: dict[bytes, Meter] = {}
        self.actor: Client | None = None
        self.is_actor_gone = False
        self.is_audited = False

    def install(self, catalog: Catalog, *, is_audited: bool = False) -> None:
        """Install the units that exist, and apply the rules of known users again."""
        self.catalog = catalog
        self.is_audited = is_audited
        self.by_name = {name: changed(new_user(name), user.words(), catalog) for name, user in self.by_name.items()}
        self.of_clients = self.pointer(self.by_name[DEFAULT])

    def pointer(self, user: User) -> User | None:
        """Return the value of `client.user` for a client of this user: None if there is nothing to check."""
        limits = user.limits
        is_plain = (
            user.name == DEFAULT
            and not self.is_audited
            and user.is_on
            and user.is_nopass
            and user.has_all_names
            and len(user.units) == len(self.catalog.categories) + 1
            and not (limits.connections or limits.queues or limits.rate)
        )
        return None if is_plain else user

    def put(self, user: User) -> None:
        """Add a user, or replace the user of this name."""
        self.by_name[user.name] = user
        if user.name == DEFAULT:
            self.of_clients = self.pointer(user)

    def drop(self, name: bytes) -> None:
        """Forget a user. `default` can't be forgotten."""
        assert name != DEFAULT
        del self.by_name[name]
        self.meters.pop(name, None)

    def meter(self, name: bytes) -> Meter:
        """Return the meter of a user. Make one if there is none."""
        meter = self.meters.get(name)
        if meter is None:
            meter = self.meters[name] = Meter()
        return meter

    def find(self, name: bytes, password: bytes) -> User | None:
        """Return the user with this name and password if the user is on, else None. All cases take the same time."""
        user = self.by_name.get(name)
        is_right = _is_among(user.passwords if user is not None and user.passwords else _NO_USER, password)
        if user is None or not user.is_on or not (is_right or user.is_nopass):
            return None
        return user


def name_of(client: Client) -> bytes:
    """Return the name of a client's user."""
    return client.user.name if client.user is not None else DEFAULT


def may_name(client: Client, name: bytes) -> bool:
    """Return whether a client may use a name. Commands that list names show only such names. Spec US5."""
    return client.user is None or client.user.may_name(name)


def name_filter(client: Client) -> Callable[[bytes], bool] | None:
    """Return the test for names that a client may use; None if it may use all names.

    A long command keeps the test that it began with.
    """
    user = client.user
    return None if user is None or user.has_all_names else user.may_name


def visible(client: Client, names: Iterable[bytes]) -> list[bytes]:
    """Return the names that a client may use, in the given order."""
    is_visible = name_filter(client)
    return list(names) if is_visible is None else [name for name in names if is_visible(name)]


def sees_bodies(client: Client) -> bool:
    """Return whether a client sees bodies and metadata of jobs."""
    return client.user is None or client.user.sees_bodies
