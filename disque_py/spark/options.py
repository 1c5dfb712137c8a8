"""Options of the data sources: their names, their values, and one sentence for each wrong one.

Spark gives a data source its options as text under lower-cased names. A source declares the names that it knows.
Other names are refused, because a misspelled `maxOffsetsPerTriger` would otherwise be ignored silently.
All options are read before a connection is opened or a row is written. `disque.*` are settings of the
connection (docs/spark.md lists them all). Pure.
"""

from __future__ import annotations

import ssl as tls
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from disque_py.client import Address, ClientOptions
from disque_py.client.address import parse_address
from disque_py.client.tls import trusting
from disque_py.spark.option_error import OptionError as OptionError

# These mean nothing without TLS, and would leave a password readable on the network.
TLS_OPTIONS: Final = ("disque.ssl.ca", "disque.ssl.cert", "disque.ssl.key", "disque.ssl.verify")
CONNECTION_OPTIONS: Final = (
    "bootstrapServers",
    "disque.username",
    "disque.password",
    "disque.timeoutMs",
    "disque.connectTimeoutMs",
    "disque.ssl",
    *TLS_OPTIONS,
)
# Threads and sockets can't wait for times of any length.
TIME_MAX_MS: Final = 24 * 3_600_000
# Spark itself adds these to the options of a source or a sink.
SPARK_OPTIONS: Final = frozenset({"path", "checkpointlocation", "queryname", "paths"})

TRUE: Final = frozenset({"true", "yes", "1", "on"})
FALSE: Final = frozenset({"false", "no", "0", "off"})


class Options:
    """The options of one load or save.

    format   the name of the source, for messages
    """

    def __init__(self, format_name: str, given: Mapping[str, str], known: Iterable[str]) -> None:
        """Read the given options. Raises OptionError for a name that is not `known`."""
        self.format = format_name
        self._values = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known}
        for name in self._values:
            if name not in names and name not in SPARK_OPTIONS and not name.startswith("spark."):
                close = get_close_matches(name, names, 1)
                hint = f"; did you mean {names[close[0]]}?" if close else ""
                raise OptionError(f"{format_name} has no option {name!r}{hint}")

    def has(self, name: str) -> bool:
        """Return whether the option was given."""
        return name.lower() in self._values

    def text(self, name: str, default: str = "") -> str:
        """Return the option's value as it was given."""
        return self._values.get(name.lower(), default)

    def required(self, name: str, example: str) -> str:
        """Return the option's value. Raises OptionError when it is missing or empty."""
        value = self.text(name).strip()
        if not value:
            raise OptionError(f'{self.format} needs the option {name}, such as .option("{name}", "{example}")')
        return value

    def integer(self, name: str, default: int, minimum: int = 0, maximum: int = 2**63 - 1) -> int:
        """Return the option as a whole number. Raises OptionError for anything else, and outside the bounds."""
        return default if not self.has(name) else self._integer(name, minimum, maximum)

    def integer_or_none(self, name: str, minimum: int = 0, maximum: int = 2**63 - 1) -> int | None:
        """Return the option as a whole number, or None when it was not given. Raises OptionError as `integer`."""
        return self._integer(name, minimum, maximum) if self.has(name) else None

    def _integer(self, name: str, minimum: int, maximum: int) -> int:
        text = self.text(name).strip()
        try:
            value = int(text)
        except ValueError:
            raise OptionError(f"{self.format}: option {name} must be a whole number, not {text!r}") from None
        if not minimum <= value <= maximum:
            bound = f"at least {minimum}" if value < minimum else f"at most {maximum}"
            raise OptionError(f"{self.format}: option {name} must be {bound}, not {value}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return the option as true or false. Raises OptionError for other words."""
        if not self.has(name):
            return default
        value = self.text(name).strip().lower()
        if value in TRUE or value in FALSE:
            return value in TRUE
        raise OptionError(f"{self.format}: option {name} must be true or false, not {self.text(name)!r}")

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """Return the option in lower case. Raises OptionError if it is not one of `choices`."""
        value = self.text(name, default).strip().lower()
        if value not in choices:
            raise OptionError(f"{self.format}: option {name} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return the members of a comma-separated list, without the blanks around them."""
        return tuple(word.strip() for word in self.text(name).split(",") if word.strip())

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the options whose names begin with `prefix`, with the prefix cut off."""
        return {name[len(prefix) :]: value for name, value in self._values.items() if name.startswith(prefix.lower())}


def check_days(what: str, since: str, until: str) -> None:
    """Compare the bounds YYYY-MM-DD, of which each may be empty. Raises OptionError when no day is between them."""
    if since and until and since > until:
        raise OptionError(f"{what}: since is {since}, which is after until, {until}; no day is between them")


def check_own_schema(format_name: str, given: Sequence[str], own: Sequence[str]) -> None:
    """Compare the columns of .schema(…) with the source's own columns. Raises OptionError when they differ."""
    if list(given) != list(own):
        raise OptionError(
            f"{format_name}: the source defines its columns, and .schema({', '.join(given)}) has others; leave "
            ".schema() out and select the columns that you need"
        )


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The settings for a source's connections. They are plain values, so Spark can send them to executors.

    format      the name of the source, for messages
    nodes       bootstrapServers
    timeout_s, connect_timeout_s   as in the client library
    ssl_*       files and flags for TLS
    """

    format: str
    nodes: tuple[Address, ...]
    username: str | None
    password: str | None = field(repr=False)
    timeout_s: float
    connect_timeout_s: float
    ssl: bool
    ssl_ca: str
    ssl_cert: str
    ssl_key: str
    ssl_verify: bool

    def client_options(self) -> ClientOptions:
        """Return the same settings for the client library. This reads the certificates."""
        return ClientOptions(
            seeds=self.nodes,
            username=self.username,
            password=self.password,
            timeout=self.timeout_s,
            connect_timeout=self.connect_timeout_s,
            tls=self._tls_context() if self.ssl else False,
        )

    def _tls_context(self) -> tls.SSLContext:
        try:
            context = trusting(self.ssl_ca)
            if self.ssl_cert:
                context.load_cert_chain(self.ssl_cert, self.ssl_key or None)
        except OSError as error:
            raise OptionError(
                f"{self.format}: the files of disque.ssl.ca, disque.ssl.cert or disque.ssl.key can't be read on "
                f"this machine: {error}"
            ) from None
        if not self.ssl_verify:
            context.check_hostname = False
            context.verify_mode = tls.CERT_NONE
        return context


def cluster_options(options: Options) -> ClusterOptions:
    """Return the options of the connection. Raises OptionError."""
    words = options.required("bootstrapServers", "10.0.0.1:7711,10.0.0.2:7711").split(",")
    nodes = []
    for word in words:
        try:
            nodes.append(parse_address(word.strip()))
        except ValueError as error:
            raise OptionError(f"{options.format}: option bootstrapServers: {error}; write host:port") from None
    if not options.has("disque.ssl"):
        for name in TLS_OPTIONS:
            if options.has(name):
                raise OptionError(
                    f"{options.format}: option {name} needs disque.ssl=true; with disque.ssl=false, it is ignored"
                )
    if options.text("disque.ssl.key") and not options.text("disque.ssl.cert"):
        raise OptionError(f"{options.format}: option disque.ssl.key needs disque.ssl.cert, the certificate of this key")
    if options.text("disque.username") and not options.text("disque.password"):
        raise OptionError(
            f"{options.format}: option disque.username needs disque.password, or the source would not log in; "
            "disque-pipeline also takes it from the environment, as DISQUECLI_AUTH; for a user with nopass, any text "
            "will do"
        )
    return ClusterOptions(
        format=options.format,
        nodes=tuple(nodes),
        username=options.text("disque.username") or None,
        password=options.text("disque.password") or None,
        timeout_s=options.integer("disque.timeoutMs", 30_000, 1, TIME_MAX_MS) / 1000,
        connect_timeout_s=options.integer("disque.connectTimeoutMs", 3_000, 1, TIME_MAX_MS) / 1000,
        ssl=options.flag("disque.ssl", default=False),
        ssl_ca=options.text("disque.ssl.ca"),
        ssl_cert=options.text("disque.ssl.cert"),
        ssl_key=options.text("disque.ssl.key"),
        ssl_verify=options.flag("disque.ssl.verify", default=True),
    )
