"""DEBUG."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, host_of, make_broker, make_client
from disque_py.node import dispatch


def told(broker, *words):
    return ask(broker, make_client(broker), "DEBUG", *words)


def test_flushall_empties_the_node():
    broker = make_broker()
    ask(broker, make_client(broker), "ADDJOB", "q", "body", 0)
    assert told(broker, "FLUSHALL") == b"+OK\r\n"
    assert (broker.job_count, broker.queues) == (0, {})


def test_loadaof_answers_when_the_journal_was_read():
    broker = make_broker()
    assert told(broker, "LOADAOF") == b"+OK\r\n"
    assert host_of(broker).calls == [("reload_journal",)]


def test_loadaof_says_why_it_could_not_be():
    """There is no journal, or it can't be read."""
    broker = make_broker()
    host_of(broker).failures["reload_journal"] = LookupError("there is no journal")
    assert told(broker, "LOADAOF") == b"-ERR there is no journal\r\n"
    host_of(broker).failures["reload_journal"] = OSError("damaged")
    assert told(broker, "LOADAOF") == b"-ERR Error trying to load the AOF: damaged\r\n"


def test_sleep_takes_fractions_of_seconds():
    broker = make_broker()
    assert told(broker, "SLEEP", "0.25") == b"+OK\r\n"
    assert host_of(broker).calls == [("sleep", 0.25)]


@pytest.mark.parametrize("seconds", ["x", "-1", "nan", "inf"])
def test_sleep_needs_a_number_of_seconds(seconds):
    broker = make_broker()
    assert told(broker, "SLEEP", seconds) == b"-ERR value is not a valid float\r\n"
    assert host_of(broker).calls == []


def test_debug_error_replies_with_the_given_text():
    assert told(make_broker(), "ERROR", b"OOPS a\r\nb\xff") == b"-OOPS a  b\xff\r\n"


def test_structsize_is_what_memory_accounting_counts_with():
    assert ask_parsed(make_broker(), make_client(make_broker()), "DEBUG", "STRUCTSIZE").startswith(b"bits:64 job:")


def test_debug_restart_and_crash_and_recover_restart_the_process():
    broker = make_broker()
    assert told(broker, "RESTART") == b""
    assert told(broker, "crash-and-recover", 500) == b""
    assert host_of(broker).calls == [("rewrite_config",), ("restart", 0, True), ("restart", 500, False)]
    assert told(broker, "RESTART", "x") == b"-ERR value is not an integer or out of range\r\n"
    assert told(broker, "RESTART", -5) == b"-ERR value is not an integer or out of range\r\n"


def test_a_restart_that_fails_leaves_the_server_running():
    broker = make_broker()
    host_of(broker).failures["rewrite_config"] = OSError("disk full")
    assert told(broker, "RESTART") == b"-ERR failed to restart the server. Check server logs.\r\n"
    assert host_of(broker).calls[-1] == ("log", "warning", "DEBUG RESTART failed: disk full")
    host_of(broker).failures["restart"] = LookupError("no way")
    assert told(broker, "CRASH-AND-RECOVER") == b"-ERR failed to restart the server. Check server logs.\r\n"
    assert not [call for call in host_of(broker).calls if call[:3] == ("restart", 0, True)]


def test_a_restart_saves_the_configuration_first_and_waits_for_it():
    """The restart happens even if the client is gone by then. Without a config file, there is nothing to wait for."""
    broker = make_broker()
    host = host_of(broker)
    host.is_slow = True
    client = make_client(broker)
    assert ask(broker, client, "DEBUG", "RESTART") == b""
    assert host.calls == []
    dispatch.disconnect(broker, client)
    host.writing.pop()()
    assert host.calls == [("rewrite_config",), ("restart", 0, True)]
    host.fields = [("config_file", "")]
    told(broker, "RESTART", 5)
    assert host.calls[2:] == [("restart", 5, True)]


@pytest.mark.parametrize("how", ["segfault", "assert", "oom"])
def test_debug_ends_the_process_by_a_crash(how):
    broker = make_broker()
    told(broker, how.upper())
    assert host_of(broker).calls[-1] == ("crash", how)


@pytest.mark.parametrize("words", [("NONSENSE",), ("SLEEP",), ("FLUSHALL", "x")])
def test_other_forms_are_refused(words):
    text = f"-ERR Unknown DEBUG subcommand or wrong number of arguments for '{words[0]}'\r\n"
    assert told(make_broker(), *words) == text.encode()
