"""The audit log."""

from __future__ import annotations

import json

from brokers import ask, host_of, make_broker, make_client, pass_time
from disque_py.core.access_log import LINES_MAX
from disque_py.node import dispatch


def audited(broker):
    lines = [json.loads(line) for line in host_of(broker).audited]
    host_of(broker).audited.clear()
    return lines


def test_a_change_is_one_line_with_its_outcome():
    """Spec US10."""
    broker = make_broker(audit_log="audit.log")
    client = make_client(broker)
    for words in (("PAUSE", "q", "in"), ("CONFIG", "SET", "timeout", "x"), ("CONFIG", "GET", "timeout"), ("PING",),
                  ("ADDJOB", "r", "b", 0)):  # fmt: skip
        ask(broker, client, *words)
    first, second = audited(broker)
    assert first == {
        "ts": 1_700_000_000_123,
        "node": broker.me.name.decode(),
        "user": "default",
        "address": "127.0.0.1:50001",
        "command": ["PAUSE", "q", "in"],
        "outcome": "ok",
    }
    assert second["outcome"] == (
        "ERR Invalid argument 'x' for CONFIG SET 'timeout'. Give an integer from 0 to 1000000000 (seconds)"
    )


def test_a_command_that_forgets_what_others_did_is_a_change():
    """Spec US10: so no operator removes refusals from ACL LOG without a trace."""
    broker = make_broker(audit_log="audit.log")
    client = make_client(broker)
    for words in (("ACL", "LOG"), ("ACL", "LOG", 5), ("SLOWLOG", "GET"), ("LATENCY", "LATEST")):
        ask(broker, client, *words)
    assert audited(broker) == []
    resets = [["ACL", "LOG", "reset"], ["SLOWLOG", "RESET"], ["LATENCY", "RESET"], ["CONFIG", "RESETSTAT"]]
    for words in resets:
        ask(broker, client, *words)
    assert [line["command"] for line in audited(broker)] == resets


def test_a_command_that_shows_a_state_is_no_change():
    """Spec US10."""
    broker = make_broker(audit_log="audit.log")
    client = make_client(broker)
    for words in (("PAUSE", "q", "state"), ("CLUSTER", "LEAVING"), ("CLUSTER", "VOTERS")):
        ask(broker, client, *words)
    assert audited(broker) == []
    for words in (("PAUSE", "q", "in"), ("PAUSE", "q", "bcast"), ("CLUSTER", "LEAVING", "no")):
        ask(broker, client, *words)
    assert len(audited(broker)) == 3


def test_secrets_are_left_out():
    """Spec US9."""
    broker = make_broker(audit_log="audit.log")
    client = make_client(broker)
    ask(broker, client, "ACL", "SETUSER", "ann", "on", ">topsecret")
    ask(broker, client, "CONFIG", "SET", "requirepass", "topsecret")
    ask(broker, client, "AUTH", "ann", "topsecret!")
    text = "".join(host_of(broker).audited)
    assert len(audited(broker)) == 3
    assert "topsecret" not in text


def test_refusals_are_lines():
    broker = make_broker(audit_log="audit.log")
    client = make_client(broker)
    ask(broker, client, "ACL", "SETUSER", "ann", "on", ">pw", "+@connection")
    ask(broker, client, "AUTH", "ann", "pw")
    ask(broker, client, "QPURGE", "q\r\n{}")
    ask(broker, client, "AUTH", "bob\n", "pw")
    _, refused, failed = audited(broker)
    assert (refused["user"], refused["command"], refused["outcome"]) == ("ann", ["QPURGE", "q\r\n{}"], "NOPERM")
    assert (failed["user"], failed["command"], failed["outcome"]) == ("bob\n", ["AUTH"], "WRONGPASS")


def test_a_flood_of_refusals_is_counted():
    """Spec US10."""
    broker = make_broker(audit_log="audit.log")
    client = make_client(broker)
    ask(broker, client, "ACL", "SETUSER", "ann", "on", "nopass")
    ask(broker, client, "AUTH", "ann", "pw")
    for _ in range(LINES_MAX + 50):
        ask(broker, client, "PING")
    assert len(audited(broker)) == 1 + LINES_MAX
    pass_time(broker, 10_000)
    ask(broker, client, "PING")
    assert audited(broker)[0]["suppressed"] == 50


def test_a_late_reply_is_the_outcome():
    broker = make_broker(audit_log="audit.log")
    host_of(broker).is_slow = True
    client = make_client(broker)
    ask(broker, client, "QUEUE", "SET", "q", "lease", 5)
    assert audited(broker) == []
    host_of(broker).writing.pop()()
    assert [line["outcome"] for line in audited(broker)] == ["ok"]
    assert client.on_outcome is None


def test_a_change_whose_client_hangs_up_has_a_line():
    broker = make_broker(audit_log="audit.log")
    host_of(broker).is_slow = True
    client = make_client(broker)
    ask(broker, client, "QUEUE", "SET", "q", "lease", 5)
    dispatch.disconnect(broker, client)
    assert [line["outcome"] for line in audited(broker)] == ["the client hung up before the end"]


def test_a_long_command_is_cut():
    broker = make_broker(audit_log="audit.log")
    ask(broker, make_client(broker), "DELJOB", *["x" * 500] * 100)
    (line,) = audited(broker)
    assert line["command"][-1] == "... (69 more)"
    assert len(line["command"][1]) == 131


def test_without_an_audit_log_nothing_is_written():
    broker = make_broker()
    ask(broker, make_client(broker), "PAUSE", "q", "in")
    assert host_of(broker).audited == []
