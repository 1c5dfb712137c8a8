"""The table of directives: name, kind, default, help, and where each may be used.

CONFIG, the config file, conf/disque.conf (sample.py) and the attributes of `Settings` derive from this table, or tests
compare them with it. The ranges are those of the original, unless it accepted senseless values (spec D4, Q5, Q24).
docs/divergence.md explains the directives and ranges that the original does not have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from disque_py.config.kinds import (
    Addresses,
    Choice,
    FileName,
    Flag,
    Integer,
    KeepAlive,
    Kind,
    Memory,
    Octal,
    OutputLimit,
    OutputLimitGroups,
    OutputLimits,
    PlaceName,
    Renames,
    Seeds,
    Text,
)

# How CONFIG REWRITE treats the lines of a directive.
MANAGED: Final = "managed"  # The lines are written again from the value in force.
KEPT: Final = "kept"  # The lines stay as they are.
NEVER: Final = "never"  # The directive is not valid in files.

# The meta pairs of a job have to fit into a frame of the bus.
META_PAIRS_MAX: Final = 1_000
MB: Final = 1 << 20
GB: Final = 1 << 30
PORT: Final = Integer(0, 65_535)
YES_NO: Final = Flag()
PATH: Final = Text()


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive.

    is_live     CONFIG SET may change it
    is_shown    CONFIG GET lists it
    is_secret   CONFIG GET and error replies never show the value
    rewriting   MANAGED, KEPT or NEVER
    example     the value that conf/disque.conf shows when the default is empty
    """

    name: str
    kind: Kind
    default: Any
    help: str
    is_live: bool = False
    is_shown: bool = True
    is_secret: bool = False
    rewriting: str = MANAGED
    example: str = ""
    attribute: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attribute", self.name.replace("-", "_"))


@dataclass(frozen=True, slots=True)
class Section:
    """Directives that conf/disque.conf shows under one heading."""

    title: str
    directives: tuple[Directive, ...]


_NETWORK: Final = Section(
    "Network",
    (
        Directive(
            "port",
            PORT,
            7711,
            "TCP port for clients; 0: no clients without TLS. Nodes connect to each other on this port + 10000 unless"
            " cluster-port is set.",
        ),
        Directive(
            "bind",
            Addresses(),
            (),
            "1 to 16 addresses to listen on, for clients and for other nodes; without it, all IPv4 and IPv6 addresses."
            " Connections to other nodes come from the first one.",
            example="192.168.1.100 127.0.0.1",
        ),
        Directive(
            "protected-mode",
            YES_NO,
            True,
            "yes: with neither requirepass nor bind, clients of other machines are refused (-DENIED); without"
            " cluster-secret, other nodes are accepted on loopback addresses only. A machine that reaches an open port"
            " can read and delete every job.",
        ),
        Directive(
            "tcp-backlog",
            Integer(0, 65_535),
            511,
            "Connections that may wait to be accepted. The kernel limits this to net.core.somaxconn.",
        ),
        Directive(
            "unixsocket",
            PATH,
            "",
            "Path of a unix socket that also accepts clients. A file left there by an earlier run is removed first.",
            example="/run/disque/disque.sock",
        ),
        Directive(
            "unixsocketperm",
            Octal(),
            0,
            "Permissions of the unix socket, octal; 0: those of the umask.",
        ),
        Directive(
            "timeout",
            Integer(0, 10**9, "seconds"),
            0,
            "Close clients that were silent for this many seconds; 0: never. Clients blocked in ADDJOB or GETJOB are"
            " not closed.",
            is_live=True,
        ),
        Directive(
            "tcp-keepalive",
            KeepAlive(),
            0,
            "Seconds of silence after which the kernel probes whether a client still exists; 0 or no: never, yes:"
            " 300. Further probes follow after each third of this time. Three unanswered probes end the connection.",
            is_live=True,
        ),
    ),
)

_TLS: Final = Section(
    "TLS",
    (
        Directive(
            "tls-port", PORT, 0, ("TCP port for clients that use TLS; 0: none. It may be used together with `port`.")
        ),
        Directive(
            "tls-cert-file",
            PATH,
            "",
            ("File with the certificate of this node and its chain, PEM."),
            example="/etc/disque/node.crt",
        ),
        Directive(
            "tls-key-file", PATH, "", ("File with the private key of this node, PEM."), example="/etc/disque/node.key"
        ),
        Directive(
            "tls-key-file-pass",
            Text(512),
            "",
            "Password of the private key, if it has one.",
            is_secret=True,
            example="secret",
        ),
        Directive(
            "tls-ca-cert-file",
            PATH,
            "",
            "File with the certificates of trusted authorities, PEM. It is needed to check clients and other nodes.",
            example="/etc/disque/ca.crt",
        ),
        Directive(
            "tls-auth-clients",
            Choice("no", "optional", "yes"),
            "yes",
            "Whether clients must (yes) or may (optional) show a certificate signed by tls-ca-cert-file.",
        ),
        Directive(
            "tls-auth-clients-user",
            Choice("off", "CN"),
            "off",
            "CN: a client whose certificate has the name of a user as its common name is logged in as that user.",
        ),
        Directive(
            "tls-cluster",
            YES_NO,
            False,
            "Use TLS between nodes, with certificates checked on both ends. It must be the same on all nodes of a"
            " cluster.",
        ),
    ),
)

_PROCESS: Final = Section(
    "Process and log",
    (
        Directive("daemonize", YES_NO, False, "Run in the background. Keep it at no under systemd and in containers."),
        Directive(
            "supervised",
            Choice("no", "systemd", "auto"),
            "no",
            "Tell systemd when the node is ready, stopping and alive (units with Type=notify); auto: if NOTIFY_SOCKET"
            " is set.",
        ),
        Directive("pidfile", PATH, "/var/run/disque.pid", "File for the process id when daemonized."),
        Directive(
            "dir",
            Text(may_be_empty=False),
            ".",
            "Working directory. Relative paths, such as those of the nodes file and the log, start here."
            " CONFIG SET moves no file: the nodes file, the journal and others that are in use stay where they are."
            " Before a start with the new directory, move them there, or the node starts as a new one without jobs.",
            is_live=True,
        ),
        Directive(
            "loglevel",
            Choice("debug", "verbose", "notice", "warning"),
            "notice",
            "How much is logged: debug, verbose, notice or warning.",
            is_live=True,
        ),
        Directive(
            "logfile",
            PATH,
            "",
            "File to log to; empty: standard output. It may be renamed at any time (logrotate): the node opens a new"
            " one.",
        ),
        Directive(
            "log-format",
            Choice("text", "json"),
            "text",
            "Format of log lines: text, or JSON objects with the message's name and fields.",
            is_live=True,
        ),
        Directive("syslog-enabled", YES_NO, False, "Log to syslog as well."),
        Directive("syslog-ident", Text(255, may_be_empty=False), "disque", "Name of this node in syslog."),
        Directive(
            "syslog-facility",
            Choice("user", *(f"local{number}" for number in range(8))),
            "local0",
            "Facility of syslog: user or local0 to local7.",
        ),
        Directive(
            "watchdog-period",
            Integer(0, 10**7, "milliseconds"),
            0,
            "CONFIG SET only: log the program's stack when its loop stalls for more than this many milliseconds (at"
            " least 200); 0: off.",
            is_live=True,
            rewriting=NEVER,
        ),
    ),
)

_CLIENTS: Final = Section(
    "Clients",
    (
        Directive(
            "maxclients",
            Integer(1, 10**7, "clients"),
            10_000,
            "The most clients that may be connected. It is lowered at start if the limit of open files, minus 32, is"
            " lower.",
            is_live=True,
        ),
        Directive(
            "requirepass",
            Text(512),
            "",
            "Password that clients must give with AUTH; empty: none. Use a long random text.",
            is_live=True,
            is_secret=True,
            example="a-long-random-text",
        ),
        Directive(
            "aclfile",
            PATH,
            "",
            "File with users, one `user <name> <rule> ...` per line. ACL SETUSER and DELUSER write it, too. Make it"
            " readable by the node's system user only.",
            example="/etc/disque/users.acl",
        ),
        Directive(
            "acl-cluster",
            YES_NO,
            False,
            "Share users with all nodes, like queue settings. It needs cluster-secret, and aclfile must not be set.",
        ),
        Directive(
            "audit-log",
            PATH,
            "",
            "File that gets one line of JSON for each change by an operator and each refusal; syslog: the lines go to"
            " syslog; empty: no audit log.",
            example="/var/log/disque/audit.log",
        ),
        Directive(
            "rename-command",
            Renames(),
            (),
            '`rename-command <command> <new name>` hides a command behind another name; the new name "" removes it. May'
            " be repeated.",
            is_shown=False,
            rewriting=KEPT,
            example='DEBUG ""',
        ),
        Directive(
            "proto-max-bulk-len",
            Memory(1024, 512 * MB),
            64 * MB,
            "Longest single argument that a client may send, and so the largest job; at most 512mb.",
            is_live=True,
        ),
        Directive(
            "job-meta-max-pairs",
            Integer(0, META_PAIRS_MAX, "pairs"),
            4,
            "Pairs of metadata (META) that ADDJOB accepts per job; their names and values may have 65536 bytes"
            " together.",
            is_live=True,
        ),
        Directive(
            "result-max-bytes",
            Memory(0, 64 * MB),
            64 << 10,
            "The longest result that ACKJOB … RESULT accepts.",
            is_live=True,
        ),
        Directive(
            "client-query-buffer-limit",
            Memory(MB),
            GB,
            "A client is disconnected when more than this of its input waits to be executed.",
            is_live=True,
        ),
        Directive(
            "client-output-buffer-limit",
            OutputLimitGroups(),
            OutputLimits(normal=OutputLimit(256 * MB, 64 * MB, 60), stream=OutputLimit(32 * MB, 8 * MB, 60)),
            "`<class> <hard> <soft> <soft seconds>`: a client with more unread replies than `hard`, or more than `soft`"
            " for that long, is disconnected; 0: no limit. Class stream: MONITOR and EVENTS TAIL; normal: all others.",
            is_live=True,
        ),
    ),
)

_MEMORY: Final = Section(
    "Memory",
    (
        Directive(
            "maxmemory",
            Memory(),
            GB,
            "Memory for jobs; 0: no limit. Above 75% new jobs go to other nodes that have room. Above 95% jobs that"
            " are safe to forget are evicted. At 100% ADDJOB is refused with -OOM.",
            is_live=True,
        ),
        Directive(
            "maxmemory-spill",
            YES_NO,
            False,
            "Above 60% of maxmemory, bodies of jobs that are not near the head of a queue are moved to files in"
            " <dir>/<appendfilename>.spill, and read back when they are needed. A restart does not use these files."
            " maxmemory limits the memory that remains in use.",
            is_live=True,
        ),
        Directive(
            "maxmemory-policy",
            Choice("acks", "noeviction"),
            "acks",
            "Jobs that may be evicted: acks (acknowledged jobs, and at-most-once jobs that were delivered), or none"
            " (noeviction).",
            is_live=True,
        ),
    ),
)

_CLUSTER: Final = Section(
    "Cluster",
    (
        Directive(
            "cluster-config-file",
            Text(may_be_empty=False),
            "nodes.conf",
            "The nodes file, in which this node keeps its id and the nodes that it knows. Each node needs its own."
            " Don't edit it. Queue settings are beside it in nodes.conf.queues, and grants of claims in"
            " nodes.conf.votes.",
        ),
        Directive(
            "cluster-node-timeout",
            Integer(1, 10**9, "milliseconds"),
            15_000,
            "Milliseconds without an answer after which a node is suspected to have failed.",
            is_live=True,
        ),
        Directive(
            "claim-drift-max",
            Integer(0, 50, "percent"),
            1,
            "Percent by which the clock of one node may run faster than that of another. A claim ends earlier by this"
            " much for its holder than for the voters.",
            is_live=True,
        ),
        Directive("cluster-port", PORT, 0, "Port on which other nodes are accepted; 0: port + 10000."),
        Directive(
            "cluster-seeds",
            Seeds(),
            (),
            "Nodes to meet at start, host:port or host:port@busport: the same as CLUSTER MEET, but a node that was"
            " removed with CLUSTER FORGET stays out. Known nodes, and this node itself, are ignored.",
            example="10.0.0.1:7711 10.0.0.2:7711",
        ),
        Directive(
            "cluster-secret",
            Text(512),
            "",
            "Secret shared by all nodes. Both ends of a link prove that they know it before anything else is read."
            " Without it other nodes are accepted on loopback addresses only, or, with protected-mode no, from any"
            " machine that reaches the port.",
            is_secret=True,
            example="a-long-random-text",
        ),
        Directive(
            "cluster-announce-ip",
            Text(255),
            "",
            "Address at which other nodes and clients reach this node, if the node can't see it itself (NAT,"
            " containers).",
            example="203.0.113.7",
        ),
        Directive("cluster-announce-port", PORT, 0, "Client port to announce in the same case; 0: that of `port`."),
        Directive(
            "cluster-announce-tls-port", PORT, 0, ("TLS port to announce in the same case; 0: that of `tls-port`.")
        ),
        Directive(
            "cluster-announce-bus-port", PORT, 0, ("Bus port to announce in the same case; 0: that of `cluster-port`.")
        ),
        Directive(
            "datacenter",
            PlaceName(),
            "",
            "Name of this node's data centre. REPLICATE QUORUM counts the nodes of one data centre. Nodes without"
            " this directive share one data centre.",
            is_live=True,
            example="eu-central",
        ),
        Directive(
            "zone",
            PlaceName(),
            "",
            "Name of this node's zone (rack, availability zone) in its data centre. Copies of a job go to zones that"
            " have none first. Nodes without this directive share one zone.",
            is_live=True,
            example="rack-1",
        ),
        Directive(
            "replicate-default",
            Integer(0, 65_535, "copies"),
            0,
            "Copies of a job added without REPLICATE; 0: the number of linked nodes, this one included, at most 3.",
            is_live=True,
        ),
        Directive(
            "repair-after",
            Integer(0, 10**6, "seconds"),
            600,
            "Seconds after which the copies of a failed node are replaced. Those of a forgotten node are replaced at"
            " once. 0: lost copies are never replaced.",
            is_live=True,
        ),
        Directive(
            "repair-rate",
            Integer(1, 10**6, "copies per second"),
            1_000,
            "The most lost copies that this node replaces per second.",
            is_live=True,
        ),
    ),
)

_OBSERVING: Final = Section(
    "Slow log and latency",
    (
        Directive(
            "slowlog-log-slower-than",
            Integer(-1 << 63, unit="microseconds"),
            10_000,
            "SLOWLOG records commands that take more microseconds than this; 0: all, negative: none.",
            is_live=True,
        ),
        Directive(
            "slowlog-max-len", Integer(0, 10**7, "commands"), 128, "The most commands that SLOWLOG keeps.", is_live=True
        ),
        Directive(
            "latency-monitor-threshold",
            Integer(0, unit="milliseconds"),
            0,
            "LATENCY records events that take at least this many milliseconds; 0: off.",
            is_live=True,
        ),
    ),
)

_JOURNAL: Final = Section(
    "Persistence",
    (
        Directive(
            "appendonly",
            YES_NO,
            False,
            "Keep a journal: changes that were confirmed to clients survive a crash and a restart. It can be switched"
            " on and off while the node runs.",
            is_live=True,
        ),
        Directive(
            "appendfilename",
            FileName(),
            "disque.aof",
            "Name of the journal: the directory <name>.d inside dir. Each node needs its own.",
        ),
        Directive(
            "appendfsync",
            Choice("always", "everysec", "no"),
            "everysec",
            "When records are forced to disk. always: before the reply; a power failure loses nothing. everysec: at"
            " least once a second; a power failure loses the last two seconds at most. no: the system decides. With"
            " each of them, a killed process loses nothing that was confirmed to a client.",
            is_live=True,
        ),
        Directive(
            "no-appendfsync-on-rewrite",
            YES_NO,
            False,
            "No effect, for compatibility with Disque: a rewrite doesn't compete with the journal's own writes, so"
            " these are still forced to disk.",
        ),
        Directive(
            "auto-aof-rewrite-percentage",
            Integer(0, unit="percent"),
            100,
            "Rewrite the journal to free space when it has grown by this many percent since the last time; 0: only on"
            " demand.",
            is_live=True,
        ),
        Directive(
            "auto-aof-rewrite-min-size",
            Memory(),
            64 * MB,
            "The journal is not rewritten automatically before it has this size.",
            is_live=True,
        ),
        Directive(
            "aof-rewrite-incremental-fsync",
            YES_NO,
            True,
            "No effect, for compatibility with Disque: a rewrite writes to the journal itself, and is forced to disk"
            " with it.",
            is_live=True,
        ),
        Directive(
            "aof-load-truncated",
            YES_NO,
            True,
            "If the last block of the journal is incomplete, cut it off and start. With no, the node does not start.",
            is_live=True,
        ),
        Directive(
            "loading-wait",
            Integer(0, 3_600, "seconds"),
            2,
            "Seconds after a start during which requests wait until the journal is read. After that they are refused"
            " with -LOADING.",
        ),
        Directive(
            "aof-enqueue-jobs-once",
            YES_NO,
            False,
            "At the next start, once, put the jobs that were queued into their queues again; for a restart with"
            " SHUTDOWN REWRITE-AOF. The journal is loaded even if appendonly is no.",
            is_live=True,
        ),
    ),
)

_EVENTS: Final = Section(
    "Events",
    (
        Directive(
            "events",
            YES_NO,
            True,
            "Write every transition of a job that this node makes into a log of events, which programs read with"
            " EVENTS. It is in a directory inside dir that is named after cluster-config-file: nodes.conf.events. If"
            " the node can't write there, it logs that, runs without the log, and tries again. The log costs a tenth"
            " to a sixth of the node's CPU time, and disk space up to events-max-bytes. A later yes starts a new log.",
            is_live=True,
        ),
        Directive(
            "events-body",
            YES_NO,
            False,
            "Include the body of a new job in its event.",
            is_live=True,
        ),
        Directive(
            "events-max-bytes",
            Memory(),
            1 * GB,
            "Disk space for the log; when it is full, the oldest events are removed; 0: no limit. The events of a job"
            " take about 250 bytes together.",
            is_live=True,
        ),
        Directive(
            "events-max-age",
            Integer(0, 100 * 366 * 86_400, "seconds"),
            7 * 86_400,
            "Age in seconds at which events are removed; 0: no limit.",
            is_live=True,
        ),
    ),
)

_LEFTOVERS: Final = Section(
    "No effect, for compatibility with Disque",
    (
        Directive(
            "hz",
            Integer(1, 500, is_clamped=True),
            10,
            "Shown in INFO, but has no effect: timers run when they are due.",
            is_live=True,
        ),
        Directive("maxmemory-samples", Integer(1, 10**6), 5, "No effect.", is_live=True),
        Directive("activerehashing", YES_NO, True, "No effect.", is_live=True),
        Directive("databases", Integer(1, 10**6), 16, "No effect.", rewriting=KEPT),
    ),
)

SECTIONS: Final = (_NETWORK, _TLS, _PROCESS, _CLIENTS, _MEMORY, _CLUSTER, _OBSERVING, _JOURNAL, _EVENTS, _LEFTOVERS)
DIRECTIVES: Final = tuple(directive for section in SECTIONS for directive in section.directives)
BY_NAME: Final = {directive.name: directive for directive in DIRECTIVES}

INCLUDE: Final = "include"  # No value: conf_file.py reads the file.
INCLUDE_HELP: Final = "Read another file at this point. Later lines win, so lines after this one override that file."

# Prefixes of Redis's directives that Disque never had. The error says so instead of "there is no directive".
REDIS_ONLY_PREFIXES: Final = (
    "acl",
    "cluster-enabled",
    "cluster-migration",
    "cluster-require",
    "hash-max",
    "io-threads",
    "list-max",
    "lua-",
    "masterauth",
    "min-replicas",
    "min-slaves",
    "notify-keyspace",
    "rdb",
    "repl-",
    "replicaof",
    "save",
    "set-max",
    "slave",
    "stop-writes",
    "tls-replication",
    "zset-max",
)
