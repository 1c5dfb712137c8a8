"""Authentication: the principal of a request, from its Authorization header or its certificate.

A caller logs in with one of these:

- A bearer token of the access file.
- A token of the issuer (oidc.py), if the access file maps its claims to grants.
- A certificate that TLS has verified and that the access file names. A header wins over a certificate.
- Name and password of a user of the broker (Basic). The gateway logs in at a node with them, so the broker checks them.

The first three use the gateway's own login at the nodes, and their grants limit them. A user of the broker uses its own
login, and the broker limits it. If no logins are configured, every caller is the same principal with all roles, and
only loopback addresses are served.

Clients of broker users are kept while they are used. Their keys have hashes of passwords and tokens, never the secrets.
A user has one client for each password that it uses, even if its first requests come at the same time.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import math
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final

from disque_py.client import AsyncDisque, AuthError, ClientOptions, ReplyError
from disque_py.client.options import settings_of
from disque_py.gateway.logins.access_file import EMPTY, AccessFile, read_access_file
from disque_py.gateway.logins.broker_patterns import expression_of
from disque_py.gateway.logins.certificates import Certificate
from disque_py.gateway.logins.claims import grants_of_claims
from disque_py.gateway.logins.grants import ALL, ROLES, Grant, Principal
from disque_py.gateway.logins.oidc import Issuer
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.rates import LoginFailures
from disque_py.gateway.settings import Settings
from disque_py.gateway.shapes import readable

# Further clients are closed, unless they may be in use.
CLIENTS_MAX: Final = 100
# The broker is asked again about an accepted login after this time, so a removed user loses access by then.
CHECK_AGAIN_S: Final = 10.0
FILE_CHECK_S: Final = 1.0
LOG: Final = logging.getLogger("disque-gateway")
# A checked token of the issuer is valid for this time before it is checked again.
CHECKED_S: Final = 60.0
CHECKED_MAX: Final = 10_000
NAME_MAX: Final = 200
# The broker's user of a login without a name.
DEFAULT: Final = "default"
# The scheme of the console's logins at the issuer: an ID token, which names the console as its audience. So no other
# interface accepts it.
ID_TOKEN: Final = "Id-Token"


class Logins:
    """The principals of the gateway.

    settings      settings of the gateway
    options       options of connections to the nodes, with the gateway's own login
    cluster       name of the cluster, for entries of the access file that name clusters
    issuer        the issuer of tokens; None if there is none
    failures      failed logins of all clusters
    needs_login   whether a request without a login is refused
    """

    def __init__(
        self,
        settings: Settings,
        options: ClientOptions,
        cluster: str = "",
        issuer: Issuer | None = None,
        failures: LoginFailures | None = None,
    ) -> None:
        self._settings = settings
        self.needs_login = settings.has_logins
        self._options = options
        self._cluster = cluster
        self._issuer = issuer
        self.failures = failures or LoginFailures()
        self._checked: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._certificates: dict[str, Principal] = {}
        self._salt = secrets.token_bytes(16)
        self._users: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        # Checks of passwords that run now: of a login, and of a login from an address.
        self._asking: dict[bytes | tuple[bytes, str], asyncio.Task[Principal]] = {}
        self._access = EMPTY
        self._file_state: tuple[int, int] | None = None
        self._file_checked = 0.0
        self._file_fault = ""
        self.client = AsyncDisque(*options.seeds, **settings_of(options))
        self._tokens: dict[str, Principal] = {}
        self._everyone = Principal("local", ALL, self.client)

    def access(self) -> AccessFile:
        """Return the current access file. Raises ValueError only when it is read for the first time."""
        path = self._settings.access_file
        now = time.monotonic()
        if not path or (self._file_state is not None and now - self._file_checked < FILE_CHECK_S):
            return self._access
        self._file_checked = now
        try:
            found = os.stat(path)
            state = (found.st_mtime_ns, found.st_size)
            if state != self._file_state:
                is_change = self._file_state is not None
                self._access = read_access_file(path, self._cluster)
                self._file_state = state
                self._tokens.clear()
                self._checked.clear()
                self._certificates.clear()
                # Grants may have changed, so users are checked again. Their clients stay, because streams use them.
                for key, (principal, _) in self._users.items():
                    self._users[key] = (principal, -math.inf)
                if is_change:
                    LOG.info("access-file %s was read again%s", path, self._place())
            self._file_fault = ""
        except (OSError, ValueError) as error:
            fault = f"access-file {path}: {getattr(error, 'strerror', None) or error}"
            if self._file_state is None:
                # At the start a mistake is an error. Later the last valid content stays in force.
                raise ValueError(fault) from error
            if fault != self._file_fault:
                LOG.error("%s; its last valid content stays in force%s", fault, self._place())
            self._file_fault = fault
        return self._access

    def _place(self) -> str:
        """Return the name of the cluster for the log, if there are several."""
        return f" (cluster {self._cluster})" if self._settings.clusters else ""

    async def principal(
        self,
        authorization: str,
        address: str,
        certificate: Certificate | None = None,
        *,
        is_console: bool = False,
    ) -> Principal:
        """Return the principal of a header or a certificate.

        is_console   whether the console asks, which accepts ID tokens, too

        Raises RefusedError: NOAUTH without a login, WRONGPASS for any login that is refused, LIMIT, ISSUER.
        """
        if not self.needs_login:
            return self._everyone
        if not authorization:
            if certificate is not None:
                return self._of_certificate(certificate)
            raise RefusedError("NOAUTH", "a login is required")
        scheme, _, rest = authorization.partition(" ")
        scheme, rest = scheme.lower(), rest.strip()
        if scheme == "bearer":
            # Tokens can't be guessed, so failures are not counted. So a bad caller behind a proxy does not lock out
            # others.
            if self._settings.oidc_audience and rest.count(".") == 2:
                return await self._of_issuer(rest, self._settings.oidc_audience)
            return self._of_token(rest)
        if scheme == "basic" and self._settings.broker_users:
            return await self._of_user(*_basic(rest), address)
        if is_console and scheme == ID_TOKEN.lower() and self._settings.oidc_client_id:
            return await self._of_issuer(rest, (self._settings.oidc_client_id,))
        raise RefusedError("WRONGPASS", "this gateway does not support this kind of login")

    def _of_certificate(self, certificate: Certificate) -> Principal:
        if time.time() >= certificate.ends:
            raise RefusedError("WRONGPASS", "the certificate has expired")
        access = self.access()
        name = access.certificate(certificate)
        if name is None:
            raise RefusedError("NOAUTH", "the access file does not name this certificate")
        found = self._certificates.get(name)
        if found is None:
            found = self._certificates[name] = Principal(f"certificate:{name}", access.certificates[name], self.client)
        return found

    async def _of_issuer(self, token: str, audiences: tuple[str, ...]) -> Principal:
        if self._issuer is None:
            raise RefusedError("WRONGPASS", "this gateway does not support this kind of login")
        self.access()
        key = hashlib.blake2b(f"{audiences} {token}".encode(), key=self._salt).digest()
        now = time.time()
        kept = self._checked.get(key)
        if kept is not None and now < kept[1]:
            return kept[0]
        claims = await self._issuer.claims(token, audiences)
        name = claims.get(self._settings.oidc_name_claim) or claims.get("sub") or "unnamed"
        # The file may have changed while the issuer was asked.
        grants = grants_of_claims(self.access().claims, claims)
        found = Principal(f"oidc:{str(name)[:NAME_MAX]}", grants, self.client)
        self._checked[key] = (found, min(now + CHECKED_S, float(claims["exp"]) + self._settings.oidc_leeway))
        while len(self._checked) > CHECKED_MAX:
            self._checked.popitem(last=False)
        return found

    def _of_token(self, secret: str) -> Principal:
        token = self.access().token(secret, time.time())
        if token is None:
            raise RefusedError("WRONGPASS", "the token is unknown, or it has expired")
        found = self._tokens.get(token.sha256)
        if found is None:
            found = self._tokens[token.sha256] = Principal(f"token:{token.name}", token.grants, self.client)
        return found

    async def _of_user(self, user: str, password: str, address: str) -> Principal:
        key = hashlib.blake2b(f"{len(user)}:{user}{password}".encode(), key=self._salt).digest()
        self.access()
        kept = self._users.get(key)
        if kept is not None:
            self._users.move_to_end(key)
            if time.monotonic() - kept[1] < CHECK_AGAIN_S:
                return kept[0]
            # It was right a moment ago, so it does not wait for guesses from the same address.
            # Its simultaneous requests count as one failure, too.
            return await self._shared((key, address), lambda: self._counted_user(key, user, password, address))
        return await self._shared((key, address), lambda: self._admitted_user(key, user, password, address))

    async def _admitted_user(self, key: bytes, user: str, password: str, address: str) -> Principal:
        async with self.failures.check(address) as is_admitted:
            if not is_admitted:
                raise RefusedError("LIMIT", "too many failed logins from this address")
            return await self._counted_user(key, user, password, address)

    async def _counted_user(self, key: bytes, user: str, password: str, address: str) -> Principal:
        kept = self._users.get(key)
        if kept is not None and time.monotonic() - kept[1] < CHECK_AGAIN_S:
            return kept[0]
        try:
            return await self._shared(key, lambda: self._check_user(key, user, password))
        except RefusedError:
            self.failures.failed(address, time.monotonic())
            raise

    async def _shared(
        self, name: bytes | tuple[bytes, str], check: Callable[[], Coroutine[Any, Any, Principal]]
    ) -> Principal:
        """Return the result of a check. Simultaneous requests share one. Raises RefusedError."""
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.create_task(check())
            task.add_done_callback(partial(self._end_check, name))
        # A caller that hangs up does not end the check for the others.
        return await asyncio.shield(task)

    def _end_check(self, name: bytes | tuple[bytes, str], done: asyncio.Task[Principal]) -> None:
        del self._asking[name]
        if not done.cancelled():
            done.exception()  # It is known, also if all callers have hung up.

    async def _check_user(self, key: bytes, user: str, password: str) -> Principal:
        now = time.monotonic()
        kept = self._users.get(key)
        try:
            found = await self._logged_in(user, password, kept[0].client if kept is not None else None)
        except RefusedError:
            self._users.pop(key, None)
            raise
        users = self.access().users
        name = user or DEFAULT
        if name in users:
            found.grants, found.asks_broker = users[name], False
        if kept is not None and (found.client, found.grants, found.asks_broker) == (
            kept[0].client,
            kept[0].grants,
            kept[0].asks_broker,
        ):
            found = kept[0]  # Streams are admitted again, at the cost of a request, only if something has changed.
        self._users[key] = (found, now)
        # Later than this, a request may still wait with its client. Streams are checked more often.
        busy_since = now - CHECK_AGAIN_S - self._settings.wait_max_ms / 1000
        while len(self._users) > CLIENTS_MAX:
            # A check that runs is about to return its client.
            idle = (each for each, kept in self._users.items() if kept[1] < busy_since and each not in self._asking)
            oldest = next(idle, None)
            if oldest is None:
                break
            await self._users.pop(oldest)[0].client.close()
        return found

    async def _logged_in(self, user: str, password: str, known: AsyncDisque | None) -> Principal:
        """Return the principal of a broker user, whose password a node has just checked. Raises RefusedError.

        known   the client that this login has; it is used again, or closed if the login is no longer valid
        """
        options = replace(self._options, username=user or None, password=password)
        probe = AsyncDisque(*options.seeds, **settings_of(options))
        try:
            await probe.connect()
            grants, asks_broker = await self._rights_of(user or DEFAULT)
        except AuthError:
            await probe.close()
            if known is not None:
                await known.close()
            raise RefusedError("WRONGPASS", "wrong user or password") from None
        except BaseException:
            await probe.close()
            raise
        if known is not None:
            await probe.close()
        return Principal(f"user:{user or DEFAULT}", grants, known or probe, asks_broker)

    async def _rights_of(self, name: str) -> tuple[tuple[Grant, ...], bool]:
        """Return the grants that a user of the broker has now, and whether the broker has more detailed rules."""
        try:
            return grants_of_rules(await self.client.execute("ACL", "GETUSER", name, repeat=True)), True
        except ReplyError as error:
            # Nodes without users give every login all rights. If the gateway's login may not read the rules, only the
            # nodes know them.
            return (ALL, False) if error.text.startswith("ERR unknown command") else ((), True)

    async def close(self) -> None:
        """Close all clients."""
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        await self.client.close()
        for principal, _ in self._users.values():
            await principal.client.close()


def grants_of_rules(reply: Any) -> tuple[Grant, ...]:
    """Return the grants that come closest to a user's rules, as ACL GETUSER shows them.

    The gateway uses these grants for its own lists, and to decide what pages show. The nodes check every command
    against the rules themselves. A rule about a single command gives no grant.
    """
    if not isinstance(reply, list):
        return ()
    pairs = dict(zip(map(readable, reply[::2]), reply[1::2], strict=False))
    roles: set[str] = set()
    for word in str(readable(pairs.get("commands", ""))).split():
        sign, name = word[:1], word[1:].removeprefix("@")
        named = set(ROLES) if name == "all" and word[1:2] == "@" else {name} & set(ROLES) if word[1:2] == "@" else set()
        roles = roles | named if sign == "+" else roles - named
    # Names are bytes. A text would also be divided at blanks of Unicode, which a pattern may have.
    patterns = [word.removeprefix(b"~") for word in pairs.get("keys", b"").split()]
    # The broker's @admin concerns only the cluster, but the gateway's role admin includes all other roles.
    if not roles >= set(ROLES):
        roles.discard("admin")
    return tuple(Grant(role, *pattern) for role in sorted(roles) for pattern in map(_pattern, patterns))


def _pattern(word: bytes) -> tuple[str, re.Pattern[bytes] | None]:
    expression = expression_of(word)
    return ("*", None) if expression is None else (str(readable(word)), expression)


def _basic(text: str) -> tuple[str, str]:
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise RefusedError("WRONGPASS", "Basic must be Base64 of user:password") from None
    if not colon:
        raise RefusedError("WRONGPASS", "Basic must be Base64 of user:password")
    return user, password
