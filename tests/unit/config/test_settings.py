"""Settings: reading and changing values by name."""

from __future__ import annotations

import pytest

from disque_py.config.directives import DIRECTIVES
from disque_py.config.settings import DirectiveError, Settings


@pytest.fixture
def settings():
    return Settings()


def refusal(settings, name, *words, source="set"):
    with pytest.raises(DirectiveError) as caught:
        settings.set_text(name, words, source)
    return caught.value.text


def test_a_value_is_an_attribute_and_a_text(settings):
    settings.set_text("MaxMemory", ["2gb"], "set")
    assert settings.maxmemory == settings.value("maxmemory") == 2 << 30
    assert settings.get_text("MAXMEMORY") == "2147483648"


def test_unknown_names_are_not_attributes(settings):
    with pytest.raises(AttributeError):
        settings.max_memory = 1


def test_config_set_tells_fixed_directives_from_unknown_ones(settings):
    assert refusal(settings, "Foo", "1") == "ERR Unsupported CONFIG parameter: Foo"
    assert refusal(settings, "maxmemry", "1") == "ERR Unsupported CONFIG parameter: maxmemry. Did you mean 'maxmemory'?"
    assert refusal(settings, "port", "1").startswith(
        "ERR Unsupported CONFIG parameter: port. It can't be changed while the node runs"
    )


def test_the_error_for_a_misspelt_name_in_a_file_suggests_the_right_one(settings):
    text = "Bad directive or wrong number of arguments: there is no directive 'requirepas'. Did you mean 'requirepass'?"
    assert refusal(settings, "requirepas", "x", source="file") == text
    assert refusal(settings, "prot", "1", source="file").endswith("'prot'. Did you mean 'port'?")  # swapped letters
    assert refusal(settings, "x" * 100_000, "1", source="file").endswith(": there is no directive of this name")


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout", "abc"), ("timeout", "-1"), ("cluster-node-timeout", "0"), ("maxmemory", "10zb"), ("loglevel", "")],
)
def test_config_set_quotes_a_wrong_value(settings, name, value):
    """Clients match on these words. Spec R8."""
    assert refusal(settings, name, value).startswith(f"ERR Invalid argument '{value}' for CONFIG SET '{name}'. Give ")


FLAG = "yes or no"
AMOUNT = "an amount of memory, in bytes or with a unit (k, kb, m, mb, g, gb)"
# Directives, each with a value that it refuses, and the values that it accepts, as the error of CONFIG SET says it.
ACCEPTED = {
    "timeout": ("-1", "an integer from 0 to 1000000000 (seconds)"),
    "tcp-keepalive": ("maybe", "yes, no, or an integer from 0 to 32767 (seconds)"),
    "dir": ("", "a text of 1 to 4096 bytes, without a NUL byte"),
    "loglevel": ("loud", "one of: debug, verbose, notice, warning"),
    "log-format": ("xml", "one of: text, json"),
    "watchdog-period": ("1s", "an integer from 0 to 10000000 (milliseconds)"),
    "maxclients": ("0", "an integer from 1 to 10000000 (clients)"),
    "requirepass": ("x" * 513, "a text of up to 512 bytes, without a NUL byte"),
    "proto-max-bulk-len": ("1gb", f"{AMOUNT}, at least 1kb and at most 512mb"),
    "job-meta-max-pairs": ("1001", "an integer from 0 to 1000 (pairs)"),
    "result-max-bytes": ("65mb", f"{AMOUNT}, at most 64mb"),
    "client-query-buffer-limit": ("1k", f"{AMOUNT}, at least 1mb"),
    "client-output-buffer-limit": (
        "normal 1",
        f"<class> <hard> <soft> <soft seconds>, with the class normal or stream; hard and soft are {AMOUNT}",
    ),
    "maxmemory": ("10zb", AMOUNT),
    "maxmemory-spill": ("on", FLAG),
    "maxmemory-policy": ("allkeys-lru", "one of: acks, noeviction"),
    "cluster-node-timeout": ("15s", "an integer from 1 to 1000000000 (milliseconds)"),
    "claim-drift-max": ("51", "an integer from 0 to 50 (percent)"),
    "datacenter": ("\n", "a printable text of up to 64 bytes"),
    "zone": ("z" * 65, "a printable text of up to 64 bytes"),
    "replicate-default": ("-1", "an integer from 0 to 65535 (copies)"),
    "repair-after": ("never", "an integer from 0 to 1000000 (seconds)"),
    "repair-rate": ("0", "an integer from 1 to 1000000 (copies per second)"),
    "slowlog-log-slower-than": ("1ms", "an integer (microseconds)"),
    "slowlog-max-len": ("-1", "an integer from 0 to 10000000 (commands)"),
    "latency-monitor-threshold": ("-1", "an integer of at least 0 (milliseconds)"),
    "appendonly": ("1", FLAG),
    "appendfsync": ("yes", "one of: always, everysec, no"),
    "auto-aof-rewrite-percentage": ("100%", "an integer of at least 0 (percent)"),
    "auto-aof-rewrite-min-size": ("-1", AMOUNT),
    "aof-rewrite-incremental-fsync": ("", FLAG),
    "aof-load-truncated": ("true", FLAG),
    "aof-enqueue-jobs-once": ("once", FLAG),
    "events": ("on", FLAG),
    "events-body": ("on", FLAG),
    "events-max-bytes": ("1t", AMOUNT),
    "events-max-age": ("7d", "an integer from 0 to 3162240000 (seconds)"),
    "hz": ("fast", "an integer, not negative; it becomes at least 1 and at most 500"),
    "maxmemory-samples": ("0", "an integer from 1 to 1000000"),
    "activerehashing": ("2", FLAG),
}


@pytest.mark.parametrize("directive", [found for found in DIRECTIVES if found.is_live], ids=lambda found: found.name)
def test_config_set_says_which_values_a_directive_accepts(settings, directive):
    wrong, accepted = ACCEPTED[directive.name]
    assert refusal(settings, directive.name, wrong).endswith(f" for CONFIG SET '{directive.name}'. Give {accepted}")


@pytest.mark.parametrize("directive", DIRECTIVES, ids=lambda found: found.name)
def test_each_kind_of_values_describes_what_it_accepts(directive):
    assert directive.kind.accepted


def test_config_set_does_not_echo_a_wrong_password(settings):
    text = refusal(settings, "requirepass", "x" * 513)
    assert text.startswith("ERR Invalid argument '(hidden)' for CONFIG SET 'requirepass'. Give a text of ")
    assert "xx" not in text


@pytest.mark.parametrize("source", ["set", "file"])
def test_the_journal_can_be_turned_on_and_off(settings, source):
    for name in ("appendonly", "aof-enqueue-jobs-once"):
        settings.set_text(name, ["yes"], source)
        assert getattr(settings, name.replace("-", "_")) is True
        settings.set_text(name, ["no"], source)
    assert (settings.appendonly, settings.aof_enqueue_jobs_once) == (False, False)


def test_a_refused_value_changes_nothing_and_an_accepted_one_can_be_undone(settings):
    refusal(settings, "timeout", "abc")
    assert settings.timeout == 0
    old = settings.set_text("timeout", ["5"], "set")
    settings.restore("timeout", old)
    assert settings.timeout == 0


def test_units_and_groups_work_in_config_set(settings):
    settings.set_text("client-output-buffer-limit", ["normal 1mb 1kb 5 stream 0 0 0"], "set")
    assert settings.get_text("client-output-buffer-limit") == "normal 1048576 1024 5 stream 0 0 0"


def test_a_negative_slowlog_threshold_and_no_memory_limit_are_valid_everywhere(settings):
    for source in ("file", "set"):
        settings.set_text("slowlog-log-slower-than", ["-1"], source)
        settings.set_text("maxmemory", ["0"], source)
    assert (settings.slowlog_log_slower_than, settings.maxmemory) == (-1, 0)


def test_secrets_are_never_shown(settings):
    assert settings.get_text("requirepass") == ""
    settings.set_text("requirepass", ["s3cret"], "set")
    assert settings.get_text("requirepass") == "(hidden)"
    assert dict(settings.matching("*pass")) == {"requirepass": "(hidden)", "tls-key-file-pass": ""}


def test_config_get_lists_every_directive_but_the_hidden_command_names(settings):
    names = [name for name, _ in settings.matching("*")]
    assert {"appendfilename", "cluster-config-file", "syslog-enabled", "syslog-ident", "watchdog-period"} <= set(names)
    assert "rename-command" not in names
    assert settings.matching("PORT") == [("port", "7711")]


def test_the_error_for_a_wrong_line_gives_the_reason(settings):
    wrong = "Bad directive or wrong number of arguments: "
    assert refusal(settings, "foo", "1", source="file") == f"{wrong}there is no directive 'foo'"
    assert refusal(settings, "port", source="file") == f"{wrong}give one value, in quotes if it has blanks"
    assert refusal(settings, "watchdog-period", "1", source="file").startswith(f"{wrong}only CONFIG SET")
    assert "belongs to Redis" in refusal(settings, "slaveof", "a", "1", source="file")
    assert "the file that aclfile names" in refusal(settings, "user", "ann", "on", source="file")
    assert refusal(settings, "port", "70000", source="file") == "argument must be an integer from 0 to 65535"


@pytest.mark.parametrize(
    ("changes", "bus_port"),
    [
        ({}, 17711),
        ({"port": 1}, 10001),
        ({"cluster_port": 9}, 9),
        ({"port": 0}, 10000),
        ({"port": 0, "tls_port": 7}, 10007),
    ],
)
def test_the_bus_port_follows_the_client_port_unless_it_is_set(settings, changes, bus_port):
    for name, value in changes.items():
        setattr(settings, name, value)
    assert settings.bus_port == bus_port


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"port": 60000}, "bus port would be 70000"),
        ({"cluster_port": 7711}, "must differ"),
        ({"tls_port": 7712}, "tls-cert-file"),
        (
            {"tls_cluster": True, "tls_cert_file": "c", "tls_key_file": "k"},
            "tls-ca-cert-file",
        ),
    ],
)
def test_values_that_do_not_fit_together_are_found(settings, changes, reason):
    assert settings.conflicts() == []
    for name, value in changes.items():
        setattr(settings, name, value)
    assert any(reason in text for text in settings.conflicts())
