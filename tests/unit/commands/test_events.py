"""EVENTS: the replies of each form, and the errors for bad input."""

from __future__ import annotations

import json
from typing import Any

import hiredis
import pytest

from brokers import ask, ask_parsed, make_broker, make_client
from disque_py.core.client import RUNNING, Client
from disque_py.node import dispatch
from evented import EventedNode


def filled(count: int = 5, **settings: Any) -> EventedNode:
    """Return a node with this number of readable events."""
    node = EventedNode(**settings)
    for number in range(count):
        node.wait_for("ADDJOB", "q", f"body {number}", 0)
    node.settle(1_100)
    return node


def seqs(lines: bytes) -> list[int]:
    return [json.loads(line)["seq"] for line in lines.splitlines()]


def test_info_says_which_log_it_is_and_what_can_be_read():
    node = filled()
    log = node.service.log
    reply = node.wait_for("EVENTS", "INFO")
    assert reply == [b"log-id", log.log_id.encode(), b"first-seq", 1, b"next-seq", 6, b"bytes", log.size]


def test_read_gives_whole_lines_from_a_number_on():
    """Spec E6."""
    node = filled()
    assert seqs(node.read(1)) == [1, 2, 3, 4, 5]
    assert seqs(node.read(3)) == [3, 4, 5]
    assert seqs(node.read(2, "COUNT", 2)) == [2, 3]
    assert node.read(6) == b""


def test_maxbytes_is_kept_but_for_the_first_line():
    node = filled()
    one = len(node.read(1, "COUNT", 1))
    assert seqs(node.read(1, "MAXBYTES", 3 * one)) == [1, 2, 3]
    assert seqs(node.read(1, "MAXBYTES", 1)) == [1]


def test_block_waits_for_the_next_event_to_be_on_disk():
    node = filled(4)
    log = node.service.log
    node.wait_for("ADDJOB", "q", "body", 0)
    node.settle()  # Synced immediately, because the last sync is long ago.
    assert node.ask("EVENTS", "READ", log.log_id, 6, "BLOCK", 5_000) == []
    node.ask("ADDJOB", "q", "body", 0, client=1)
    node.settle(500)
    assert node.taken() == []  # The event is written, but not synced.
    node.settle(1_000)
    assert seqs(node.taken()[0]) == [6]


def test_block_ends_with_nothing_when_nothing_comes():
    node = filled()
    assert node.ask("EVENTS", "READ", node.service.log.log_id, 6, "BLOCK", 700) == []
    node.settle(650)
    assert node.taken() == []
    node.settle(100)
    assert node.taken() == [b""]


def test_a_reader_that_hangs_up_while_waiting_is_not_answered():
    node = filled()
    node.ask("EVENTS", "READ", node.service.log.log_id, 6, "BLOCK", 700)
    del node.broker.clients[1]
    node.settle(1_000)
    assert node.taken() == []


def test_a_reader_that_hangs_up_while_waiting_leaves_nothing_behind():
    """Also while nothing happens on the node, so that no event ends the wait (spec B6)."""
    node = filled()
    for _ in range(3):
        client = make_client(node.broker)
        node.driver.begin()
        assert ask(node.broker, client, "EVENTS", "READ", node.service.log.log_id, 6, "BLOCK", 0) == b""
        assert client.blocked is not None
        dispatch.disconnect(node.broker, client)
    client = make_client(node.broker)
    ask(node.broker, client, "EVENTS", "TAIL")
    dispatch.disconnect(node.broker, client)
    readers = node.service.event_readers
    assert (readers.waiting, readers.tails) == ({}, {})
    assert "events_readers_waiting:0" in node.ask("INFO", "events")[0].decode()


def test_a_reader_whose_events_are_being_read_from_disk_is_answered_soon():
    """So a client that closed its end of the connection stays connected for the reply (spec B6)."""
    node = filled()
    client = node.clients[0].client
    node.ask("EVENTS", "READ", node.service.log.log_id, 6, "BLOCK", 0)
    assert client.blocked is not None
    node.ask("ADDJOB", "q", "body", 0, client=1)
    while client.blocked is not None:
        if not node.work():
            node.pass_ms(100)
            node.tick()
    assert client.waiting
    node.settle()
    assert seqs(node.taken()[0]) == [6]
    assert (client.waiting, client.blocked) == (RUNNING, None)


def test_a_named_reader_is_seen_with_its_lag():
    node = filled()
    node.read(3, "READER", "spark/1")
    node.pass_ms(250)
    assert "events_reader_spark/1:seq=3,lag=3,idle_ms=250" in node.ask("INFO", "events")[0].decode()


def test_seek_finds_the_first_event_that_is_not_older():
    node = EventedNode()
    moments = []
    for _ in range(30):
        moments.append(node.wall)
        node.wait_for("ADDJOB", "q", "body", 0)
        node.settle(1_500)
    node.settle(1_100)
    for at, moment in enumerate(moments):
        assert node.wait_for("EVENTS", "SEEK", moment) == at + 1
        assert node.wait_for("EVENTS", "SEEK", moment + 1) == at + 2
    assert node.wait_for("EVENTS", "SEEK", 0) == 1
    assert node.wait_for("EVENTS", "SEEK", moments[-1] + 10**6) == 31


def test_tail_sends_events_that_become_readable_from_now_on():
    node = filled()
    client = make_client(node.broker)
    assert ask_parsed(node.broker, client, "EVENTS", "TAIL") == b"OK"
    node.wait_for("ADDJOB", "q", "body", 0)
    node.settle(1_100)
    header, *lines, end = b"".join(client.out).split(b"\r\n")
    assert (int(header[1:]), end) == (len(lines[0]), b"")
    assert seqs(lines[0]) == [6]
    assert client.is_monitor  # So the output limits of monitors apply.
    client.out.clear()
    ask_parsed(node.broker, client, "RESET")
    node.wait_for("ADDJOB", "q", "body", 0)
    node.settle(1_100)
    assert client.out == []
    assert node.service.event_readers.tails == {}


def test_events_have_bodies_on_request():
    node = filled(1, events_body=True)
    assert json.loads(node.read(1))["body"] == "body 0"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("READ", "other", 1), "NOLOG "),
        (("READ", "<log>", 0), "ERR seq must be a number from 1"),
        (("READ", "<log>", "x"), "ERR seq must be a number from 1"),
        (("READ", "<log>", 8), "ERR event 8 is behind the end of the log, which is 6"),
        (("READ", "<log>", 1, "COUNT"), "ERR syntax error"),
        (("READ", "<log>", 1, "COUNT", 0), "ERR COUNT must be a number from 1"),
        (("READ", "<log>", 1, "MAXBYTES", -1), "ERR MAXBYTES must be a number from 1"),
        (("READ", "<log>", 1, "BLOCK", -1), "ERR timeout is negative"),
        (("READ", "<log>", 1, "READER", ""), "ERR READER must be 1 to 64"),
        (("READ", "<log>", 1, "READER", "a b"), "ERR READER must be 1 to 64"),
        (("READ", "<log>", 1, "NOPE", 1), "ERR syntax error"),
        (("SEEK", "x"), "ERR SEEK must be a number"),
        (("SEEK",), "ERR Unknown EVENTS subcommand"),
        (("NOPE",), "ERR Unknown EVENTS subcommand"),
    ],
)
def test_bad_input_is_named(words, text):
    node = filled()
    words = tuple(node.service.log.log_id if word == "<log>" else word for word in words)
    assert str(node.wait_for("EVENTS", *words)).startswith(text)


@pytest.mark.parametrize("words", [("INFO",), ("READ", "x", 1), ("SEEK", 1), ("TAIL",)])
def test_without_a_log_every_form_says_so(words):
    broker = make_broker()
    reply = ask_parsed(broker, make_client(broker), "EVENTS", *words)
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply) == "NOLOG none"


def restrict(node: EventedNode, client: Client, *rules: str) -> None:
    """Make a user with these rules, and log the client in as this user."""
    assert ask(node.broker, make_client(node.broker), "ACL", "SETUSER", "ann", "on", "nopass", *rules) == b"+OK\r\n"
    assert ask(node.broker, client, "AUTH", "ann", "x") == b"+OK\r\n"


def test_a_restricted_user_reads_the_events_of_its_queues():
    """Spec US6."""
    node = filled(2)
    node.wait_for("ADDJOB", "mine", "body", 0)
    node.wait_for("ADDJOB", "q", "body", 0)
    node.settle(2_000)
    restrict(node, node.broker.clients[1], "~mine", "+@bodies")
    lines = [json.loads(line) for line in node.read(1).splitlines()]
    assert [(line["seq"], line["event"], line["queue"]) for line in lines] == [
        (3, "added", "mine"),
        (4, "hidden", None),
    ]
    assert seqs(node.read(1, "COUNT", 1)) == [1]
    log_id = node.service.log.log_id
    assert str(node.wait_for("EVENTS", "READ", log_id, 1, "FORMAT", "PACKED")).startswith("NOPERM")


def test_a_read_that_waits_obeys_the_rules_of_its_end():
    """Spec US8."""
    node = filled(1)
    restrict(node, node.broker.clients[1], "~*", "+@bodies")
    assert node.ask("EVENTS", "READ", node.service.log.log_id, 2, "BLOCK", 5_000) == []
    ask(node.broker, make_client(node.broker), "ACL", "SETUSER", "ann", "-@bodies")
    ask(node.broker, make_client(node.broker), "ADDJOB", "q", "body", 0)
    node.settle(2_000)
    assert str(node.taken()[0]).startswith("NOPERM")


def test_a_read_that_waits_ends_when_its_user_loses_the_permission():
    """Spec US8."""
    node = filled(1)
    client = node.clients[0].client
    restrict(node, client, "~*", "+@bodies")
    assert node.ask("EVENTS", "READ", node.service.log.log_id, 2, "BLOCK", 0) == []
    node.ask("ACL", "SETUSER", "ann", "-@bodies", client=1)
    assert "events|read" in str(node.taken()[0])
    assert (client.waiting, client.blocked, node.service.event_readers.waiting) == (RUNNING, None, {})


def test_a_tail_of_a_restricted_user_has_the_events_of_its_queues():
    """Spec US6."""
    node = filled(1)
    client = make_client(node.broker)
    restrict(node, client, "~mine", "+@bodies")
    ask(node.broker, client, "EVENTS", "TAIL")
    for queue in ("q", "mine", "q"):
        node.wait_for("ADDJOB", queue, "body", 0)
    node.settle(2_000)
    _, *lines, _ = b"".join(client.out).split(b"\r\n")
    assert seqs(b"".join(lines)) == [3]
    client.out.clear()
    node.wait_for("ADDJOB", "mine", "body", 0)
    node.settle(2_000)
    assert b'"seq":5' in b"".join(client.out)


@pytest.mark.parametrize("words", [("AUTH", "ann", "wrong"), ("AUTH", "bob", "x"), ("RESET",)])
def test_a_tail_ends_with_the_login_that_began_it(words):
    """A wrong password makes the client `default` again, which may name all queues. Spec US8."""
    node = filled(1)
    admin, client = node.clients[0].client, make_client(node.broker)
    ask(node.broker, admin, "ACL", "SETUSER", "ann", "on", ">pw", "~mine", "+@bodies")
    ask(node.broker, admin, "ACL", "SETUSER", "bob", "on", "nopass", "~*", "+@read")
    ask(node.broker, client, "AUTH", "ann", "pw")
    assert ask(node.broker, client, "EVENTS", "TAIL") == b"+OK\r\n"
    ask(node.broker, admin, "ACL", "SETUSER", "default", "off")
    ask(node.broker, client, *words)
    node.wait_for("ADDJOB", "q", "secret", 0)
    node.settle(2_000)
    assert client.out == []
    assert node.service.event_readers.tails == {}
