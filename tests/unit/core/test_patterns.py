"""core/patterns.py: groups of clients with the same patterns, and the queues that match."""

from __future__ import annotations

import pytest

from brokers import ask, make_broker, make_client, pass_time
from copies import advance
from disque_py.core import patterns
from disque_py.core.errors import CommandError
from disque_py.core.patterns import GROUP_IDLE_MS


def add(broker, client, *names):
    for name in names:
        ask(broker, client, "ADDJOB", name, "x", 0)


def test_a_queue_belongs_to_the_groups_that_it_matches_whichever_came_first():
    """Spec TP1."""
    broker = make_broker()
    client = make_client(broker)
    add(broker, client, "mail.a", "sms.a")
    group = broker.patterns.group([b"mail.*"])
    while group.build is not None:
        next(group.build, None)
    add(broker, client, "mail.b", "sms.b")
    assert group.names == [b"mail.a", b"mail.b"]


def test_the_same_patterns_are_one_group_in_any_order():
    broker = make_broker()
    assert broker.patterns.group([b"a*", b"*b", b"a*"]) is broker.patterns.group([b"*b", b"a*"])


def test_a_group_is_dropped_a_minute_after_its_last_use():
    broker = make_broker()
    client = make_client(broker)
    used = broker.used_memory
    ask(broker, client, "GETJOB", "NOHANG", "FROMMATCH", "a*", "b*")
    assert broker.used_memory > used
    for _ in range(3):
        advance(broker, GROUP_IDLE_MS + 1)
    assert not broker.patterns.groups
    assert broker.used_memory == used
    add(broker, client, "ab")
    assert broker.queues[b"ab"].patterns is None


def test_a_dropped_queue_leaves_its_groups():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "GETJOB", "NOHANG", "FROMMATCH", "a*")
    add(broker, client, "ab")
    queue = broker.queues[b"ab"]
    job = queue.pop()
    broker.drop_queue(queue)
    assert job is not None
    assert broker.patterns.groups[b"a*",].names == []


def test_there_is_a_limit_of_groups(monkeypatch):
    broker = make_broker()
    broker.patterns.group([b"a*"])
    patterns_max = len(broker.patterns.groups)
    assert patterns_max == 1
    for number in range(3):
        broker.patterns.group([b"%d*" % number])
    with pytest.raises(CommandError, match="too many patterns"):
        _fill(broker)


def _fill(broker):
    group = broker.patterns.group([b"a*"])
    for number in range(patterns.GROUPS_MAX):
        broker.patterns.groups[b"%d" % number,] = group
    broker.patterns.group([b"new"])


def test_very_many_queues_are_compared_in_parts():
    broker = make_broker()
    client = make_client(broker)
    for number in range(1_000):
        broker.queue(b"q%d" % number)
    add(broker, client, "q7")
    group = broker.patterns.group([b"q7*"])
    build = group.build
    assert build is not None
    assert sum(1 for _ in build) == 1_000 // patterns.COMPARED_PER_PART
    assert group.names == [b"q7"]
    pass_time(broker, 1)
