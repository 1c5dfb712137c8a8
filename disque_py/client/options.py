"""The settings of a client, from keyword arguments or a URL.

Both become the same ClientOptions. `settings_of_url` makes keyword arguments of a URL, and `make_options` checks
keyword arguments. An unknown name is refused, so that a mistyped setting is never ignored. Pure, with one exception:
making a TLS context reads certificate files.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final, TypedDict, cast

from disque_py.client.address import REDIS_SCHEMES, Address, parse_address, parse_url
from disque_py.client.results import Decode
from disque_py.client.spans import Span, float_seconds, whole
from disque_py.client.tls import trusting

TLS_WORDS: Final = frozenset({"ca", "cert", "key", "verify"})
DEFAULT_NODE: Final = Address(host="127.0.0.1", port=7711)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The settings of a client after parsing; times are in seconds.

    seeds             nodes to begin with, in any order
    username, password   for AUTH; a user name only where the server knows users, and never without a password
    decode            the decoding of `Job.value`: an encoding, a function of bytes, None for bytes
    timeout           time without an answer after which a node counts as dead
    connect_timeout   for one node: connecting, AUTH and HELLO together
    patience          the time that a command searches for a working node, before NotConnectedError
    pool_size         the most connections to one node for ADDJOBs; blocking client: the most connections in use, to all
                      nodes together. GETJOBs that wait are not counted
    discover          use also the nodes that HELLO names; False: the seeds only
    follow            move this client's consumers to the node from which most of their jobs come
    retry_unsafe      after a lost connection, repeat a command even if it may then be executed twice (ADDJOB, NACK,
                      ENQUEUE)
    name              name of every connection, which CLIENT LIST shows
    datacenter, zone  where this program is: nodes of the same zone come first, then those of the same data centre;
                      None: all nodes are equally near. Only nodes of disque-py support these two
    tls               a context, True to trust the system's authorities, False for plain TCP
    """

    seeds: tuple[Address, ...] = (DEFAULT_NODE,)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    decode: Decode = None
    timeout: float = 5.0
    connect_timeout: float = 3.0
    patience: float = 10.0
    pool_size: int = 8
    discover: bool = True
    follow: bool = True
    retry_unsafe: bool = False
    name: str | None = None
    datacenter: str | None = None
    zone: str | None = None
    tls: ssl.SSLContext | bool = False

    @property
    def place(self) -> tuple[str, str] | None:
        """The data centre and the zone of this program; None: it names neither."""
        return None if self.datacenter is None and self.zone is None else (self.datacenter or "", self.zone or "")

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None for plain ones."""
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        return trusting() if self.tls else None


class ClientSettings(TypedDict, total=False):
    """The keyword arguments of a client. ClientOptions explains each of them and has its default."""

    username: str | None
    password: str | None
    decode: Decode
    timeout: Span
    connect_timeout: Span
    patience: Span
    pool_size: int
    discover: bool
    follow: bool
    retry_unsafe: bool
    name: str | None
    datacenter: str | None
    zone: str | None
    tls: ssl.SSLContext | bool


def settings_of(options: ClientOptions) -> ClientSettings:
    """Return the keyword arguments that make these options. The seeds are arguments of another kind."""
    names = (setting.name for setting in fields(ClientOptions) if setting.name != "seeds")
    return cast(ClientSettings, {name: getattr(options, name) for name in names})


SPANS: Final = ("timeout", "connect_timeout", "patience")


def make_options(nodes: tuple[str | Address, ...], settings: ClientSettings) -> ClientOptions:
    """Return the options of a client's arguments. Raises ValueError, or TypeError for an unknown setting."""
    for node in nodes:
        if not isinstance(node, str | Address):
            raise TypeError(f"a node is a text such as 'host:7711', or an Address, not a {type(node).__name__}")
    seeds = tuple(node if isinstance(node, Address) else parse_address(node) for node in nodes)
    values: dict[str, Any] = dict(settings)
    check_words(values, ClientSettings.__annotations__, "a setting of a client")
    for name in SPANS:
        if name in values:
            values[name] = float_seconds(name, values[name])
    if "pool_size" in values:
        values["pool_size"] = whole("pool_size", values["pool_size"])
    options = ClientOptions(seeds=seeds or (DEFAULT_NODE,), **values)
    if options.username is not None and options.password is None:
        raise ValueError(
            "username needs a password, or the client would not log in: pass password=, or write user:password@ in the "
            "URL; for a user with nopass, any text will do"
        )
    if options.pool_size < 1:
        raise ValueError("pool_size must be at least 1")
    if not (options.timeout > 0 and 0 < options.connect_timeout < math.inf and options.patience >= 0):
        raise ValueError(
            "timeout and connect_timeout must be above 0, patience not below; connect_timeout must be finite"
        )
    return options


# Names that other libraries have for options.
OTHER_NAMES: Final = {"retries": "attempts", "max_retries": "attempts", "countdown": "delay", "expires": "ttl"}


def check_words(words: Iterable[str], known: Collection[str], kind: str) -> None:
    """Raise TypeError for an unknown word, with the word that was probably meant."""
    for word in words:
        if word not in known:
            same = OTHER_NAMES.get(word)
            near = [same] if same in known else get_close_matches(word, known, 1)
            raise TypeError(f"{word!r} is not {kind}" + (f"; did you mean {near[0]!r}?" if near else ""))


def settings_of_url(url: str) -> tuple[tuple[Address, ...], ClientSettings]:
    """Return the nodes and settings that a URL names. `ca`, `cert`, `key` and `verify=no` make the TLS context.

    redis:// and rediss:// mean the same as disque:// and disques://. In such URLs, the option names of Redis clients
    are understood too.

    Raises ValueError for an option that does not exist or a value that can't be read.
    """
    parts = parse_url(url)
    settings: dict[str, Any] = {"username": parts.username, "password": parts.password}
    options = _as_disque_says(parts.options) if url.startswith(REDIS_SCHEMES) else parts.options
    tls_words = {name: value for name, value in options.items() if name in TLS_WORDS}
    known = {setting.name for setting in fields(ClientOptions)} - {"seeds", "username", "password", "tls"}
    for name, value in options.items():
        if name in TLS_WORDS:
            continue
        if name not in known:
            raise ValueError(f"unknown option in the URL: {name!r}")
        settings[name] = _READERS.get(name, str)(value)
    if parts.tls:
        settings["tls"] = _url_context(tls_words)
    elif tls_words:
        raise ValueError("TLS options need disques:// or rediss://")
    found = {name: value for name, value in settings.items() if value is not None}
    return parts.nodes, cast(ClientSettings, found)


# Options in the URLs of Redis clients, with their names here.
REDIS_WORDS: Final = {
    "client_name": "name",
    "socket_timeout": "timeout",
    "socket_connect_timeout": "connect_timeout",
    "max_connections": "pool_size",
    "ssl_ca_certs": "ca",
    "ssl_certfile": "cert",
    "ssl_keyfile": "key",
    "ssl_cert_reqs": "verify",
}


def _as_disque_says(options: Mapping[str, str]) -> dict[str, str]:
    said = {REDIS_WORDS.get(name, name): value for name, value in options.items() if name != "db"}
    if options.get("db", "0") != "0":
        raise ValueError(f"Disque has one database, 0, not {options['db']!r}")
    if "ssl_cert_reqs" in options:
        said["verify"] = "no" if options["ssl_cert_reqs"] == "none" else "yes"
    return said


def _url_context(tls_words: dict[str, str]) -> ssl.SSLContext:
    try:
        context = trusting(tls_words.get("ca"))
    except OSError as error:
        raise _unusable(error, tls_words, "ca") from error
    try:
        if "cert" in tls_words:
            context.load_cert_chain(tls_words["cert"], tls_words.get("key"))
    except OSError as error:
        raise _unusable(error, tls_words, "cert", "key") from error
    if not _flag(tls_words.get("verify", "yes")):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _unusable(error: OSError, tls_words: Mapping[str, str], *names: str) -> ValueError:
    """Return the error of files that can't be used. Those of Python and OpenSSL don't name them."""
    files = " with ".join(f"{name}={tls_words[name]}" for name in names if name in tls_words)
    return ValueError(f"{files}: {error.strerror or error}")


def _flag(value: str) -> bool:
    if value.lower() in ("1", "yes", "true", "on"):
        return True
    if value.lower() in ("0", "no", "false", "off"):
        return False
    raise ValueError(f"write yes or no, not {value!r}")


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "timeout": float,
    "connect_timeout": float,
    "patience": float,
    "pool_size": int,
    "discover": _flag,
    "follow": _flag,
    "retry_unsafe": _flag,
}
