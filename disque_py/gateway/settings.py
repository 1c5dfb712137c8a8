"""The settings of disque-gateway: one table for the file, the environment, the command line and the documentation.

A file has a line per setting, `name value`. As in a shell, `#` begins a comment at the start of a word. An environment variable, DISQUE_GATEWAY_ and the name
in capitals, wins over the file. A command line option wins over both.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from disque_py.client.address import Address, parse_address

ENVIRONMENT: Final = "DISQUE_GATEWAY_"
# A line up to its comment. shlex would also find comments within words, and cut passwords.
_CONTENT: Final = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.#*|(?<=\S)#|[^#"'\\])*""")
HTTP_PORT: Final = 8711
GRPC_PORT: Final = 8712


def _address(default_port: int) -> Callable[[str], Address | None]:
    def read(text: str) -> Address | None:
        found = parse_address(text, default_port) if text else None
        if found is not None and found.path:
            raise ValueError("must be host:port, not a socket")
        return found

    return read


def _flag(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError("must be yes or no")
    return text == "yes"


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in text.split(",") if name.strip())


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _cluster_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", text):
        raise ValueError("must be a name of lower-case letters, digits and dashes")
    return text


def _clusters(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split():
        name, _, url = part.partition("=")
        if _cluster_name(name) in found or not url:
            raise ValueError("must be name=url for each cluster, with different names")
        found[name] = url
    return found


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return read


def _base(text: str) -> str:
    if text and (not text.startswith("/") or text.endswith("/")):
        raise ValueError("must be empty, or a path such as /disque")
    return text


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, its default as text, its reader and its meaning."""

    name: str
    default: str
    read: Callable[[str], Any]
    help: str

    @property
    def field(self) -> str:
        """The name of the attribute."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return ENVIRONMENT + self.name.upper().replace("-", "_")


TABLE: Final = (
    Setting("listen", f"127.0.0.1:{HTTP_PORT}", _address(HTTP_PORT), "address of HTTP and the console"),
    Setting(
        "grpc-listen",
        f"127.0.0.1:{GRPC_PORT}",
        _address(GRPC_PORT),
        "address of gRPC and of KEDA's scaler; empty: none",
    ),
    Setting(
        "url",
        "disque://127.0.0.1:7711",
        str,
        "the cluster, with the gateway's own login: disque://user:password@host:port,…",
    ),
    Setting(
        "cluster-name",
        "main",
        _cluster_name,
        "name of the cluster of `url`, for people and for `clusters` in the access file",
    ),
    Setting(
        "clusters",
        "",
        _clusters,
        "further clusters: `eu=disque://… us=disque://…`; a file can have a line `cluster NAME URL` for each",
    ),
    Setting("base-path", "", _base, "prefix of all paths, if a proxy serves other services on the same host"),
    Setting("hosts", "", _names, "further names of this gateway in Host headers, separated by commas; `*`: any"),
    Setting("access-file", "", str, "file of bearer tokens and of roles; it is read again when it changes"),
    Setting("broker-users", "no", _flag, "let users of the broker log in with their passwords"),
    Setting(
        "oidc-issuer", "", str, "URL of the issuer whose tokens (JWT) are logins, exactly as in its discovery document"
    ),
    Setting(
        "oidc-audience",
        "",
        _words,
        "audiences of these tokens, separated by commas: a token must name one of them",
    ),
    Setting("oidc-leeway", "30", _number(0, 600), "seconds by which the issuer's clock may differ"),
    Setting("oidc-name-claim", "sub", str, "claim that names the caller in the audit log"),
    Setting(
        "oidc-client-id", "", str, "id of the console at the issuer; with it people log in there, with code and PKCE"
    ),
    Setting("oidc-client-secret", "", str, "secret of the console at the issuer, if it has one"),
    Setting("oidc-redirect", "", str, "URL of the console's `oidc/back` at the issuer; by default that of the request"),
    Setting(
        "tls-cert",
        "",
        str,
        "file of the gateway's certificate; without it TLS is off. It is read again when it changes, and after SIGHUP",
    ),
    Setting("tls-key", "", str, "file of the gateway's private key"),
    Setting("tls-client-ca", "", str, "file of certificate authorities; certificates that they signed are logins"),
    Setting(
        "tls-client-required",
        "no",
        _flag,
        "refuse connections without a certificate; gRPC requests a certificate only with `yes`",
    ),
    Setting(
        "body-max",
        "1048576",
        _number(1, 2**30),
        "the most bytes of a request's body or a line of a batch over HTTP, and of a job's body over gRPC; in JSON, a job's "
        "body needs more",
    ),
    Setting("batch-max-jobs", "10000", _number(1, 1_000_000), "the most jobs in a batch"),
    Setting("batch-max-bytes", "16777216", _number(1, 2**31), "the most bytes of a batch"),
    Setting("wait-max-ms", "30000", _number(0, 3_600_000), "the most milliseconds that a request may wait for jobs"),
    Setting(
        "connections-max",
        "1000",
        _number(1, 1_000_000),
        "the most connections at a time, of HTTP and of gRPC each; others are refused, except for `/livez`",
    ),
    Setting("streams-max", "64", _number(1, 100_000), "the most event streams of one caller at a time"),
    Setting(
        "stream-idle-ms",
        "10000",
        _number(100, 3_600_000),
        "milliseconds after which the stream of a reader that reads nothing is closed",
    ),
    Setting("search-max", "100000", _number(1, 10_000_000), "the most jobs that a search by reason or age reads"),
    Setting("rate", "0", _number(0, 10_000_000), "the most requests per second of one caller; 0: no limit"),
    Setting(
        "address-rate",
        "0",
        _number(0, 10_000_000),
        "the most requests per second from one address, or from one IPv6 network of 64 bits; 0: no limit",
    ),
    Setting("console", "yes", _flag, "serve the console"),
    Setting("read-only", "no", _flag, "refuse every operation that changes something"),
    Setting(
        "poll-ms",
        "2000",
        _number(100, 3_600_000),
        "milliseconds between two queries of all nodes, for lists and the console",
    ),
    Setting(
        "metrics-max-queues",
        "1000",
        _number(0, 100_000),
        "the most queues with labels in /metrics; the others are `_other`",
    ),
    Setting(
        "metrics-events", "yes", _flag, "count the events of all nodes for /metrics, starting with the first scrape"
    ),
    Setting(
        "audit-log",
        "",
        str,
        "file for a JSON line per change; empty: standard error. It may be renamed at any time (logrotate)",
    ),
)
BY_NAME: Final = {setting.name: setting for setting in TABLE}


class Settings:
    """The values, as attributes with underscores: `settings.body_max`."""

    listen: Address
    grpc_listen: Address | None
    url: str
    cluster_name: str
    clusters: dict[str, str]
    base_path: str
    hosts: tuple[str, ...]
    access_file: str
    broker_users: bool
    oidc_issuer: str
    oidc_audience: tuple[str, ...]
    oidc_leeway: int
    oidc_name_claim: str
    oidc_client_id: str
    oidc_client_secret: str
    oidc_redirect: str
    tls_cert: str
    tls_key: str
    tls_client_ca: str
    tls_client_required: bool
    body_max: int
    batch_max_jobs: int
    batch_max_bytes: int
    wait_max_ms: int
    connections_max: int
    streams_max: int
    stream_idle_ms: int
    search_max: int
    rate: int
    address_rate: int
    console: bool
    read_only: bool
    poll_ms: int
    metrics_max_queues: int
    metrics_events: bool
    audit_log: str

    def __init__(self, texts: Mapping[str, str]) -> None:
        for name in texts:
            if name not in BY_NAME:
                raise ValueError(f"there is no setting {name!r}")
        for setting in TABLE:
            text = texts.get(setting.name, setting.default)
            try:
                setattr(self, setting.field, setting.read(text))
            except ValueError as error:
                # URLs of clusters have passwords, and errors are logged.
                shown = setting.name if setting.name == "clusters" else f"{setting.name} {text!r}"
                raise ValueError(f"{shown}: {error}") from None
        self._check()

    @property
    def has_logins(self) -> bool:
        """Whether callers have to log in."""
        return bool(self.schemes)

    @property
    def schemes(self) -> tuple[str, ...]:
        """The kinds of login that a caller can use: `basic`, `bearer`, `certificate`. Without logins it is empty."""
        accepted = {
            "basic": self.broker_users,
            "bearer": bool(self.access_file or self.oidc_issuer),
            "certificate": bool(self.tls_client_ca),
        }
        return tuple(scheme for scheme, is_accepted in accepted.items() if is_accepted)

    def _check(self) -> None:
        if self.listen is None:
            raise ValueError("listen can't be empty")
        if self.tls_key and not self.tls_cert:
            raise ValueError("tls-key needs tls-cert")
        if self.cluster_name in self.clusters:
            raise ValueError(f"clusters: {self.cluster_name} is the name of the cluster of url (cluster-name)")
        if self.tls_client_ca and not self.tls_cert:
            raise ValueError("tls-client-ca needs tls-cert")
        if self.tls_client_required and not self.tls_client_ca:
            raise ValueError("tls-client-required needs tls-client-ca")
        if self.oidc_issuer and not (self.oidc_audience or self.oidc_client_id):
            raise ValueError("oidc-issuer needs oidc-audience, oidc-client-id or both")
        if self.oidc_issuer and not is_safe(self.oidc_issuer):
            raise ValueError(f"oidc-issuer {self.oidc_issuer}: it must be https")
        for name, entries in (("oidc-issuer", self.oidc_issuer), ("tls-client-ca", self.tls_client_ca)):
            if entries and not self.access_file:
                raise ValueError(f"{name} needs access-file, which gives roles to claims and certificates")
        if self.grpc_listen is not None and _place(self.listen) == _place(self.grpc_listen):
            raise ValueError(f"grpc-listen {self.grpc_listen} is the address of listen; HTTP and gRPC need a port each")
        for name, address in (("listen", self.listen), ("grpc-listen", self.grpc_listen)):
            if address is not None and not self.has_logins and not is_loopback(address.host):
                raise ValueError(
                    f"{name} {address}: without logins the gateway listens only on loopback; set access-file or broker-users"
                )


def _place(address: Address) -> tuple[str, int]:
    host = address.host.lower()
    return "127.0.0.1" if host == "localhost" else host, address.port


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_safe(url: str) -> bool:
    """Return whether no other machine can answer for this URL: https, or loopback."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def read_settings(
    path: str | None, options: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of a file, the environment and options. Raises OSError, and ValueError with the line."""
    known = os.environ if environment is None else environment
    texts = _read_file(path) if path else {}
    for setting in TABLE:
        if setting.variable in known:
            texts[setting.name] = known[setting.variable]
    return Settings({**texts, **options})


def _read_file(path: str) -> dict[str, str]:
    try:
        return parse_file(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # Also bytes that are no UTF-8.
        raise ValueError(f"{path}: {error}") from None


def _without_comment(line: str) -> str:
    found = _CONTENT.match(line)
    end = found.end() if found is not None else 0
    return line[:end] if line.startswith("#", end) else line


def parse_file(text: str) -> dict[str, str]:
    """Return name → value of the lines of a file. Raises ValueError."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(_without_comment(line))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if not words:
            continue
        if words[0] == "cluster":
            if len(words) != 3 or "=" in words[1] or len(words[2].split()) != 1:
                raise ValueError(f"line {number}: cluster NAME URL")
            found["clusters"] = f"{found.get('clusters', '')} {words[1]}={words[2]}".strip()
            continue
        if len(words) > 2 or words[0] not in BY_NAME:
            what = f"there is no setting {words[0]!r}" if words[0] not in BY_NAME else "one value per line"
            raise ValueError(f"line {number}: {what}")
        if words[0] in found:
            raise ValueError(f"line {number}: {words[0]} was set before")
        found[words[0]] = words[1] if len(words) == 2 else ""
    return found
