"""client/schedule_commands.py: bytes on the wire, and typed answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from disque_py.client import schedule_commands as commands
from disque_py.client.request import Repeat
from request_words import words_of


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (commands.schedule("s", "q", cron="@daily"), "SCHEDULE SET s CRON @daily QUEUE q BODY "),
        (commands.schedule("s", "q", "b", every=90), "SCHEDULE SET s EVERY 90 QUEUE q BODY b"),
        (
            commands.schedule("s", "q", every=timedelta(milliseconds=1500)),
            "SCHEDULE SET s EVERY 1500ms QUEUE q BODY ",
        ),
        (
            commands.schedule(
                "s", "q", b"b", cron="0 4 * * *", time_zone="Europe/Berlin", catchup="all", overlap="skip",
                retry=timedelta(minutes=1), ttl=60, meta={"a": "b"}, attempts=3,
            ),
            "SCHEDULE SET s CRON 0 4 * * * TZ Europe/Berlin CATCHUP all OVERLAP skip QUEUE q BODY b"
            " RETRY 60 TTL 60 ATTEMPTS 3 META a b",
        ),
        (
            commands.schedule("s", "q", every=5, replicate="quorum", zones=2, batch="B"),
            "SCHEDULE SET s EVERY 5 QUEUE q BODY  REPLICATE QUORUM ZONES 2 BATCH B",
        ),
        (commands.schedule_info("s"), "SCHEDULE GET s"),
        (commands.schedules(), "SCHEDULE LIST"),
        (commands.schedules("n*"), "SCHEDULE LIST n*"),
        (commands.pause_schedule("s"), "SCHEDULE PAUSE s"),
        (commands.resume_schedule("s"), "SCHEDULE RESUME s"),
        (commands.delete_schedule("s"), "SCHEDULE DEL s"),
        (commands.run_schedule("s"), "SCHEDULE RUN s"),
        (commands.next_ticks("s", 3), "SCHEDULE NEXT s COUNT 3"),
    ],
)  # fmt: skip
def test_a_command_has_these_words(request_, wire):
    """Spec SD10."""
    assert words_of(request_) == wire


def test_one_of_cron_and_every_is_needed():
    with pytest.raises(ValueError, match="one of cron and every"):
        commands.schedule("s", "q")
    with pytest.raises(ValueError, match="one of cron and every"):
        commands.schedule("s", "q", cron="@daily", every=5)


def test_a_run_is_not_repeated_unasked():
    """A repetition would add a second job."""
    assert commands.run_schedule("s").repeat is Repeat.ASK


def test_an_answer_is_typed():
    pairs = {
        "name": b"s", "cron": None, "every": b"1500ms", "tz": b"UTC", "catchup": b"last", "overlap": b"allow",
        "queue": b"q", "body": b"\xff", "options": [b"RETRY", b"60"], "paused": 1, "next": None,
        "last": 1_700_000_000_500, "last-id": b"D-x", "fired": 3, "missed": 1, "behind": 0, "colour": b"red",
    }  # fmt: skip
    info = commands.schedule_info("s").read([word for name, value in pairs.items() for word in (name.encode(), value)])
    assert (info.every, info.cron, info.paused) == (timedelta(milliseconds=1500), None, True)
    assert info.last == datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC)
    assert (info.next, info.last_id, info.body, info.options) == (None, "D-x", b"\xff", ["RETRY", "60"])
    assert info.more == {"colour": b"red"}
    assert commands.schedule_info("s").read(None) is None


def test_ticks_are_moments_in_utc():
    ticks = commands.next_ticks("s").read([1_700_000_000_000])
    assert ticks == [datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)]
