"""gateway/metrics/followers.py: reads packed events. The tests in tests/gateway read them from real nodes."""

from __future__ import annotations

import threading
import time

import msgpack
import pytest

pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")

from prometheus_client.parser import text_string_to_metric_families

from disque_py import event_format as events
from disque_py.client import Address
from disque_py.client.options import ClientOptions
from disque_py.event_format import BLOCK_HEAD, PACKED_MARK
from disque_py.gateway.metrics import followers
from disque_py.gateway.metrics.exposition import Page
from disque_py.gateway.metrics.followers import Follower, UnreadableError, blocks_of, reader_name
from disque_py.gateway.metrics.selection import Selection
from disque_py.gateway.metrics.transitions import Tally
from metrics_nodes import ANSWERS
from scripted_queues import reply


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
    with pytest.raises(UnreadableError, match="unknown format"):
        list(blocks_of(b'{"seq":1}\n', 1))


@pytest.mark.parametrize("content", [b"\xc1", msgpack.packb(7), msgpack.packb([]), msgpack.packb([1, 2])[:-1]])
def test_a_block_that_can_t_be_read_says_where_it_ends(content):
    with pytest.raises(UnreadableError) as caught:
        list(blocks_of(PACKED_MARK + BLOCK_HEAD.pack(len(content), 2, 5, 1_700) + content, 5))
    assert caught.value.following == 7


def test_a_block_that_does_not_move_the_reader_is_refused():
    """Otherwise the reader would ask for the same events for ever."""
    with pytest.raises(UnreadableError, match="before event 9"):
        list(blocks_of(PACKED_MARK + block(5, (1, b"a"), (2, b"b")), 9))


ADDED = (events.ADDED, b"D-1", 10**18, b"mail", 4)


def counted(scripted, monkeypatch, replies, next_seq=1, added=1.0):
    """Return the counters as soon as a reader of a node with these replies, by number, has counted `added` jobs."""
    monkeypatch.setattr(followers, "RETRY_S", 0.02)

    def answer(words):
        if words[1] == b"INFO":
            return reply({"log-id": "log", "first-seq": 1, "next-seq": heads.pop() if heads else next_seq, "bytes": 0})
        found = replies.get(int(words[3]))
        return found if found is not None else reply(b"")

    heads = [1]
    node, tally = scripted({**ANSWERS, "EVENTS": answer}), Tally(Selection())
    follower = Follower(Address("127.0.0.1", node.port), ClientOptions(), "metrics-test", tally)
    try:
        deadline = time.monotonic() + 30
        while True:
            page = Page("")
            tally.add_to(page, 0)
            families = text_string_to_metric_families(page.text().decode())
            found = {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}
            if found.get(("disque_jobs_added_total", "mail")) == added or time.monotonic() > deadline:
                return found
            time.sleep(0.01)
    finally:
        follower.close()


GOOD = reply(PACKED_MARK + block(9, ADDED))


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(PACKED_MARK + b"\0" * 5, id="no head"),
        pytest.param(b'{"seq":1}\n', id="lines"),
        pytest.param(["a", "list"], id="list"),
        pytest.param(7, id="number"),
    ],
)
def test_a_reader_skips_an_answer_that_can_t_be_read(scripted, monkeypatch, caplog, bad):
    """It goes on at the end of the log, and counts the events before it. It logs this once."""
    found = counted(scripted, monkeypatch, {1: reply(bad), 9: GOOD}, next_seq=9)
    assert found["disque_jobs_added_total", "mail"] == 1
    assert found["disque_events_uncounted_total", "unreadable"] == 8
    assert "can't be read" in caplog.text


def test_a_reader_skips_a_block_that_can_t_be_read(scripted, monkeypatch):
    bad = BLOCK_HEAD.pack(1, 8, 1, 1_700) + b"\xc1"
    found = counted(scripted, monkeypatch, {1: reply(PACKED_MARK + bad), 9: GOOD})
    assert found["disque_jobs_added_total", "mail"] == 1
    assert found["disque_events_uncounted_total", "unreadable"] == 8


def test_a_reader_skips_an_event_that_can_t_be_read(scripted, monkeypatch):
    odd = (None, 7, (1, 2, 3), (1, 2, 3, 4, 5, 6, 7, 8, 9, [], 11), (events.ADDED, b"D-2", 10**18, 5, 4))
    found = counted(scripted, monkeypatch, {1: reply(PACKED_MARK + block(1, *odd, ADDED))})
    assert found["disque_jobs_added_total", "mail"] == 1
    assert found["disque_events_uncounted_total", "unreadable"] == 5


def test_a_reader_survives_an_unexpected_answer_to_its_first_question(scripted, monkeypatch):
    answers = [reply({}), reply({"log-id": "log", "first-seq": 9, "next-seq": 9, "bytes": 0})]
    monkeypatch.setattr(followers, "RETRY_S", 0.02)
    asked = threading.Event()

    def answer(words):
        if words[1] == b"INFO":
            return answers.pop(0)
        asked.set()
        return reply(b"")

    node = scripted({**ANSWERS, "EVENTS": answer})
    follower = Follower(Address("127.0.0.1", node.port), ClientOptions(), "metrics-test", Tally(Selection()))
    assert asked.wait(30)
    follower.close()


def test_events_that_the_log_has_dropped_are_counted(scripted, monkeypatch):
    found = counted(scripted, monkeypatch, {1: b"-TRIMMED 9\r\n", 9: GOOD})
    assert found["disque_events_uncounted_total", "trimmed"] == 8


def test_a_log_that_was_cut_is_counted_from_the_moment_of_the_last_event(scripted, monkeypatch, caplog):
    """The reader has no other way to tell new events from counted ones: they have the same numbers."""
    monkeypatch.setattr(followers, "RETRY_S", 0.02)
    sought, asked = [], threading.Event()

    def answer(words):
        if words[1] == b"INFO":
            return reply({"log-id": "log", "first-seq": 1, "next-seq": 5 if sought or bad else 1, "bytes": 0})
        if words[1] == b"SEEK":
            sought.append(int(words[2]))
            return b":4\r\n"
        if int(words[3]) == 1:
            return reply(PACKED_MARK + block(1, *[ADDED] * 8))
        if int(words[3]) == 4:
            asked.set()
            return reply(b"")
        bad.append(int(words[3]))
        return b"-ERR event 9 is behind the end of the log, which is 5\r\n"

    bad = []
    node = scripted({**ANSWERS, "EVENTS": answer})
    follower = Follower(Address("127.0.0.1", node.port), ClientOptions(), "metrics-test", Tally(Selection()))
    assert asked.wait(30)
    follower.close()
    assert (bad, sought) == ([9], [1_701])
    assert "was cut" in caplog.text


def test_the_name_of_a_reader_is_one_that_nodes_take(monkeypatch):
    """READER accepts up to 64 characters: letters, digits and a few others."""
    monkeypatch.setattr("socket.gethostname", lambda: 90 * "ä")
    assert reader_name(65_535) == "metrics-" + 48 * "-" + "-65535"
