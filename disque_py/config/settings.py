"""Settings: the values in force, one attribute per directive.

The broker reads attributes (`settings.maxmemory`). Names and texts are for CONFIG, files and the command line. This
module changes values only. server/settings_effects.py puts them into effect on the process.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from disque_py.config.directives import BY_NAME, DIRECTIVES, NEVER, REDIS_ONLY_PREFIXES, Directive
from disque_py.config.kinds import WRONG_COUNT, OutputLimits, Seed
from disque_py.resp.glob import matches

if TYPE_CHECKING:
    from collections.abc import Sequence

HIDDEN: Final = "(hidden)"
BUS_PORT_DISTANCE: Final = 10_000  # The distance from the client port to the default bus port, as in the original.
PORT_MAX: Final = 65_535
# The similarity that makes one name a misspelling of another, and the longest name that is compared.
SLIP_RATIO: Final = 0.8
SLIP_CHARS_MAX: Final = 64
FIXED: Final = "It can't be changed while the node runs: set it in the configuration, and restart the node"


class DirectiveError(Exception):
    """The error of a refused name or value. No value was changed.

    For a line of a file, `text` is the reason. For CONFIG SET, it is the whole error reply with its code.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Settings:
    """The values of all directives, in the directives' units (ms, seconds, bytes). A new object has the defaults."""

    __slots__ = tuple(directive.attribute for directive in DIRECTIVES)

    acl_cluster: bool
    aclfile: str
    activerehashing: bool
    aof_enqueue_jobs_once: bool
    aof_load_truncated: bool
    aof_rewrite_incremental_fsync: bool
    appendfilename: str
    appendfsync: str
    appendonly: bool
    audit_log: str
    auto_aof_rewrite_min_size: int
    auto_aof_rewrite_percentage: int
    bind: tuple[str, ...]
    client_output_buffer_limit: OutputLimits
    client_query_buffer_limit: int
    claim_drift_max: int
    cluster_announce_bus_port: int
    cluster_announce_ip: str
    cluster_announce_port: int
    cluster_announce_tls_port: int
    cluster_config_file: str
    cluster_node_timeout: int
    cluster_port: int
    cluster_secret: str
    cluster_seeds: tuple[Seed, ...]
    daemonize: bool
    databases: int
    datacenter: str
    dir: str
    events: bool
    events_body: bool
    events_max_age: int
    events_max_bytes: int
    hz: int
    job_meta_max_pairs: int
    result_max_bytes: int
    latency_monitor_threshold: int
    loading_wait: int
    log_format: str
    logfile: str
    loglevel: str
    maxclients: int
    maxmemory: int
    maxmemory_policy: str
    maxmemory_samples: int
    maxmemory_spill: bool
    no_appendfsync_on_rewrite: bool
    pidfile: str
    port: int
    proto_max_bulk_len: int
    protected_mode: bool
    rename_command: tuple[tuple[str, str], ...]
    repair_after: int
    repair_rate: int
    replicate_default: int
    requirepass: str
    slowlog_log_slower_than: int
    slowlog_max_len: int
    supervised: str
    syslog_enabled: bool
    syslog_facility: str
    syslog_ident: str
    tcp_backlog: int
    tcp_keepalive: int
    timeout: int
    tls_auth_clients: str
    tls_auth_clients_user: str
    tls_ca_cert_file: str
    tls_cert_file: str
    tls_cluster: bool
    tls_key_file: str
    tls_key_file_pass: str
    tls_port: int
    unixsocket: str
    unixsocketperm: int
    watchdog_period: int
    zone: str

    def __init__(self) -> None:
        for directive in DIRECTIVES:
            setattr(self, directive.attribute, directive.default)

    @property
    def bus_port(self) -> int:
        """The port for other nodes: cluster-port if it is set, else the client port + 10000."""
        return self.cluster_port or (self.port or self.tls_port) + BUS_PORT_DISTANCE

    def copy(self) -> Settings:
        """Return another object with the same values. They are shared: values are replaced and never mutated."""
        same = Settings()
        for directive in DIRECTIVES:
            setattr(same, directive.attribute, getattr(self, directive.attribute))
        return same

    def value(self, name: str) -> Any:
        """Return the value of a directive by its name in lower case. KeyError for an unknown name."""
        return getattr(self, BY_NAME[name].attribute)

    def restore(self, name: str, value: Any) -> None:
        """Restore the value that `set_text` returned, because the change could not be put into effect."""
        setattr(self, BY_NAME[name.lower()].attribute, value)

    def get_text(self, name: str) -> str:
        """Return the value as CONFIG GET shows it. A secret is empty or `(hidden)`. KeyError for an unknown name."""
        directive = BY_NAME[name.lower()]
        text = directive.kind.text(getattr(self, directive.attribute))
        return HIDDEN if directive.is_secret and text else text

    def matching(self, pattern: str) -> list[tuple[str, str]]:
        """Return names and values for CONFIG GET, in the order of the table. The pattern ignores case (spec D4)."""
        return [
            (directive.name, self.get_text(directive.name))
            for directive in DIRECTIVES
            if directive.is_shown and matches(pattern, directive.name, ignore_case=True)
        ]

    def set_text(self, name: str, words: Sequence[str], source: str = "file") -> Any:
        """Change one value. Return the old one, for `restore`.

        `source` is "file" for a file or the command line, and `words` are then the words after the name. With "set",
        `words` are the one value of CONFIG SET. DirectiveError if the name is unknown or not allowed in this source, or
        if the value is wrong. For CONFIG SET, spec R8 has the error texts.
        """
        directive = BY_NAME.get(name.lower())
        if source == "set":
            return self._set_live(name, directive, words)
        if directive is None or directive.rewriting == NEVER:
            raise DirectiveError(_unknown_text(name.lower()))
        try:
            return self._put(directive, words)
        except ValueError as error:
            raise DirectiveError(str(error)) from None

    def _set_live(self, name: str, directive: Directive | None, words: Sequence[str]) -> Any:
        if directive is None:
            raise DirectiveError(f"ERR Unsupported CONFIG parameter: {name}{did_you_mean(name)}")
        if not directive.is_live:
            raise DirectiveError(f"ERR Unsupported CONFIG parameter: {name}. {FIXED}")
        typed = " ".join(words)
        try:
            return self._put(directive, typed.split() if directive.kind.takes_many_words else words)
        except ValueError:
            shown = HIDDEN if directive.is_secret else typed
            advice = f"Give {directive.kind.accepted}"
            raise DirectiveError(f"ERR Invalid argument '{shown}' for CONFIG SET '{name}'. {advice}") from None

    def _put(self, directive: Directive, words: Sequence[str]) -> Any:
        old = getattr(self, directive.attribute)
        setattr(self, directive.attribute, directive.kind.merge(old, directive.kind.parse(words)))
        return old

    def conflicts(self) -> list[str]:
        """Return the conflicts between values that are valid on their own. The server checks them once, at start."""
        found = []
        if self.bus_port > PORT_MAX:
            found.append(f"the bus port would be {self.bus_port}: choose a port up to 55535, or set cluster-port")
        ports = [port for port in (self.port, self.tls_port, self.bus_port) if port]
        if len(set(ports)) < len(ports):
            found.append(
                f"port {self.port}, tls-port {self.tls_port} and the bus port {self.bus_port} must differ:"
                " change port, tls-port or cluster-port"
            )
        if self.tls_port or self.tls_cluster:
            if not (self.tls_cert_file and self.tls_key_file):
                found.append("TLS needs tls-cert-file and tls-key-file: set both, or remove tls-port and tls-cluster")
            if not self.tls_ca_cert_file and (self.tls_cluster or self.tls_auth_clients != "no"):
                found.append(
                    "TLS needs tls-ca-cert-file to check certificates: set it, or set tls-auth-clients and tls-cluster"
                    " to no"
                )
        if self.acl_cluster and not self.cluster_secret:
            found.append("acl-cluster needs cluster-secret, or any machine could send users: set one on all nodes")
        if self.acl_cluster and self.aclfile:
            found.append("acl-cluster keeps users with the queue settings: remove aclfile")
        if self.tls_auth_clients_user != "off" and self.tls_auth_clients == "no":
            found.append("tls-auth-clients-user needs client certificates: set tls-auth-clients to yes or optional")
        return found


def close_name(name: str) -> str:
    """Return the directive that `name` seems to misspell, or an empty text."""
    if len(name) > SLIP_CHARS_MAX:
        return ""
    name = name.lower()
    letters = sorted(name)
    found = get_close_matches(name, BY_NAME, 1, SLIP_RATIO)
    # In a short name, two swapped letters are too great a difference for the ratio.
    found += [each for each in BY_NAME if sorted(each) == letters]
    return found[0] if found else ""


def did_you_mean(name: str) -> str:
    """Return a suggestion to append to the error text about an unknown directive, or an empty text."""
    meant = close_name(name)
    return f". Did you mean '{meant}'?" if meant else ""


def _unknown_text(name: str) -> str:
    name, sign, _ = name.partition("=")  # The value may be a secret.
    if sign and name in BY_NAME:
        return f"{WRONG_COUNT}: put a blank between '{name}' and its value, and no ="
    if name == "user":
        return f"{WRONG_COUNT}: users are lines of the file that aclfile names, move the line there"
    if name.startswith(REDIS_ONLY_PREFIXES):
        return f"{WRONG_COUNT}: '{name}' belongs to Redis and has no meaning here, remove the line"
    if name in BY_NAME:
        return f"{WRONG_COUNT}: only CONFIG SET can set '{name}', on a running node"
    shown = f"'{name}'" if len(name) <= SLIP_CHARS_MAX else "of this name"
    return f"{WRONG_COUNT}: there is no directive {shown}{did_you_mean(name)}"
