"""CONFIG."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, host_of, make_broker, make_client, port_of
from disque_py.config.settings import FIXED, DirectiveError


def test_get_lists_names_and_values_that_fit_the_pattern():
    broker = make_broker()
    client = make_client(broker)
    assert ask_parsed(broker, client, "CONFIG", "GET", "MAXMEM*y") == [
        b"maxmemory", b"1073741824", b"maxmemory-policy", b"acks",
    ]  # fmt: skip
    assert ask_parsed(broker, client, "CONFIG", "GET", "nothing") == []


def test_get_is_a_map_after_hello_3():
    broker = make_broker()
    client = make_client(broker)
    client.protocol = 3
    assert ask_parsed(broker, client, "CONFIG", "GET", "port") == {b"port": b"7711"}


def test_passwords_are_not_shown():
    broker = make_broker(requirepass="pw")
    client = make_client(broker)
    ask(broker, client, "AUTH", "pw")
    assert ask_parsed(broker, client, "CONFIG", "GET", "requirepass") == [b"requirepass", b"(hidden)"]


def test_a_password_ends_the_waits_and_streams_of_clients_that_have_not_logged_in():
    """A client that reads every command with MONITOR would go on. Spec US8."""
    broker = make_broker()
    monitor, consumer, waiting, idle, admin = (make_client(broker) for _ in range(5))
    job_id = ask_parsed(broker, admin, "ADDJOB", "other", "body", 0)
    ask(broker, monitor, "MONITOR")
    ask(broker, consumer, "GETJOB", "FROM", "q")
    ask(broker, waiting, "WAITJOB", job_id, "TIMEOUT", 500)
    assert ask(broker, admin, "CONFIG", "SET", "requirepass", "pw") == b"+OK\r\n"
    assert [port_of(each).closed for each in (monitor, consumer, idle, admin)] == [[False], [False], [], []]
    assert b"".join(waiting.out) == b"-NOAUTH Authentication required.\r\n"


def test_a_change_of_the_password_spares_clients_that_have_logged_in():
    broker = make_broker(requirepass="old")
    consumer, admin = make_client(broker), make_client(broker)
    ask(broker, consumer, "AUTH", "old")
    ask(broker, admin, "AUTH", "old")
    ask(broker, consumer, "GETJOB", "FROM", "q")
    assert ask(broker, admin, "CONFIG", "SET", "requirepass", "new") == b"+OK\r\n"
    assert port_of(consumer).closed == []


def test_a_client_that_streams_and_sets_the_first_password_gets_the_reply_first():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "MONITOR")
    assert b"+OK\r\n" in ask(broker, client, "CONFIG", "SET", "requirepass", "pw")
    assert (client.close_asked, port_of(client).closed) == (True, [])


def test_set_changes_the_value_and_tells_the_process():
    broker = make_broker()
    assert ask(broker, make_client(broker), "CONFIG", "SET", "Timeout", 5) == b"+OK\r\n"
    assert broker.settings.timeout == 5
    assert host_of(broker).calls == [("apply_setting", "timeout")]


def test_a_value_that_the_process_refuses_is_restored():
    broker = make_broker()
    text = "ERR Changing directory: No such file or directory"
    host_of(broker).failures["apply_setting"] = DirectiveError(text)
    old = broker.settings.dir
    assert ask(broker, make_client(broker), "CONFIG", "SET", "dir", "/none") == b"-%b\r\n" % text.encode()
    assert broker.settings.dir == old


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("port", "1", b"-ERR Unsupported CONFIG parameter: port. %b" % FIXED.encode()),
        ("nonsense", "1", b"-ERR Unsupported CONFIG parameter: nonsense"),
        (
            "loglevel",
            "x",
            b"-ERR Invalid argument 'x' for CONFIG SET 'loglevel'. Give one of: debug, verbose, notice, warning",
        ),
        ("events", "on", b"-ERR Invalid argument 'on' for CONFIG SET 'events'. Give yes or no"),
    ],
)
def test_config_set_refuses_these_requests(name, value, text):
    broker = make_broker()
    assert ask(broker, make_client(broker), "CONFIG", "SET", name, value) == text + b"\r\n"
    assert host_of(broker).calls == []


def test_maxmemory_is_in_force_at_once():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "ADDJOB", "q", "x" * 2000, 0)
    assert ask(broker, client, "CONFIG", "SET", "maxmemory", "1kb") == b"+OK\r\n"
    assert broker.memory_level == 3
    assert host_of(broker).calls[-1][:2] == ("log", "warning")
    assert ask(broker, client, "ADDJOB", "q", "y", 0).startswith(b"-OOM ")
    assert ask(broker, client, "CONFIG", "SET", "maxmemory", "0") == b"+OK\r\n"
    assert ask(broker, client, "ADDJOB", "q", "y", 0).startswith(b"+D-")


def test_other_values_the_broker_keeps_copies_of():
    broker = make_broker()
    client = make_client(broker)
    for _ in range(3):
        broker.stats.log_slow([b"x"], 1, 1, 128)
    ask(broker, client, "CONFIG", "SET", "cluster-node-timeout", 20_000)
    ask(broker, client, "CONFIG", "SET", "slowlog-max-len", 1)
    assert (broker.membership.node_timeout_ms, len(broker.stats.slowlog)) == (20_000, 1)
    assert [part.keep_ms for part in (broker.tombstones, broker.ends, broker.acks.not_held)] == [40_000] * 3


def test_a_short_node_timeout_does_not_shorten_the_memory_of_finished_jobs():
    """Spec A6: other holders ask again after some seconds, however short the timeout is."""
    broker = make_broker()
    ask(broker, make_client(broker), "CONFIG", "SET", "cluster-node-timeout", 1)
    assert [part.keep_ms for part in (broker.tombstones, broker.ends, broker.acks.not_held)] == [10_000] * 3


def test_resetstat_resets_the_counters_of_info_but_not_those_of_the_bus():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "PING")
    broker.stats.messages_received = 7
    assert ask(broker, client, "CONFIG", "RESETSTAT") == b"+OK\r\n"
    assert (broker.stats.messages_received, broker.commands[b"ping"].calls) == (7, 0)


def test_config_rewrite_writes_the_file():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "CONFIG", "REWRITE") == b"+OK\r\n"
    host_of(broker).failures["rewrite_config"] = OSError(13, "Permission denied")
    assert ask(broker, client, "CONFIG", "REWRITE") == b"-ERR Rewriting config file: Permission denied\r\n"
    host_of(broker).fields = [("config_file", "")]
    assert ask(broker, client, "CONFIG", "REWRITE") == b"-ERR The server is running without a config file\r\n"


def test_other_forms_are_refused():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "CONFIG", "HELP") == (
        b"-ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE\r\n"
    )
    assert ask(broker, client, "CONFIG", "Get") == b"-ERR Wrong number of arguments for CONFIG Get\r\n"


def test_a_pattern_longer_than_any_name_fits_nothing():
    broker = make_broker()
    assert ask_parsed(broker, make_client(broker), "CONFIG", "GET", "*" * 2_000) == []
