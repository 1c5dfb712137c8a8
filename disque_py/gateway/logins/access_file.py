"""The access file: bearer tokens, and the roles of broker users, certificates and claims, as TOML.

    [[token]]
    name = "billing"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    expires = 2027-01-01T00:00:00Z
    grants = ["produce:mail-*", "read"]

    [[user]]
    name = "ann"
    grants = ["operate:mail-*"]

    [[certificate]]
    name = "CN=robot"
    grants = ["consume:mail-*"]

    [[claim]]
    name = "groups"
    value = "mail-team"
    grants = ["operate:mail-*"]

An entry applies to every cluster of the gateway, or to those in its list `clusters`. Several entries may have the same
name, such as one for each cluster. Those that apply to a cluster are combined. The file has only hashes of
tokens. A token has 256 random bits, so a plain SHA-256 can't be reversed by guessing. A token without `expires` never
expires. A user in the file is a user of the broker, which checks the password. Certificates are verified by TLS, and
claims by the keys of the issuer (oidc.py).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import tomllib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from disque_py.gateway.logins.certificates import KINDS, Certificate
from disque_py.gateway.logins.claims import ClaimRule
from disque_py.gateway.logins.grants import Grant, grant_of

TOKEN_PREFIX: Final = "dq_"
TOKEN_BYTES: Final = 32
ENTRIES: Final = {"token", "user", "certificate", "claim"}


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token: its name, its hash, its grants, and its expiry in Unix seconds (None: never)."""

    name: str
    sha256: str
    grants: tuple[Grant, ...]
    expires: float | None

    def is_over(self, now: float) -> bool:
        """Return whether it has expired."""
        return self.expires is not None and now >= self.expires


@dataclass(frozen=True, slots=True)
class AccessFile:
    """The content of the file: tokens by hash, grants by name of user and of certificate, rules for claims."""

    tokens: dict[str, Token]
    users: dict[str, tuple[Grant, ...]]
    certificates: dict[str, tuple[Grant, ...]] = field(default_factory=dict)
    claims: tuple[ClaimRule, ...] = ()

    def token(self, secret: str, now: float) -> Token | None:
        """Return the token of this secret; None if it is unknown or has expired."""
        wanted = hash_of(secret)
        found = self.tokens.get(wanted)
        if found is None or not hmac.compare_digest(found.sha256, wanted) or found.is_over(now):
            return None
        return found

    def certificate(self, found: Certificate) -> str | None:
        """Return the first entry of the file that names the certificate; None if there is none."""
        return next((name for name in self.certificates if name in found.names), None)


EMPTY: Final = AccessFile({}, {})


def hash_of(secret: str) -> str:
    """Return the hash of a secret, as the file has it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_secret() -> str:
    """Return the secret of a new token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def read_access_file(path: str, cluster: str = "") -> AccessFile:
    """Return the content of a file. Raises OSError, and ValueError with the place of a mistake."""
    return parse_access(Path(path).read_text(encoding="utf-8"), cluster)


def parse_access(text: str, cluster: str = "") -> AccessFile:
    """Return the entries of a text that apply to a cluster. Raises ValueError."""
    found = tomllib.loads(text)
    _check(found, ENTRIES, "the file")
    for kind, entries in found.items():
        if not isinstance(entries, list):
            raise ValueError(f"each {kind} must begin with [[{kind}]], in two pairs of brackets")
    tokens: dict[str, Token] = {}
    for entry in found.get("token", []):
        name = _name("token", entry, {"sha256", "expires"})
        sha256 = entry.get("sha256")
        if not isinstance(sha256, str) or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
            raise ValueError(f"token {name!r}: sha256 must have 64 hexadecimal digits")
        token = Token(name, sha256, _grants(name, entry, cluster), _moment(name, entry.get("expires")))
        tokens[sha256] = _combined(tokens[sha256], token) if sha256 in tokens else token
    users: dict[str, tuple[Grant, ...]] = {}
    for entry in found.get("user", []):
        name = _name("user", entry, set())
        # A user whose entries are all for other clusters has no rights here.
        users[name] = users.get(name, ()) + _grants(name, entry, cluster)
    certificates: dict[str, tuple[Grant, ...]] = {}
    for entry in found.get("certificate", []):
        name = _name("certificate", entry, set())
        if not name.startswith(KINDS):
            raise ValueError(f"certificate {name!r}: the name must begin with {', '.join(KINDS)}")
        certificates[name] = certificates.get(name, ()) + _grants(name, entry, cluster)
    claims = []
    for entry in found.get("claim", []):
        name = _name("claim", entry, {"value"})
        value = entry.get("value")
        if not isinstance(value, str) or not value:
            raise ValueError(f"claim {name!r}: it needs a value")
        claims.append(ClaimRule(name, value, _grants(name, entry, cluster)))
    return AccessFile(tokens, users, certificates, tuple(claims))


def token_entry(name: str, secret: str, grants: list[str], expires: datetime | None) -> str:
    """Return the lines of the file for a new token. Raises ValueError for no name, and for an unknown grant."""
    if not name:
        raise ValueError("a token needs a name")
    words = ", ".join(_quoted(str(grant_of(grant))) for grant in grants)
    ends = f"expires = {expires.isoformat()}\n" if expires else ""
    return f'[[token]]\nname = {_quoted(name)}\nsha256 = "{hash_of(secret)}"\n{ends}grants = [{words}]\n'


def _quoted(text: str) -> str:
    """Return a text of TOML. Its escapes are those of JSON, but it has no pairs of surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _name(kind: str, entry: Any, more: set[str]) -> str:
    _check(entry, {"name", "grants", "clusters"} | more, f"a {kind}")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"a {kind} needs a name")
    return name


def _grants(name: str, entry: dict[str, Any], cluster: str) -> tuple[Grant, ...]:
    """Return the grants of an entry; none if its list `clusters` does not name the cluster."""
    texts, clusters = entry.get("grants", []), entry.get("clusters", [cluster])
    for field_name, listed in (("grants", texts), ("clusters", clusters)):
        if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
            raise ValueError(f"{name!r}: {field_name} must be a list of texts")
    try:
        grants = tuple(grant_of(text) for text in texts)
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None
    return grants if cluster in clusters else ()


def _combined(first: Token, second: Token) -> Token:
    """Return the token of two entries. If both have grants here, it ends when the first of them does."""
    if not (first.grants and second.grants):
        return first if first.grants else second
    ends = [each.expires for each in (first, second) if each.expires is not None]
    return replace(first, grants=first.grants + second.grants, expires=min(ends, default=None))


def _moment(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise ValueError(f"token {name!r}: expires must be a time, such as 2027-01-01T00:00:00Z")
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


def _check(entry: Any, known: set[str], place: str) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"{place} must be a table")
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ValueError(f"{place} has no field {unknown[0]!r} (its fields are {', '.join(sorted(known))})")
