"""storage/event_readers.py: readers share pieces that were read and made into lines."""

from __future__ import annotations

import json
from array import array
from typing import Any

from disque_py.core.event_lines import Lines
from disque_py.storage.event_readers import KEPT_BYTES_MAX, READERS_MAX, Text, cut, text_of
from evented import EventedNode, turn
from persistence.event_reading import PIECE_BYTES

BODY = "x" * 300


def filled(count: int, maker: Any = None, **settings: Any) -> EventedNode:
    node = EventedNode(event_segment_bytes=1 << 20, **settings)
    node.service.event_readers._maker = maker
    for start in range(0, count, 500):
        turn(node, *[_adding(node) for _ in range(min(500, count - start))])
    node.settle(1_100)
    node.taken()
    return node


def _adding(node: EventedNode) -> Any:
    return lambda: node.put("ADDJOB", "q", BODY, 0)


class Maker:
    """A LineMaker that keeps what it is asked for until the test lets it answer."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def make(self, blocks: Any, done: Any) -> None:
        self.asked.append((blocks, done))

    def answer(self, *, is_there: bool = True) -> None:
        blocks, done = self.asked.pop(0)
        text, ends = text_of(Lines(), blocks)
        done((text, ends.tobytes()) if is_there else None)


def test_ten_readers_at_one_place_share_one_read():
    node = filled(50)
    for _ in range(10):
        assert node.read(1).count(b"\n") == 50
    assert node.service.event_readers.lines_made == 50


def test_readers_that_ask_at_the_same_time_share_one_read():
    node = filled(50)
    log = node.service.log.log_id
    turn(node, *[lambda at=at: node.put("EVENTS", "READ", log, 1, client=at) for at in (0, 1)])
    assert node.taken(0) == node.taken(1) == []
    assert sum(1 for _ in iter(node.work, False)) == 1
    assert [len(node.taken(client)) for client in (0, 1)] == [1, 1]


def test_a_long_log_is_given_in_pieces_that_fit_together():
    node = filled(6_000)
    lines = node.lines()
    assert [line["seq"] for line in lines] == list(range(1, 6_001))
    assert node.read(1).count(b"\n") < 6_000
    assert node.service.log.size > 2 * PIECE_BYTES


def test_any_number_is_found_in_the_midst_of_a_piece():
    node = filled(3_000)
    for seq in (1, 2, 499, 500, 501, 1_024, 1_025, 2_999, 3_000):
        assert json.loads(node.read(seq, "COUNT", 1))["seq"] == seq


def test_many_events_are_made_into_lines_beside_the_loop():
    maker = Maker()
    node = filled(1_000, maker)
    node.ask("EVENTS", "READ", node.service.log.log_id, 1)
    while node.work():
        pass
    assert node.taken() == []
    turn(node, maker.answer)
    assert node.taken()[0].count(b"\n") > 200


def test_a_maker_that_died_is_replaced_by_the_node_itself():
    maker = Maker()
    node = filled(1_000, maker)
    node.ask("EVENTS", "READ", node.service.log.log_id, 1)
    while node.work():
        pass
    turn(node, lambda: maker.answer(is_there=False))
    assert node.taken()[0].count(b"\n") > 200


def test_kept_lines_are_bounded():
    event_readers = filled(10).service.event_readers
    for seq in range(100, 140):
        event_readers._keep(seq, Text(seq, seq + 1, bytes(1 << 20), array("I", [1 << 20])))
    assert event_readers._kept_bytes <= KEPT_BYTES_MAX
    assert len(event_readers._texts) == len(event_readers._starts) == len(event_readers._made)


def test_readers_with_names_are_bounded():
    node = filled(3)
    for number in range(READERS_MAX + 20):
        node.read(1, "READER", f"r{number}")
        node.pass_ms(1)
    assert list(node.service.event_readers.readers) == [f"r{number}" for number in range(20, READERS_MAX + 20)]


def test_a_damaged_piece_counts_as_trimmed():
    """The reader is told where it can go on, and the log tells why."""
    node = filled(600)
    log = node.service.log
    node.event_folder._files[log.segments[0].name].content[200] ^= 1
    assert str(node.read(1)) == f"TRIMMED {log.durable_seq}"
    assert any("can't be read" in line for line in node.log)


def test_lines_are_cut_by_number_and_by_bytes():
    text = Text(5, 8, b"aa\nbbbb\nc\n", array("I", [3, 8, 10]))
    assert cut(text, 5, 10, 100) == (b"aa\nbbbb\nc\n", 3)
    assert cut(text, 6, 1, 100) == (b"bbbb\n", 1)
    assert cut(text, 6, 9, 6) == (b"bbbb\n", 1)
    assert cut(text, 6, 9, 7) == (b"bbbb\nc\n", 2)
    assert cut(text, 7, 9, 0) == (b"c\n", 1)
    assert cut(text, 7, 9, 0, at_least=0) == (b"", 0)
    assert cut(text, 5, 9, 0, at_least=0) == (b"", 0)


def test_kept_pieces_are_given_together():
    """A slow log is read every second, a line at a time. A later reader gets all lines in one reply."""
    node = EventedNode()
    for seq in range(1, 9):
        node.wait_for("ADDJOB", "q", BODY, 0)
        node.settle(1_100)
        assert node.read(seq).count(b"\n") == 1
    assert node.read(1).count(b"\n") == 8
    assert node.read(1, "COUNT", 5).count(b"\n") == 5
    assert node.read(1, "MAXBYTES", 3 * len(node.read(1, "COUNT", 1))).count(b"\n") == 3
    assert node.service.event_readers.lines_made == 8
