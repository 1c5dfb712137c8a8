"""EVENTS as commands and typed events."""

from __future__ import annotations

import asyncio
import json

import pytest

from client_node import Node, bulk
from disque_py.client import AsyncDisque, Disque, Event, EventLines, EventsTrimmedError, NoEventLogError
from disque_py.client.events import event_of, events_read

LOG = b"*8\r\n" + b"".join(
    (bulk("log-id"), bulk("l1"), bulk("first-seq"), b":3\r\n", bulk("next-seq"), b":7\r\n", bulk("bytes"), b":99\r\n")
)


def line(seq: int, **more: object) -> str:
    return json.dumps({"seq": seq, "ts": 5, "job_id": "D-1", "event": "added", "to_state": "pending"} | more) + "\n"


def events_node(argv: list[bytes]) -> bytes:
    """A node with a log of events 3 to 6."""
    words = [word.decode() for word in argv[1:]]
    if words[0] == "INFO":
        return LOG
    if words[0] == "SEEK":
        return b":4\r\n"
    if words[1] != "l1":
        return b"-NOLOG l1\r\n"
    if int(words[2]) < 3:
        return b"-TRIMMED 3\r\n"
    count = int(words[words.index("COUNT") + 1])
    return bulk("".join(line(seq) for seq in range(int(words[2]), min(7, int(words[2]) + count))))


@pytest.fixture
def node():
    with Node(answers={"EVENTS": events_node}) as one:
        yield one


def test_a_log_is_read_from_its_first_event_to_its_last(node):
    with Disque(node.address) as disque:
        log = disque.events_info()
        assert (log.log, log.first, log.next, log.bytes) == ("l1", 3, 7, 99)
        part = disque.events_read(log.log, log.first, count=3, reader="me")
        assert (len(part), part.next, [event.seq for event in part.events()]) == (3, 6, [3, 4, 5])
        assert disque.events_seek(1_700_000_000_000) == 4
        assert len(disque.events_read("l1", 7)) == 0


def test_reading_a_trimmed_event_is_an_error_that_names_the_first_event(node):
    with Disque(node.address) as disque:
        with pytest.raises(EventsTrimmedError) as trimmed:
            disque.events_read("l1", 1)
        with pytest.raises(NoEventLogError) as other:
            disque.events_read("l0", 1)
    assert (trimmed.value.first, other.value.log) == (3, "l1")
    assert NoEventLogError("NOLOG none").log is None


def test_a_tail_ends_after_idle_ms_without_events(node):
    async def run() -> list[int]:
        async with AsyncDisque(node.address) as disque:
            return [event.seq async for event in disque.events_tail("l1", 4, count=2, idle_ms=20)]

    assert asyncio.run(run()) == [4, 5, 6]
    with Disque(node.address) as disque:
        assert [event.seq for event in disque.events_tail("l1", 5, idle_ms=20)] == [5, 6]
        assert list(disque.events_tail(idle_ms=20)) == []


def test_a_line_becomes_an_event_and_keeps_unknown_fields():
    event = event_of(line(9, meta={"k": "v"}, reason="x", priority=None))
    assert event == Event(9, 5, "added", "D-1", to_state="pending", meta={"k": "v"}, more={"reason": "x"})
    for bad in ("[]", '{"seq": 1}', "{"):
        with pytest.raises(ValueError, match=r"event|Expecting"):
            event_of(bad)


def test_a_read_that_waits_has_a_connection_of_its_own():
    request = events_read("l1", 3, block_ms=500, max_bytes=7, reader="me")
    assert request.argv[2:] == (b"l1", b"3", b"COUNT", b"10000", b"MAXBYTES", b"7", b"BLOCK", b"500", b"READER", b"me")
    assert (request.wait_ms, request.is_pinned) == (500, False)
    assert request.value(None, None, None) == EventLines("l1", 3, b"")


def test_the_next_event_is_the_one_after_the_last_line():
    """A user may not see all events, so lines have gaps. Spec US6."""
    assert EventLines("l1", 3, b'{"seq":3,"ts":1}\n{"seq":9,"ts":2}\n').next == 10
    assert EventLines("l1", 3, b"").next == 3
