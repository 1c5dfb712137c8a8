"""MONITOR and SLOWLOG, which show no passwords."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, make_broker, make_client
from disque_py.commands.monitoring import WORD_BYTES_MAX, escaped, monitor_line, redact


def words(text):
    return [word.encode() for word in text.split()]


def test_a_monitor_sees_the_commands_of_all_clients():
    broker = make_broker()
    watcher, client = make_client(broker, "127.0.0.1:1"), make_client(broker, "127.0.0.1:2")
    assert ask(broker, watcher, "MONITOR") == b"+OK\r\n"
    ask(broker, client, "ADDJOB", "q", b'a"\n\x00', 0)
    assert watcher.out == [b'+1700000000.123000 [127.0.0.1:2] "ADDJOB" "q" "a\\"\\n\\x00" "0"\r\n']


def test_a_second_monitor_is_answered_and_changes_nothing():
    broker = make_broker()
    watcher = make_client(broker)
    ask(broker, watcher, "MONITOR")
    assert ask(broker, watcher, "MONITOR").endswith(b"+OK\r\n")
    assert len(broker.monitors) == 1


def test_clients_of_the_unix_socket_are_shown_by_its_path():
    broker = make_broker()
    client = make_client(broker, "/run/disque.sock:0")
    client.is_unix = True
    assert b" [unix:/run/disque.sock] " in monitor_line(broker, client, [b"PING"])


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        (b"abc1", b"abc1"),
        (b'\\"', b'\\\\\\"'),
        (b"\r\t\a\b", b"\\r\\t\\a\\b"),
        (b"\xc3\xa9", b"\\xc3\\xa9"),
        (b"", b""),
    ],
)
def test_a_monitor_line_escapes_special_characters(word, shown):
    assert escaped(word) == shown


def test_a_monitor_line_has_the_beginning_of_a_long_word():
    """Escaping the longest body would hold up the node for a second."""
    broker = make_broker()
    line = monitor_line(broker, make_client(broker), [b"ADDJOB", b"q", b"\xff" * (WORD_BYTES_MAX + 5), b"0"])
    assert line.endswith(rb'\xff\xff... (5 more bytes)" "0"' + b"\r\n")


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("AUTH pw", "AUTH (redacted)"),
        ("auth default pw", "auth (redacted) (redacted)"),
        ("HELLO 3 AUTH default pw SETNAME x", "HELLO 3 AUTH (redacted) (redacted) SETNAME x"),
        ("hello 3 setname x auth default pw", "hello 3 setname x auth (redacted) (redacted)"),
        ("HELLO AUTH default pw", "HELLO AUTH (redacted) (redacted)"),
        ("HELLO 3 AUTH pw", "HELLO 3 AUTH (redacted)"),
        ("HELLO 3 AUTH", "HELLO 3 AUTH"),
        ("CONFIG SET requirepass pw", "CONFIG SET requirepass (redacted)"),
        ("config set REQUIREPASS pw", "config set REQUIREPASS (redacted)"),
        ("CONFIG SET cluster-secret pw", "CONFIG SET cluster-secret (redacted)"),
        ("CONFIG SET tls-key-file-pass pw", "CONFIG SET tls-key-file-pass (redacted)"),
        ("CONFIG SET maxclients 9 requirepass pw", "CONFIG SET maxclients 9 requirepass (redacted)"),
        ("CONFIG SET requirepass port pw", "CONFIG SET requirepass (redacted) (redacted)"),
        ("CONFIG SET masterauth pw", "CONFIG SET masterauth (redacted)"),
        ("CONFIG SET maxclients 9 masterauth pw", "CONFIG SET maxclients 9 masterauth (redacted)"),
        ("CONFIG SET maxclients 9", "CONFIG SET maxclients 9"),
        ("COMMAND GETKEYS AUTH pw", "COMMAND GETKEYS AUTH (redacted)"),
        ("COMMAND GETKEYS GETJOB FROM q", "COMMAND GETKEYS GETJOB FROM q"),
        ("COMMAND GETKEYS SIGNIN pw", "COMMAND GETKEYS SIGNIN (redacted)"),
        ("ACL DRYRUN ann SIGNIN pw", "ACL DRYRUN ann SIGNIN (redacted)"),
        ("CONFIG SET timeout 5", "CONFIG SET timeout 5"),
        ("CONFIG GET requirepass", "CONFIG GET requirepass"),
        ("ADDJOB auth pw 0", "ADDJOB auth pw 0"),
    ],
)
def test_passwords_are_blacked_out(typed, shown):
    argv = words(typed)
    assert redact(argv) == words(shown)
    assert argv == words(typed)


@pytest.mark.parametrize("outer", ["ACL DRYRUN ann", "COMMAND GETKEYS"])
def test_commands_within_commands_are_shown_however_many_there_are(outer):
    """Each of them called this function again, and so a request of any user could end the node."""
    argv = words(f"{outer} " * 5_000 + "AUTH pw")
    assert redact(argv) == words(f"{outer} " * 5_000 + "AUTH (redacted)")


def test_a_renamed_command_hides_its_password_too():
    broker = make_broker(rename_command=(("config", "setup"),))
    line = monitor_line(broker, make_client(broker), words("SETUP SET requirepass pw"))
    assert line.endswith(b'"SETUP" "SET" "requirepass" "(redacted)"\r\n')


def test_slowlog_lists_the_newest_first():
    broker = make_broker()
    client = make_client(broker)
    for number in range(12):
        broker.stats.log_slow([b"PING", b"%d" % number], 20_000 + number, 1_700_000_000, 128)
    entries = ask_parsed(broker, client, "SLOWLOG", "GET")
    assert [entry[0] for entry in entries] == list(range(11, 1, -1))
    assert entries[0] == [11, 1_700_000_000, 20_011, [b"PING", b"11"]]
    assert len(ask_parsed(broker, client, "SLOWLOG", "GET", -1)) == 12
    assert ask_parsed(broker, client, "SLOWLOG", "GET", 0) == []


def test_slowlog_reset_keeps_counting_ids():
    broker = make_broker()
    client = make_client(broker)
    broker.stats.log_slow([b"PING"], 20_000, 1, 128)
    assert ask_parsed(broker, client, "SLOWLOG", "LEN") == 1
    assert ask(broker, client, "SLOWLOG", "RESET") == b"+OK\r\n"
    broker.stats.log_slow([b"PING"], 20_000, 1, 128)
    assert [entry[0] for entry in ask_parsed(broker, client, "SLOWLOG", "GET")] == [1]


def test_slowlog_refuses_these_requests():
    broker = make_broker()
    client = make_client(broker)
    text = b"-ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.\r\n"
    assert ask(broker, client, "SLOWLOG", "SHOW") == text
    assert ask(broker, client, "SLOWLOG", "LEN", "x") == text
    assert ask(broker, client, "SLOWLOG", "GET", "x") == b"-ERR value is not an integer or out of range\r\n"
