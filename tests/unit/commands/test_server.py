"""TIME, SHUTDOWN, BGREWRITEAOF."""

from __future__ import annotations

from brokers import WALL_MS, ask, ask_parsed, host_of, make_broker, make_client


def test_time_is_the_wall_clock_of_this_turn():
    broker = make_broker()
    reply = ask_parsed(broker, make_client(broker), "TIME")
    assert reply == [b"%d" % (WALL_MS // 1000), b"123000"]


def test_shutdown_has_no_reply():
    broker = make_broker()
    assert ask(broker, make_client(broker), "SHUTDOWN") == b""
    assert host_of(broker).calls[-1] == ("shutdown",)


def test_a_shutdown_that_would_lose_something_is_refused():
    """The server continues, and its log has the reason."""
    broker = make_broker()
    client = make_client(broker)
    host_of(broker).refusal = "the disk is full"
    for words in ((), ("rewrite-aof",)):
        assert ask(broker, client, "SHUTDOWN", *words) == b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n"
    assert host_of(broker).calls == [("log", "warning", "SHUTDOWN refused: the disk is full")] * 2


def test_shutdown_rewrite_aof_stops_when_all_jobs_are_written():
    broker = make_broker()
    client = make_client(broker)
    host_of(broker).is_slow = True
    assert ask(broker, client, "SHUTDOWN", "rewrite-aof") == b""
    assert host_of(broker).calls == []
    host_of(broker).writing.pop()()
    assert [call[0] for call in host_of(broker).calls] == ["rewrite_for_shutdown", "log", "shutdown"]


def test_shutdown_rewrite_aof_that_fails_leaves_the_server_running():
    broker = make_broker()
    host_of(broker).failures["rewrite_for_shutdown"] = OSError("No space left on device")
    assert ask(broker, make_client(broker), "SHUTDOWN", "REWRITE-AOF").startswith(b"-ERR Errors trying to SHUTDOWN")
    assert ("shutdown",) not in host_of(broker).calls


def test_shutdown_rewrite_aof_while_the_node_loads_stops_it_without_a_rewrite():
    broker = make_broker()
    broker.is_loading = True
    assert ask(broker, make_client(broker), "SHUTDOWN", "REWRITE-AOF") == b""
    assert [call[0] for call in host_of(broker).calls] == ["log", "shutdown"]


def test_bgrewriteaof_starts_one_unless_one_is_running():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "BGREWRITEAOF") == b"+Background append only file rewriting started\r\n"
    host_of(broker).is_rewriting = True
    assert b"already in progress" in ask(broker, client, "BGREWRITEAOF")


def test_shutdown_knows_no_other_word():
    broker = make_broker()
    client = make_client(broker)
    for words in (("NOSAVE",), ("REWRITE-AOF", "x")):
        assert ask(broker, client, "SHUTDOWN", *words) == b"-ERR syntax error\r\n"
    assert host_of(broker).calls == []


def test_journal_backup_says_where_it_is_and_how_large():
    broker = make_broker()
    reply = ask_parsed(broker, make_client(broker), "JOURNAL", "backup", "nightly-1")
    assert reply == [b"path", b"/data/nightly-1", b"files", 2, b"bytes", 3000]
    assert host_of(broker).calls[0] == ("backup_journal", "nightly-1")


def test_journal_backup_that_fails_says_why():
    broker = make_broker()
    host_of(broker).failures["backup_journal"] = OSError("there is no journal")
    assert (
        ask(broker, make_client(broker), "JOURNAL", "BACKUP", "x")
        == b"-ERR No backup was made: there is no journal\r\n"
    )


def test_the_name_of_a_backup_may_not_be_a_path():
    broker = make_broker()
    client = make_client(broker)
    for name in ("../x", "", ".hidden", "a b", "-x", "x" * 101):
        assert b"letters, digits" in ask(broker, client, "JOURNAL", "BACKUP", name)
    assert host_of(broker).calls == []


def test_journal_knows_no_other_word():
    broker = make_broker()
    client = make_client(broker)
    assert b"Unknown JOURNAL subcommand" in ask(broker, client, "JOURNAL", "RESTORE", "a")
    for words in (("BACKUP",), ("BACKUP", "a", "b")):
        assert b"wrong number of arguments" in ask(broker, client, "JOURNAL", *words)
