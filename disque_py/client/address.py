"""Addresses of nodes, and URLs of clusters.

An address is `host:port`, `[v6]:port`, `host` (port 7711) or `unix:/path`. A cluster's URL is
`disque://[[user]:password@]host:port,host:port/?option=value`. `disques://` means TLS, and `unix:///path?…` names one
socket. `redis://` and `rediss://` mean the same as `disque://` and `disques://`, for programs that are configured by
such URLs. Their default port is 7711, too. Pure text; nothing is resolved here.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

DEFAULT_PORT: Final = 7711
SCHEMES: Final = ("disque", "disques", "redis", "rediss", "unix")
REDIS_SCHEMES: Final = ("redis://", "rediss://")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a node.

    host   host name or IP address
    port   TCP port
    path   path of a unix socket, which is used instead of host and port; empty for TCP
    """

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(words: str, default_port: int = DEFAULT_PORT) -> Address:
    """Return the address that a text names. Raises ValueError with the text if it can't be read.

    `default_port` is the port of an address that names none; 7711 by default.

    The error about a URL does not quote it, because it may contain a password.
    """
    if words.startswith("unix:"):
        path = words.removeprefix("unix://") if words.startswith("unix://") else words.removeprefix("unix:")
        if not path:
            raise ValueError("unix: needs the path of a socket")
        return Address(path=path)
    if words.startswith("/"):
        return Address(path=words)
    if "://" in words:
        raise ValueError("an address is host:port, and this is a URL: Disque.from_url and AsyncDisque.from_url take it")
    if words.startswith("["):
        host, bracket, rest = words[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"not an address: {words!r}")
        port = rest[1:]
    elif words.count(":") > 1:  # A bare IPv6 address: the last group is no port.
        host, port = words, ""
    else:
        host, _, port = words.partition(":")
    if not host:
        raise ValueError(f"no host in {words!r}")
    return Address(host=host, port=_port(port, words) if port else default_port)


def _port(digits: str, words: str) -> int:
    if not (digits.isascii() and digits.isdigit()) or not 0 < int(digits) < 65536:
        raise ValueError(f"not a port: {words!r}")
    return int(digits)


@dataclass(frozen=True, slots=True)
class ClusterUrl:
    """The parts of a URL. `options` are those after the question mark, as text."""

    nodes: tuple[Address, ...]
    tls: bool
    username: str | None
    password: str | None = field(repr=False)
    options: dict[str, str]


def parse_url(url: str) -> ClusterUrl:
    """Return the parts of a cluster's URL.

    Raises ValueError for another scheme or an address that can't be read. The error quotes no part of the URL: if a
    separator is missing or not escaped, any part may be a password.
    """
    scheme, colon, rest = url.partition("://")
    if not colon or scheme not in SCHEMES:
        raise ValueError("a URL starts with disque://, disques://, redis://, rediss:// or unix://")
    rest, _, query = rest.partition("?")
    if "@" in query:
        raise ValueError("the URL has an @ behind a ?: write ? in a password as %3F, and @ in an option as %40")
    options = dict(parse_qsl(query, keep_blank_values=True))
    credentials, at, places = rest.rpartition("@")
    username: str | None = None
    password: str | None = None
    if at:
        name, has_password, secret = credentials.partition(":")
        username = unquote(name) or None
        password = unquote(secret) if has_password else None
    if scheme == "unix":
        return ClusterUrl((Address(path=unquote(places)),), False, username, password, options)
    hosts, _, path = places.partition("/")
    if path == "0" and url.startswith(REDIS_SCHEMES):
        path = ""  # Database 0 is the only one.
    if path:
        raise ValueError("the URL has a path, which means nothing to Disque")
    nodes = tuple(_node(number, place) for number, place in enumerate(hosts.split(","), 1) if place)
    if not nodes:
        raise ValueError("the URL names no node")
    return ClusterUrl(nodes, scheme in ("disques", "rediss"), username, password, options)


def _node(number: int, place: str) -> Address:
    with suppress(ValueError):  # Its text quotes the place.
        return parse_address(unquote(place))
    raise ValueError(f"node {number} of the URL is not host:port, host or [v6]:port; an @ ends the password before it")
