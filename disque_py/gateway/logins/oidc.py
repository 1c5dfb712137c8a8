"""OpenID Connect: tokens of an issuer (JWT), checked by its published keys.

The discovery document has the addresses of the issuer. Its keys are fetched when they are first needed, and again after
an hour. They are also fetched when a token names an unknown key. This happens at most once in half a minute, so that
bad tokens put no load on the issuer. While the issuer does not answer, its keys stay in force for a day.

Requests to the issuer have their own threads, so an issuer that hangs holds up nothing else. Logins of people and
fetches of keys don't share a thread, because anyone may begin a login.

A token is valid under three conditions. One of the issuer's keys signed it with a public-key algorithm. Issuer and
audience are those of the settings. The current time is in its validity period, with a tolerance of `oidc-leeway`
seconds. The access file maps claims to roles (claims.py). People log in at the console by the authorization code flow
with PKCE (console/code_flow.py).
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import jwt

from disque_py.gateway.problems import RefusedError
from disque_py.gateway.settings import Settings, is_safe

# Algorithms with a shared secret don't prove the issuer, and `none` proves nothing.
ALGORITHMS: Final = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
KEYS_S: Final = 3600.0
KEYS_KEPT_S: Final = 86_400.0
AGAIN_S: Final = 30.0
# A token with a known key waits this long for newer keys. The issuer may hang.
KNOWN_S: Final = 1.0
FETCH_S: Final = 5.0
# Threads for logins of people, and seconds that such a login waits for a thread and an answer.
LOGIN_THREADS: Final = 4
LOGIN_S: Final = 15.0
FETCH_MAX: Final = 1 << 20
WELL_KNOWN: Final = "/.well-known/openid-configuration"

# (URL, form or None, headers) → the object in the answer. Raises OSError, ValueError.
Fetch = Callable[[str, Mapping[str, str] | None, Mapping[str, str]], Any]


class Key(NamedTuple):
    """A public key, and the only algorithm that it may be used with; empty: any algorithm of its kind."""

    value: Any
    algorithm: str


class Issuer:
    """The issuer of the settings, with its keys.

    settings   `oidc-issuer` and the related settings
    fetch      sends a request to the issuer; it runs in a thread
    """

    def __init__(self, settings: Settings, fetch: Fetch | None = None) -> None:
        self._settings = settings
        self._fetch = fetch or fetch_json
        self._document: dict[str, Any] = {}
        self._keys: dict[str, Key] = {}
        self._fetched = -KEYS_KEPT_S
        self._tried = -KEYS_KEPT_S
        self._lock = asyncio.Lock()
        self._fetching: set[asyncio.Task[None]] = set()
        self._key_thread = ThreadPoolExecutor(1, "issuer-keys")
        self._login_threads = ThreadPoolExecutor(LOGIN_THREADS, "issuer-logins")

    async def claims(self, token: str, audiences: tuple[str, ...], nonce: str | None = None) -> dict[str, Any]:
        """Return the claims of a token. Raises RefusedError: WRONGPASS, ISSUER."""
        try:
            head = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise RefusedError("WRONGPASS", "the token can't be read") from None
        algorithm = head.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise RefusedError("WRONGPASS", "the token's algorithm is not allowed")
        key = await self._key(str(head.get("kid", "")), algorithm)
        try:
            found: dict[str, Any] = jwt.decode(
                token,
                key.value,
                algorithms=[algorithm],
                audience=list(audiences),
                issuer=self._settings.oidc_issuer,
                leeway=self._settings.oidc_leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.InvalidTokenError, jwt.PyJWTError, TypeError, ValueError) as error:
            raise RefusedError("WRONGPASS", f"the token is not valid: {error}") from None
        if nonce is not None and found.get("nonce") != nonce:
            raise RefusedError("WRONGPASS", "the token belongs to another login")
        return found

    async def endpoint(self, name: str) -> str:
        """Return an address of the discovery document. Raises RefusedError."""
        if not self._document:
            async with self._lock:
                if not self._document:
                    await self._discover()
        url = self._document.get(name)
        if not isinstance(url, str) or not is_safe(url):
            raise RefusedError("ISSUER", f"the issuer has no {name} over https")
        return url

    async def exchanged(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Return the answer of the token endpoint. Raises RefusedError."""
        url = await self.endpoint("token_endpoint")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LOGIN_S):
                found = await loop.run_in_executor(self._login_threads, self._fetch, url, form, {})
        except (OSError, ValueError) as error:
            if isinstance(error, StatusError) and error.status < 500:
                raise RefusedError("WRONGPASS", f"the issuer refused the login: {error}") from None
            raise RefusedError("ISSUER", f"the issuer does not answer: {error}") from None
        if not isinstance(found, dict):
            raise RefusedError("ISSUER", "the issuer's answer is not an object")
        return found

    async def _key(self, kid: str, algorithm: str) -> Key:
        now = time.monotonic()
        age_s = now - self._fetched
        is_known = self._chosen(kid, algorithm) is not None and age_s < KEYS_KEPT_S
        if not is_known or age_s >= KEYS_S:
            fetching = asyncio.create_task(self._fetch_again(kid, algorithm, now))
            self._fetching.add(fetching)
            fetching.add_done_callback(self._fetching.discard)
            await asyncio.wait((fetching,), timeout=KNOWN_S if is_known else None)
        if time.monotonic() - self._fetched >= KEYS_KEPT_S:
            raise RefusedError("ISSUER", "the keys of the issuer can't be fetched")
        found = self._chosen(kid, algorithm)
        if found is None:
            raise RefusedError("WRONGPASS", "no key of the issuer signed this token")
        return found

    async def _fetch_again(self, kid: str, algorithm: str, now: float) -> None:
        """Fetch the keys if they are old or lack this one, and if this was not tried a moment ago."""
        async with self._lock:
            is_old = time.monotonic() - self._fetched >= KEYS_S
            if (is_old or self._chosen(kid, algorithm) is None) and now - self._tried >= AGAIN_S:
                self._tried = now
                await self._fetch_keys()

    def _chosen(self, kid: str, algorithm: str) -> Key | None:
        if kid:
            found = self._keys.get(kid)
        else:  # An issuer with a single key need not name it.
            found = next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return found if found is not None and found.algorithm in ("", algorithm) else None

    async def _fetch_keys(self) -> None:
        """Fetch the keys. Failures leave the old ones in force."""
        try:
            await self._discover()
            url = self._document.get("jwks_uri")
            if not isinstance(url, str) or not is_safe(url):
                raise RefusedError("ISSUER", "the issuer has no jwks_uri over https")
            self._keys = keys_of(await self._fetched_from(url))
            self._fetched = time.monotonic()
        except (OSError, ValueError, RefusedError):
            return

    async def _discover(self) -> None:
        issuer = self._settings.oidc_issuer
        try:
            found = await self._fetched_from(issuer.rstrip("/") + WELL_KNOWN)
        except (OSError, ValueError) as error:
            raise RefusedError("ISSUER", f"the issuer does not answer: {error}") from None
        if not isinstance(found, dict) or found.get("issuer") != issuer:
            raise RefusedError("ISSUER", "the discovery document belongs to another issuer")
        self._document = found

    async def _fetched_from(self, url: str) -> Any:
        """Return the JSON of an address of the issuer. Raises OSError, ValueError."""
        return await asyncio.get_running_loop().run_in_executor(self._key_thread, self._fetch, url, None, {})

    def close(self) -> None:
        """End the threads, after the requests that run."""
        for threads in (self._key_thread, self._login_threads):
            threads.shutdown(wait=False, cancel_futures=True)


def keys_of(found: Any) -> dict[str, Key]:
    """Return the keys for signatures of a JWKS, by id. Keys of unknown kinds are left out."""
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise ValueError("the key set has no keys")
    keys: dict[str, Key] = {}
    for number, each in enumerate(listed):
        if not isinstance(each, dict) or each.get("use", "sig") != "sig" or each.get("kty") == "oct":
            continue
        try:
            keys[str(each.get("kid", f"#{number}"))] = Key(jwt.PyJWK(each).key, str(each.get("alg", "")))
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
    return keys


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *words: Any, **more: Any) -> None:
        """Follow no redirect, because it may lead to an unsafe address."""


class StatusError(OSError):
    """An answer with another status than 200."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status


def fetch_json(url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]) -> Any:
    """Return the JSON of an address. A form is sent by POST. Raises OSError, ValueError.

    The body must be there within FETCH_S seconds. So an issuer that sends it byte by byte does not keep the thread.
    """
    data = urllib.parse.urlencode(form).encode() if form is not None else None
    request = urllib.request.Request(url, data, {"Accept": "application/json", **headers})
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        deadline = time.monotonic() + FETCH_S
        with opener.open(request, timeout=FETCH_S) as answer:
            body = b""
            while len(body) <= FETCH_MAX and (part := answer.read1(FETCH_MAX)):
                body += part
                if time.monotonic() > deadline:
                    raise TimeoutError("the answer takes too long")
    except urllib.error.HTTPError as error:
        error.close()
        raise StatusError(error.code) from None
    except http.client.HTTPException as error:  # The answer is not HTTP, or it ends too early.
        raise OSError(f"no answer in HTTP: {error!r}") from None
    if len(body) > FETCH_MAX:
        raise ValueError("the answer is too long")
    return json.loads(body)
