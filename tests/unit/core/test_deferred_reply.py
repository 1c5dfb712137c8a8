"""core/deferred_reply.py: a client waits for work beside the loop, and no other client does."""

from __future__ import annotations

import pytest

from brokers import ask, host_of, make_broker, make_client
from disque_py.core.client import RUNNING, WAITS_FOR_FILE
from disque_py.node import dispatch


def start(*words):
    """Begin the command, so that its file is being written."""
    broker = make_broker()
    client = make_client(broker)
    host_of(broker).is_slow = True
    assert ask(broker, client, *words) == b""
    return broker, client


@pytest.mark.parametrize("words", [("CONFIG", "REWRITE"), ("CLUSTER", "SAVECONFIG")])
def test_the_reply_comes_when_the_work_is_done_and_other_clients_go_on_meanwhile(words):
    broker, client = start(*words)
    assert client.waiting == WAITS_FOR_FILE
    assert ask(broker, make_client(broker), "PING") == b"+PONG\r\n"
    assert dispatch.tick(broker) is False
    broker.outbox.clients.clear()
    host_of(broker).writing.pop()()
    assert (client.out, client.waiting) == ([b"+OK\r\n"], RUNNING)
    assert client in broker.outbox.clients


def test_later_commands_of_the_client_wait():
    broker = make_broker()
    client = make_client(broker)
    host_of(broker).is_slow = True
    assert dispatch.execute(broker, client, [[b"CONFIG", b"REWRITE"], [b"PING"]]) == 1
    host_of(broker).writing.pop()()
    assert dispatch.execute(broker, client, [[b"PING"]]) == 1
    assert client.out == [b"+OK\r\n", b"+PONG\r\n"]


def test_a_failure_is_an_error_reply():
    broker, client = start("CLUSTER", "SAVECONFIG")
    host_of(broker).failures["save_nodes"] = OSError(28, "No space left on device")
    host_of(broker).writing.pop()()
    assert client.out == [b"-ERR error saving the cluster node config: No space left on device\r\n"]


def test_a_client_that_hung_up_is_not_answered():
    broker, client = start("CONFIG", "REWRITE")
    dispatch.disconnect(broker, client)
    host_of(broker).writing.pop()()
    assert (client.out, broker.outbox.clients) == ([], {})


def test_a_client_with_replies_off_is_not_answered_but_goes_on():
    broker = make_broker()
    client = make_client(broker)
    host_of(broker).is_slow = True
    ask(broker, client, "CLIENT", "REPLY", "OFF")
    assert ask(broker, client, "CONFIG", "REWRITE") == b""
    host_of(broker).writing.pop()()
    assert (client.out, client.waiting) == ([], RUNNING)
    assert client in broker.outbox.clients
