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


def test_without_a_journal_none_can_be_rewritten():
    """The server goes on, and its log says why."""
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "SHUTDOWN", "rewrite-aof") == b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n"
    assert [call[:2] for call in host_of(broker).calls] == [("log", "warning")]
    assert ask(broker, client, "BGREWRITEAOF") == b"-ERR persistence is not available in this version\r\n"


def test_shutdown_knows_no_other_word():
    broker = make_broker()
    client = make_client(broker)
    for words in (("NOSAVE",), ("REWRITE-AOF", "x")):
        assert ask(broker, client, "SHUTDOWN", *words) == b"-ERR syntax error\r\n"
    assert host_of(broker).calls == []
