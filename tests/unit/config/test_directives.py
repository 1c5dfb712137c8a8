"""The table of directives: names and values on which operators of Disque rely."""

from __future__ import annotations

import pytest

from disque_py.config.directives import BY_NAME, DIRECTIVES, KEPT, MANAGED, NEVER

ORIGINAL_DEFAULTS = {
    "port": 7711,
    "tcp-backlog": 511,
    "timeout": 0,
    "tcp-keepalive": 0,
    "pidfile": "/var/run/disque.pid",
    "loglevel": "notice",
    "syslog-ident": "disque",
    "syslog-facility": "local0",
    "maxclients": 10_000,
    "maxmemory": 1 << 30,
    "maxmemory-policy": "acks",
    "appendfilename": "disque.aof",
    "appendfsync": "everysec",
    "auto-aof-rewrite-min-size": 64 << 20,
    "cluster-config-file": "nodes.conf",
    "cluster-node-timeout": 15_000,
    "slowlog-log-slower-than": 10_000,
    "slowlog-max-len": 128,
    "hz": 10,
    "databases": 16,
}


@pytest.mark.parametrize("name", ORIGINAL_DEFAULTS)
def test_defaults_are_those_of_the_original(name):
    """Spec D4."""
    assert BY_NAME[name].default == ORIGINAL_DEFAULTS[name]


def test_names_are_unique_and_written_in_lower_case():
    assert len(BY_NAME) == len(DIRECTIVES)
    assert all(name == name.lower() and "_" not in name for name in BY_NAME)


def test_attributes_are_the_names_with_underscores():
    assert BY_NAME["cluster-node-timeout"].attribute == "cluster_node_timeout"


def test_every_directive_explains_itself_in_a_sentence():
    assert [directive.name for directive in DIRECTIVES if not directive.help.endswith(".")] == []


def test_the_directives_that_can_change_at_run_time_are_those_of_the_original():
    live = {directive.name for directive in DIRECTIVES if directive.is_live}
    assert {"maxmemory", "requirepass", "timeout", "dir", "client-output-buffer-limit", "watchdog-period"} <= live
    assert not live & {"port", "bind", "unixsocket", "daemonize", "logfile", "databases", "appendfilename"}


def test_config_rewrite_leaves_renames_and_databases_alone_and_never_writes_the_watchdog():
    by_rewriting = {d.name: d.rewriting for d in DIRECTIVES if d.rewriting != MANAGED}
    assert by_rewriting == {"rename-command": KEPT, "databases": KEPT, "watchdog-period": NEVER}


def test_secrets_are_marked():
    assert {d.name for d in DIRECTIVES if d.is_secret} == {"requirepass", "cluster-secret", "tls-key-file-pass"}


def test_requests_wait_two_seconds_for_a_start():
    assert BY_NAME["loading-wait"].default == 2
