"""Sessions: the login cookie, and the check that a form was sent by a page of the console.

The browser keeps the login, in a cookie that no script can read (HttpOnly) and no other site can send
(SameSite=Strict). Over TLS, also over that of a proxy, the cookie is Secure. So the gateway keeps no sessions, and any
other gateway can take over. A second cookie has a random word, and each form has a hash of it. A change needs both. It
also needs a header from the browser which says where the form came from: Sec-Fetch-Site, or Origin.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final

from disque_py.gateway.http.origins import source_of
from disque_py.gateway.problems import RefusedError

LOGIN: Final = "disque-login"
WORD: Final = "disque-word"
SAID: Final = "disque-said"
ISSUER: Final = "disque-issuer"
SAID_MAX: Final = 400


class Session:
    """The cookies of one request."""

    def __init__(self, header: str) -> None:
        cookies = _cookies_of(header)
        self.authorization = _decoded(cookies.get(LOGIN, ""))
        self.said = _decoded(cookies.get(SAID, ""))
        self.issuer_word = _decoded(cookies.get(ISSUER, ""))
        self.word = cookies.get(WORD, "")
        self.is_new = not self.word
        if self.is_new:
            self.word = secrets.token_urlsafe(24)

    @property
    def form_token(self) -> str:
        """The hash that each form has."""
        return hashlib.sha256(f"form {self.word}".encode()).hexdigest()

    def check_form(self, token: str, headers: Mapping[str, str]) -> None:
        """Refuse a form that was not sent by a page of the console. Raises RefusedError."""
        if self.is_new or not hmac.compare_digest(self.form_token.encode(), token.encode()):
            raise RefusedError("NOPERM", "this form is too old, or belongs to another page; load the page again")
        if source_of(headers) != "own":
            raise RefusedError("NOPERM", "the form came from another site")


def _cookies_of(header: str) -> dict[str, str]:
    """Return name → value. If a name is repeated, the last value counts.

    Other programs on the same host may have cookies with any characters. http.cookies would then ignore all cookies
    after them.
    """
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, _, value in pairs}


def cookie(
    name: str, value: str, path: str, *, is_secure: bool, age_s: int | None = None, site: str = "Strict"
) -> tuple[str, str]:
    """Return a Set-Cookie header. `value` may be any text, except for the random word; age 0 removes the cookie."""
    text = value if name == WORD else base64.urlsafe_b64encode(value.encode()).decode().rstrip("=")
    words = [f"{name}={text}", f"Path={path}", "HttpOnly", f"SameSite={site}"]
    if is_secure:
        words.append("Secure")
    if age_s is not None:
        words.append(f"Max-Age={age_s}")
    return "set-cookie", "; ".join(words)


def _decoded(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""
