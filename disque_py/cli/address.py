"""A Target: the address of a node, and everything that a connection to it needs: login, protocol, TLS, time limits.

The client library reads addresses and URLs. This module adds the forms that people type at a prompt: a port alone, the
port of the bus, and IPv6 as CLUSTER NODES prints it. Targets are plain values; connection.py opens them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from disque_py.client import Address
from disque_py.client import address as library

PORT_DEFAULT: Final = library.DEFAULT_PORT
HOST_DEFAULT: Final = "127.0.0.1"
ADDRESS_DEFAULT: Final = Address(HOST_DEFAULT, PORT_DEFAULT)
# Options of a URL that name files of TLS. The others are settings of the library's clients.
TLS_OPTIONS: Final = frozenset({"ca", "cert", "key", "verify"})
VERIFY_NOT: Final = ("no", "0", "false", "off")


@dataclass(frozen=True, slots=True)
class Tls:
    """Settings of TLS: the authority to trust, this program's certificate and key. Paths of PEM files; empty: none."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    is_insecure: bool = False

    def over(self, url: Tls | None) -> Tls:
        """Return these settings of the command line, each one that is missing taken from the URL."""
        if url is None:
            return self
        # A key belongs to its certificate.
        pair = self if self.cert_file else url
        return Tls(
            self.ca_file or url.ca_file,
            pair.cert_file,
            self.key_file or pair.key_file,
            self.is_insecure or url.is_insecure,
        )


@dataclass(frozen=True, slots=True)
class Target:
    """An address, and how to talk there.

    protocol                2 or 3
    protocol_is_preferred   use RESP2 if the server has no RESP3
    connect_timeout_s       None: the time limit of the system
    read_timeout_s          None: no limit, because GETJOB may wait for ever
    """

    address: Address = ADDRESS_DEFAULT
    user: str = ""
    password: str = ""
    protocol: int = 2
    protocol_is_preferred: bool = False
    tls: Tls | None = None
    connect_timeout_s: float | None = None
    read_timeout_s: float | None = None

    def at(self, address: Address) -> Target:
        """Return the same settings for another address."""
        return replace(self, address=address)


@dataclass(frozen=True, slots=True)
class Place:
    """An address, and the port of the node's bus; None: 10000 above the address's port."""

    address: Address
    bus_port: int | None = None


def prompt_of(address: Address) -> str:
    """Return an address as the interactive prompt shows it."""
    return f"disque {address.path}" if address.path else str(address)


def parse_port(text: str) -> int:
    """Return a TCP port. Raises ValueError for any other text, with a sentence for the user."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise ValueError(f"'{text}' is not a port")
    return int(text)


def parse_place(text: str) -> Place:
    """Return the place that a text names: a form of the library, or `:port`, each with or without `@bus-port`.

    Raises ValueError for any other text.
    """
    if text.startswith(("/", "unix:")):
        return Place(library.parse_address(text))
    words, _, bus = text.partition("@")
    if words.count(":") > 1 and not words.startswith("["):
        # CLUSTER NODES prints IPv6 without brackets: the port follows the last colon.
        host, _, port = words.rpartition(":")
        words = f"[{host}]:{port}"
    elif words.startswith(":") and len(words) > 1:
        words = HOST_DEFAULT + words
    return Place(library.parse_address(words), parse_port(bus) if bus else None)


def parse_target(url: str) -> Target:
    """Return the target that a URL names, with its TLS options. Raises ValueError for an invalid URL.

    If the URL names several nodes, the target is the first one. Error texts leave the login out, because they appear on
    screens and in logs.
    """
    parts = library.parse_url(_with_host(url))
    if unknown := sorted(parts.options.keys() - TLS_OPTIONS):
        raise ValueError(f"the option {unknown[0]!r} of the URL works only in the client library")
    if parts.options and not parts.tls:
        raise ValueError("TLS options need disques:// or rediss://")
    options = parts.options
    is_insecure = options.get("verify", "yes").lower() in VERIFY_NOT
    tls = Tls(options.get("ca", ""), options.get("cert", ""), options.get("key", ""), is_insecure)
    return Target(
        parts.nodes[0],
        user=parts.username or "",
        password=parts.password or "",
        tls=tls if parts.tls else None,
    )


def _with_host(url: str) -> str:
    """Return the URL as the library reads it.

    At a prompt `disque://` is this machine. The last @ ends the login, so a question mark before it needs no escape.
    """
    scheme, colon, rest = url.partition("://")
    if scheme == "unix" or not colon:
        return url
    login, at, place = rest.rpartition("@")
    if not place or place[0] in ":/?":
        place = HOST_DEFAULT + place
    return f"{scheme}://{login.replace('?', '%3F')}{at}{place}"
