"""core/client.py: replies leave in the order of requests."""

from __future__ import annotations

from collections import deque

from brokers import NotedPort, make_broker, make_client
from disque_py.core.client import REPLY_ON, RUNNING, Client


def test_a_new_client_waits_for_nothing_and_speaks_resp2():
    client = Client(7, NotedPort(), "127.0.0.1:5", 1000, fd=9)
    assert (client.id, client.addr, client.fd) == (7, "127.0.0.1:5", 9)
    assert (client.connected_ms, client.active_ms) == (1000, 1000)
    assert (client.waiting, client.reply_mode, client.protocol) == (RUNNING, REPLY_ON, 2)
    assert not any((client.is_authenticated, client.is_monitor, client.close_asked))


def test_a_reply_is_ready_at_once_when_nothing_is_before_it():
    client = make_client(make_broker())
    client.reply(b"+A\r\n")
    client.slots = deque()
    client.reply(b"+B\r\n")
    assert client.out == [b"+A\r\n", b"+B\r\n"]


def test_a_reply_waits_behind_one_that_is_not_known_yet():
    client = make_client(make_broker())
    client.slots = deque([[None]])
    client.reply(b"+later\r\n")
    assert client.out == []
    assert list(client.slots) == [[None], [b"+later\r\n"]]
