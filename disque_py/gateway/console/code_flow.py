"""Logins at the issuer, for people: the authorization code flow with PKCE (RFC 7636), without sessions in the gateway.

A cookie has a random word. State, nonce and verifier are different hashes of this word, so any gateway can complete the
login. The cookie is SameSite=Lax, because the redirect back comes from the issuer's site. The ID token becomes the
login in the console's own cookie. When it has expired, the browser asks the issuer again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final
from urllib.parse import urlencode

from disque_py.gateway.logins.authentication import ID_TOKEN
from disque_py.gateway.logins.oidc import Issuer
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.settings import Settings

COOKIE_S: Final = 600
# Browsers keep no cookie larger than 4096 bytes, including its name and attributes.
TOKEN_MAX: Final = 2800


def new_word() -> str:
    """Return the word of a new login."""
    return secrets.token_urlsafe(32)


def derived(word: str, purpose: str) -> str:
    """Return the value for a purpose: `state`, `nonce` or `verifier`."""
    digest = hashlib.sha256(f"{purpose} {word}".encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


async def address(issuer: Issuer, settings: Settings, word: str, redirect: str) -> str:
    """Return the address at the issuer where a login begins. Raises RefusedError."""
    url = await issuer.endpoint("authorization_endpoint")
    challenge = base64.urlsafe_b64encode(hashlib.sha256(derived(word, "verifier").encode()).digest())
    words = {
        "response_type": "code",
        "client_id": settings.oidc_client_id,
        "redirect_uri": redirect,
        "scope": "openid profile email",
        "state": derived(word, "state"),
        "nonce": derived(word, "nonce"),
        "code_challenge": challenge.decode().rstrip("="),
        "code_challenge_method": "S256",
    }
    return f"{url}{'&' if '?' in url else '?'}{urlencode(words)}"


async def login(issuer: Issuer, settings: Settings, word: str, redirect: str, query: dict[str, str]) -> str:
    """Return the Authorization header of a login that came back from the issuer. Raises RefusedError."""
    if not word or not hmac.compare_digest(derived(word, "state").encode(), query.get("state", "").encode()):
        raise RefusedError("NOPERM", "this answer belongs to another login; log in again")
    if "code" not in query:
        raise RefusedError("WRONGPASS", f"the issuer refused the login: {query.get('error', 'no code')[:100]}")
    form = {
        "grant_type": "authorization_code",
        "code": query["code"],
        "redirect_uri": redirect,
        "client_id": settings.oidc_client_id,
        "code_verifier": derived(word, "verifier"),
    }
    if settings.oidc_client_secret:
        form["client_secret"] = settings.oidc_client_secret
    found = await issuer.exchanged(form)
    token = found.get("id_token")
    if not isinstance(token, str):
        raise RefusedError("ISSUER", "the issuer gave no ID token")
    await issuer.claims(token, (settings.oidc_client_id,), derived(word, "nonce"))
    if len(token) > TOKEN_MAX:
        raise RefusedError("TOOBIG", "the ID token is too long for a cookie: let the issuer leave out claims")
    return f"{ID_TOKEN} {token}"
