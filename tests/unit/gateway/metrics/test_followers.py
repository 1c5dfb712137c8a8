"""gateway/metrics/followers.py: reads packed events. The tests in tests/gateway read them from real nodes."""

from __future__ import annotations

import msgpack
import pytest

pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")

from disque_py.event_format import BLOCK_HEAD, PACKED_MARK
from disque_py.gateway.metrics.followers import blocks_of, reader_name


def block(first, *found):
    packed = msgpack.packb(found)
    return BLOCK_HEAD.pack(len(packed), len(found), first, 1_700) + packed


def test_blocks_have_the_number_of_the_next_event_and_a_time():
    reply = PACKED_MARK + block(5, (1, b"a"), (2, b"b")) + block(7, (3, b"c"))
    assert list(blocks_of(reply, 5)) == [(7, 1_700, ((1, b"a"), (2, b"b"))), (8, 1_700, ((3, b"c"),))]


def test_events_before_the_wanted_one_are_left_out():
    """A node sends whole blocks, so the first block may begin with earlier events."""
    assert list(blocks_of(PACKED_MARK + block(5, (1, b"a"), (2, b"b")), 6)) == [(7, 1_700, ((2, b"b"),))]


def test_an_empty_reply_has_no_event():
    assert list(blocks_of(b"", 5)) == []


def test_lines_are_refused():
    with pytest.raises(ValueError, match="unknown format"):
        list(blocks_of(b'{"seq":1}\n', 1))


def test_the_name_of_a_reader_is_one_that_nodes_take(monkeypatch):
    """READER accepts up to 64 characters: letters, digits and a few others."""
    monkeypatch.setattr("socket.gethostname", lambda: 90 * "ä")
    assert reader_name(65_535) == "metrics-" + 48 * "-" + "-65535"
