"""docs/divergence.md: what this server has and Disque 1.0-rc1 does not have is named there."""

from __future__ import annotations

import re

from disque_py.commands.table import COMMANDS
from disque_py.config.directives import DIRECTIVES

# Of Disque 1.0-rc1.
COMMANDS_OF_DISQUE = {
    *("auth", "ping", "info", "shutdown", "monitor", "debug", "config", "cluster", "client", "slowlog", "time"),
    *("command", "latency", "hello", "addjob", "getjob", "ackjob", "fastack", "deljob", "show", "loadjob"),
    *("bgrewriteaof", "qlen", "qpeek", "qstat", "qscan", "jscan", "enqueue", "nack", "dequeue", "working", "pause"),
}
DIRECTIVES_OF_DISQUE = {
    *(
        "port",
        "bind",
        "tcp-backlog",
        "unixsocket",
        "unixsocketperm",
        "timeout",
        "tcp-keepalive",
        "daemonize",
        "pidfile",
    ),
    *("dir", "loglevel", "logfile", "syslog-enabled", "syslog-ident", "syslog-facility", "maxclients", "requirepass"),
    *("rename-command", "maxmemory", "maxmemory-policy", "maxmemory-samples", "appendonly", "appendfilename"),
    *("appendfsync", "no-appendfsync-on-rewrite", "auto-aof-rewrite-percentage", "auto-aof-rewrite-min-size"),
    *("aof-rewrite-incremental-fsync", "aof-load-truncated", "aof-enqueue-jobs-once", "cluster-config-file"),
    *("cluster-node-timeout", "slowlog-log-slower-than", "slowlog-max-len", "latency-monitor-threshold", "hz"),
    *("client-output-buffer-limit", "activerehashing", "databases", "watchdog-period"),
}


def page(root):
    """Return the text of the page."""
    return (root / "docs" / "divergence.md").read_text(encoding="utf-8")


def test_each_directive_that_disque_does_not_have_is_listed_as_new(root):
    (item,) = re.findall(r"^\* \*\*New:\*\* (.*?)^\* ", page(root), re.MULTILINE | re.DOTALL)
    names = re.findall(r"`([a-z-]+\*?)`", item)
    new = {directive.name for directive in DIRECTIVES} - DIRECTIVES_OF_DISQUE
    listed = {
        each for each in new if each in names or any(each.startswith(name[:-1]) for name in names if name[-1] == "*")
    }
    assert new - listed == set()
    assert DIRECTIVES_OF_DISQUE - {directive.name for directive in DIRECTIVES} == set()


def test_each_command_that_disque_does_not_have_is_named(root):
    (row,) = re.findall(r"^\| 32 commands \| (.*?) \|", page(root), re.MULTILINE)
    new = {command.name for command in COMMANDS} - COMMANDS_OF_DISQUE
    assert new - {word.lower() for word in re.findall(r"[A-Z]+", row)} == set()
