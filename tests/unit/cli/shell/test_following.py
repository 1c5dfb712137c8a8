"""following.py: shows events as they happen, and leaves none out."""

from __future__ import annotations

import json

import pytest

from disque_py.cli.address import Target
from disque_py.cli.shell.following import RefusedError, follow, short
from disque_py.cli.shell.main import is_following
from disque_py.client import Address

LINE = {
    "seq": 7, "ts": 1_700_000_000_123, "job_id": "D-x", "ctime": 1, "queue": "mail", "version": 2, "event": "delivered",
    "from_state": "pending", "to_state": "running", "since": 1_700_000_000_000, "attempt": 1, "nacks": 0,
    "deliveries": 0, "priority": 1, "error": None, "worker": None, "meta": {}, "body_size": 4, "v": 1,
}  # fmt: skip


class EnoughError(Exception):
    """Ends a test that has seen enough."""


def bulk(text: str) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text.encode())


def info(log: str, seq: int) -> bytes:
    return (
        b"*8\r\n"
        + bulk("log-id")
        + bulk(log)
        + bulk("first-seq")
        + b":1\r\n"
        + bulk("next-seq")
        + (b":%d\r\n" % seq)
        + bulk("bytes")
        + b":99\r\n"
    )


def followed(
    scripted, *answers: bytes | None, is_short: bool = False
) -> tuple[list[list[bytes]], list[str], list[str]]:
    """Return the requests, output and messages for these answers of the node."""
    asked: list[list[bytes]] = []
    left = iter(answers)

    def answer(words):
        asked.append(words)
        return next(left, b"-ERR enough\r\n")

    node = scripted({"EVENTS": answer})
    written: list[str] = []
    told: list[str] = []
    with pytest.raises(RefusedError):
        follow(Target(Address("127.0.0.1", node.port)), written.append, told.append, is_short=is_short)
    return asked, written, told


def test_lines_are_read_from_the_end_on_by_number(scripted):
    lines = "".join(json.dumps(LINE | {"seq": seq}) + "\n" for seq in (7, 8))
    asked, written, told = followed(scripted, info("abc", 7), bulk(lines), bulk(""))
    assert [json.loads(line)["seq"] for line in written] == [7, 8]
    assert [b" ".join(words[:4]) for words in asked] == [
        b"EVENTS INFO", b"EVENTS READ abc 7", b"EVENTS READ abc 9", b"EVENTS READ abc 9",
    ]  # fmt: skip
    assert told == []


def test_a_gap_is_reported_and_following_goes_on(scripted):
    asked, _, told = followed(scripted, info("abc", 7), b"-TRIMMED 20\r\n", b"-NOLOG def\r\n")
    assert told[0] == "events 7 to 19 are gone"
    assert "new log of events, def" in told[1]
    assert b" ".join(asked[-1][:4]) == b"EVENTS READ def 1"


def test_a_log_that_was_cut_is_written_again(scripted):
    """Nothing tells its new events from those that were written (docs/events.md)."""
    refusal = b"-ERR event 7 is behind the end of the log, which is 5\r\n"
    asked, _, told = followed(scripted, info("abc", 7), refusal, bulk(""))
    assert told == ["the log of events ends before event 7: it was cut, and all its events follow again"]
    assert b" ".join(asked[-1][:4]) == b"EVENTS READ abc 1"


def test_a_node_that_goes_away_is_waited_for_and_read_on(scripted, monkeypatch):
    monkeypatch.setattr("disque_py.cli.shell.following.AGAIN_S", 0.01)
    asked, _, told = followed(scripted, info("abc", 7), None, bulk(""))
    assert told == ["Server closed the connection"]
    assert b" ".join(asked[-1][:4]) == b"EVENTS READ abc 7"


def test_a_node_without_a_log_is_refused_with_advice(scripted):
    node = scripted({"EVENTS": b"-NOLOG none\r\n"})
    with pytest.raises(RefusedError, match="CONFIG SET events yes"):
        follow(Target(Address("127.0.0.1", node.port)), print, print, is_short=True)


def test_on_a_terminal_an_event_is_short():
    line = short(LINE)
    assert line.split(maxsplit=1)[1] == "D-x  mail  delivered  pending → running  attempt 1, after 0.123 s"
    started = short(LINE | {"job_id": None, "event": "started", "reason": "memory lost"})
    assert started.endswith("started: memory lost")


def test_a_name_does_nothing_to_the_terminal():
    """Producers choose the names of queues, with any bytes."""
    assert r"\x1b[31mq\n\udcff é" in short(LINE | {"queue": "\x1b[31mq\n\udcff é"})


@pytest.mark.parametrize(
    ("words", "is_it"),
    [(["events", "--follow"], True), (["EVENTS", "-f"], True), (["events", "info"], False), ([], False)],
)
def test_only_these_words_follow_events(words, is_it):
    assert is_following(words) == is_it
