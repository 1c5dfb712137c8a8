"""storage/packed_events.py: whole blocks for readers that unpack events themselves."""

from __future__ import annotations

import json
import struct
from functools import partial

import msgpack

from disque_py.event_format import PACKED_MARK
from evented import EventedNode, turn

HEAD = struct.Struct("<IIQQ")


def blocks(data: bytes) -> list[tuple[int, int, int, list]]:
    """(first event, Unix ms, how many, events) of each."""
    assert data.startswith(PACKED_MARK)
    at, found = len(PACKED_MARK), []
    while at < len(data):
        size, count, seq, ms = HEAD.unpack_from(data, at)
        at += HEAD.size
        found.append((seq, ms, count, msgpack.unpackb(data[at : at + size])))
        at += size
    return found


def node_with(turns: int, jobs: int = 1) -> EventedNode:
    node = EventedNode()
    for _ in range(turns):
        turn(node, *[partial(node.put, "ADDJOB", "q", "body", 0)] * jobs)
    node.settle(1_100)
    node.taken()
    return node


def test_packed_events_are_the_blocks_of_the_log():
    node = node_with(5)
    found = blocks(node.read(1, "FORMAT", "PACKED"))
    assert [(seq, count) for seq, _, count, _ in found] == [(seq, 1) for seq in range(1, 6)]
    lines = [json.loads(line) for line in node.read(1).splitlines()]
    assert [(ms, events[0][1].decode()) for _, ms, _, events in found] == [
        (line["ts"], line["job_id"]) for line in lines
    ]


def test_blocks_come_whole_until_the_wanted_number_is_reached():
    node = node_with(4, 10)
    for options, firsts in (
        ((), [1, 11, 21, 31]),
        (("COUNT", 11), [1, 11]),
        (("COUNT", 10), [1]),
        (("MAXBYTES", 1), [1]),
    ):
        assert [block[0] for block in blocks(node.read(1, "FORMAT", "PACKED", *options))] == firsts
    assert [block[0] for block in blocks(node.read(15, "FORMAT", "PACKED", "COUNT", 8))] == [11, 21]


def test_there_is_nothing_behind_the_end():
    assert node_with(2).read(3, "FORMAT", "packed") == b""


def test_a_reply_ends_with_the_segment_and_the_next_goes_on():
    node = EventedNode(event_segment_bytes=1 << 10)
    for _ in range(60):
        turn(node, partial(node.put, "ADDJOB", "q", "body", 0))
    node.settle(1_100)
    node.taken()
    seq = 1
    while seq < 61:
        found = blocks(node.read(seq, "FORMAT", "PACKED"))
        assert found[0][0] == seq
        seq = found[-1][0] + found[-1][2]
    assert len(node.service.log.segments) > 1


def test_an_unknown_format_is_named():
    assert str(node_with(1).read(1, "FORMAT", "XML")) == "ERR FORMAT must be LINES or PACKED"
