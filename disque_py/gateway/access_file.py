"""The access file: bearer tokens, and the roles of broker users, as TOML.

    [[token]]
    name = "billing"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    expires = 2027-01-01T00:00:00Z
    grants = ["produce:mail-*", "read"]

    [[user]]
    name = "ann"
    grants = ["operate:mail-*"]

The file has hashes only. A token has 256 random bits, so a plain SHA-256 can't be reversed by guessing. A token without
`expires` never ends. A user of the file is a user of the broker, which checks the password.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from disque_py.gateway.grants import Grant, grant_of

TOKEN_PREFIX: Final = "dq_"
TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token: its name, its hash, its grants, and its end in Unix seconds (None: none)."""

    name: str
    sha256: str
    grants: tuple[Grant, ...]
    expires: float | None

    def is_over(self, now: float) -> bool:
        """Return whether it has expired."""
        return self.expires is not None and now >= self.expires


@dataclass(frozen=True, slots=True)
class AccessFile:
    """The content of the file: tokens by hash, grants by name of user."""

    tokens: dict[str, Token]
    users: dict[str, tuple[Grant, ...]]

    def token(self, secret: str, now: float) -> Token | None:
        """Return the token of this secret; None for an unknown one or one that has expired."""
        wanted = hash_of(secret)
        found = self.tokens.get(wanted)
        if found is None or not hmac.compare_digest(found.sha256, wanted) or found.is_over(now):
            return None
        return found


EMPTY: Final = AccessFile({}, {})


def hash_of(secret: str) -> str:
    """Return the hash that the file has of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_secret() -> str:
    """Return the secret of a new token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def read_access_file(path: str) -> AccessFile:
    """Return the content of a file. Raises OSError, and ValueError with the place of a mistake."""
    return parse_access(Path(path).read_text(encoding="utf-8"))


def parse_access(text: str) -> AccessFile:
    """Return the content of a text. Raises ValueError."""
    found = tomllib.loads(text)
    _check(found, {"token", "user"}, "the file")
    tokens: dict[str, Token] = {}
    for entry in found.get("token", []):
        _check(entry, {"name", "sha256", "expires", "grants"}, "a token")
        name, sha256 = entry.get("name"), entry.get("sha256")
        if not isinstance(name, str) or not name:
            raise ValueError("a token needs a name")
        if not isinstance(sha256, str) or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
            raise ValueError(f"token {name!r}: sha256 must have 64 hexadecimal digits")
        tokens[sha256] = Token(name, sha256, _grants(name, entry), _moment(name, entry.get("expires")))
    users: dict[str, tuple[Grant, ...]] = {}
    for entry in found.get("user", []):
        _check(entry, {"name", "grants"}, "a user")
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError("a user needs a name")
        users[name] = _grants(name, entry)
    return AccessFile(tokens, users)


def token_entry(name: str, secret: str, grants: list[str], expires: datetime | None) -> str:
    """Return the lines of the file for a new token. Raises ValueError for a grant that there is not."""
    words = ", ".join(f'"{grant_of(grant)}"' for grant in grants)
    ends = f"expires = {expires.isoformat()}\n" if expires else ""
    return f'[[token]]\nname = "{name}"\nsha256 = "{hash_of(secret)}"\n{ends}grants = [{words}]\n'


def _grants(name: str, entry: dict[str, Any]) -> tuple[Grant, ...]:
    texts = entry.get("grants", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name!r}: grants must be a list of texts")
    try:
        return tuple(grant_of(text) for text in texts)
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None


def _moment(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise ValueError(f"token {name!r}: expires must be a time, as 2027-01-01T00:00:00Z")
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


def _check(entry: Any, known: set[str], place: str) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"{place} must be a table")
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ValueError(f"{place} has no {unknown[0]!r} (there are {', '.join(sorted(known))})")
