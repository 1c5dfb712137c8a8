"""COMMAND."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, make_broker, make_client
from disque_py.commands.table import COMMANDS
from disque_py.core.client import WAITS_FOR_PARTS
from disque_py.core.incremental import PART
from disque_py.node import dispatch


def test_command_lists_all_in_the_order_of_the_table():
    broker = make_broker()
    client = make_client(broker)
    entries = ask_parsed(broker, client, "COMMAND")
    assert [entry[0].decode() for entry in entries] == [command.name for command in COMMANDS]
    assert ask_parsed(broker, client, "COMMAND", "COUNT") == len(COMMANDS)
    assert ask_parsed(broker, client, "COMMAND", "LIST") == [entry[0] for entry in entries]


def test_an_entry_has_six_fields_and_no_keys():
    broker = make_broker()
    entries = ask_parsed(broker, make_client(broker), "COMMAND", "INFO", "AddJob", "nothing")
    assert entries == [[b"addjob", -4, [b"write", b"denyoom", b"fast"], 0, 0, 0], None]


def test_in_resp3_an_entry_has_a_seventh_field():
    """redis-py reads command[6], the ACL categories, of every entry there."""
    broker = make_broker()
    client = make_client(broker)
    client.protocol = 3
    (entry,) = ask_parsed(broker, client, "COMMAND", "INFO", "addjob")
    assert entry[:2] == [b"addjob", -4]
    assert entry[3:] == [0, 0, 0, [b"@produce"]]
    assert all(len(each) == 7 for each in ask_parsed(broker, client, "COMMAND"))


def test_unknown_names_are_nil_of_the_protocol():
    broker = make_broker()
    client = make_client(broker)
    client.protocol = 3
    assert ask(broker, client, "COMMAND", "INFO", "nothing") == b"*1\r\n_\r\n"


def test_docs_describe_the_syntax_of_each_command():
    broker = make_broker()
    name, entry = ask_parsed(broker, make_client(broker), "COMMAND", "DOCS", "slowlog", "nothing")
    fields = dict(zip(entry[::2], entry[1::2], strict=True))
    assert name == b"slowlog"
    assert list(fields) == [b"summary", b"since", b"group", b"syntax", b"subcommands"]
    assert fields[b"syntax"] == [b"SLOWLOG GET [count]", b"SLOWLOG LEN", b"SLOWLOG RESET"]


def test_a_form_without_words_is_the_bare_name():
    broker = make_broker()
    _, entry = ask_parsed(broker, make_client(broker), "COMMAND", "DOCS", "hello")
    assert entry[7][0] == b"HELLO"


def test_docs_describe_arguments_as_redis_does():
    """redis-cli 7 derives its hints from COMMAND DOCS."""
    broker = make_broker()
    _, entry = ask_parsed(broker, make_client(broker), "COMMAND", "DOCS", "qpeek")
    queue, count, *_ = pairs_of(entry)[b"arguments"]
    assert pairs_of(queue) == {b"name": b"queue", b"type": b"string", b"display_text": b"queue"}
    assert pairs_of(count)[b"type"] == b"integer"
    _, entry = ask_parsed(broker, make_client(broker), "COMMAND", "DOCS", "getjob")
    (forms,) = map(pairs_of, pairs_of(entry)[b"arguments"])
    first, second = map(pairs_of, forms[b"arguments"])
    arguments = {each[b"name"]: each for each in map(pairs_of, first[b"arguments"] + second[b"arguments"])}
    assert arguments[b"nohang"][b"flags"] == [b"optional"]
    assert arguments[b"queue"][b"token"] == b"FROM"
    assert arguments[b"pattern"][b"token"] == b"FROMMATCH"


def test_docs_describe_each_subcommand():
    broker = make_broker()
    _, entry = ask_parsed(broker, make_client(broker), "COMMAND", "DOCS", "client")
    subcommands = pairs_of(pairs_of(entry)[b"subcommands"])
    assert b"arguments" not in pairs_of(subcommands[b"client|list"])
    (choice,) = pairs_of(subcommands[b"client|kill"])[b"arguments"]
    assert pairs_of(choice)[b"type"] == b"oneof"


def pairs_of(flat):
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_docs_of_a_command_that_is_named_repeatedly_are_sent_once():
    broker = make_broker()
    reply = ask_parsed(broker, make_client(broker), "COMMAND", "DOCS", *["client", "AddJob", "CLIENT"] * 1000)
    assert reply[::2] == [b"client", b"addjob"]


def test_very_many_names_are_looked_up_in_parts():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "COMMAND", "INFO", *["ping"] * (2 * PART), "nothing") == b""
    assert client.waiting == WAITS_FOR_PARTS
    while client.waiting:
        dispatch.tick(broker)
    (reply,), client.out = client.out, []
    one = ask(broker, client, "COMMAND", "INFO", "ping").removeprefix(b"*1\r\n")
    assert reply == b"*%d\r\n%b$-1\r\n" % (2 * PART + 1, one * (2 * PART))


def test_docs_without_names_are_all():
    broker = make_broker()
    assert len(ask_parsed(broker, make_client(broker), "COMMAND", "DOCS")) == 2 * len(COMMANDS)


def test_a_renamed_command_is_found_under_its_new_name_and_shows_the_old():
    broker = make_broker(rename_command=(("debug", "secret-debug"), ("shutdown", "")))
    client = make_client(broker)
    entries = ask_parsed(broker, client, "COMMAND", "INFO", "secret-debug", "debug", "shutdown")
    assert [entry and entry[0] for entry in entries] == [b"debug", None, None]
    assert ask_parsed(broker, client, "COMMAND", "COUNT") == len(COMMANDS) - 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("GETKEYS", "addjob", "q"), b"-ERR The command has no key arguments"),
        (("GETKEYS", "nothing"), b"-ERR Invalid command specified"),
        (("GETKEYS",), b"-ERR Unknown subcommand or wrong number of arguments."),
        (("INFO",), b"-ERR Unknown subcommand or wrong number of arguments."),
        (("HELP",), b"-ERR Unknown subcommand or wrong number of arguments."),
    ],
)
def test_command_refuses_these_requests(words, text):
    broker = make_broker()
    assert ask(broker, make_client(broker), "COMMAND", *words) == text + b"\r\n"
