"""Addresses of nodes, as people write them: host:port, [v6]:port, a socket's path, disque://…

An Address names a place. A Target adds all that a connection needs: login, protocol, TLS, time limits.
Both are plain values; connection.py opens them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote, urlsplit

PORT_DEFAULT: Final = 7711
HOST_DEFAULT: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address, or a unix socket when `path` is set. bus_port 0: the port plus 10000."""

    host: str = HOST_DEFAULT
    port: int = PORT_DEFAULT
    path: str = ""
    bus_port: int = 0

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def prompt(self) -> str:
        """Return the name in the interactive prompt."""
        return f"disque {self.path}" if self.path else str(self)


@dataclass(frozen=True, slots=True)
class Tls:
    """Settings of TLS: the authority to trust, our certificate and key. Paths of PEM files, empty for none."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    is_insecure: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """An address, and how to talk there.

    protocol            2 or 3
    protocol_is_wish    do with RESP2 where the server has no RESP3
    connect_timeout_s   None: as long as the system tries
    read_timeout_s      None: for ever, because GETJOB may wait for ever
    """

    address: Address = field(default_factory=Address)
    user: str = ""
    password: str = ""
    protocol: int = 2
    protocol_is_wish: bool = False
    tls: Tls | None = None
    connect_timeout_s: float | None = None
    read_timeout_s: float | None = None

    def at(self, address: Address) -> Target:
        """Return the same settings for another address."""
        return replace(self, address=address)


def parse_port(text: str) -> int:
    """Return a TCP port. ValueError with a sentence for any other text."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise ValueError(f"'{text}' is no port")
    return int(text)


def parse_address(text: str) -> Address:
    """`host:port[@bus-port]`, `[v6]:port`, `host`, `:port`, `/path`, `unix:/path`. ValueError if it is none of them."""
    if text.startswith("/"):
        return Address(path=text)
    if text.startswith("unix:"):
        return Address(path=text.removeprefix("unix:").removeprefix("//"))
    place, _, bus = text.partition("@")
    if place.startswith("["):
        host, bracket, rest = place[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"'{text}' is no address (host:port)")
        port = rest[1:]
    elif place.count(":") > 1:
        # CLUSTER NODES prints IPv6 without brackets: the port is behind the last colon.
        host, _, port = place.rpartition(":")
    else:
        host, _, port = place.partition(":")
    if not host and not port:
        raise ValueError(f"'{text}' is no address (host:port)")
    return Address(
        host=host or HOST_DEFAULT,
        port=parse_port(port) if port else PORT_DEFAULT,
        bus_port=parse_port(bus) if bus else 0,
    )


def parse_url(text: str) -> Target:
    """`disque://[user:password@]host[:port]`, `disques://` for TLS. ValueError if it is neither.

    Error texts leave the login out, because they stand on screens and in logs.
    """
    scheme, has_scheme, rest = text.partition("://")
    if not has_scheme or scheme.lower() not in ("disque", "disques"):
        raise ValueError("this is no URL for Disque (disque://[user:password@]host:port, disques:// for TLS)")
    # By hand: a password may hold characters that end a host's name in other URLs.
    login, _, place = rest.rpartition("@")
    user, _, password = login.partition(":")
    parts = urlsplit(f"disque://{place}")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"the URL has more than user, password, host and port: '{place}'")
    host = parts.hostname or HOST_DEFAULT
    try:
        port = parts.port or PORT_DEFAULT
    except ValueError:
        raise ValueError(f"the port of '{place}' is no port") from None
    return Target(
        Address(host=host, port=port),
        user=unquote(user),
        password=unquote(password),
        tls=Tls() if scheme.lower() == "disques" else None,
    )
