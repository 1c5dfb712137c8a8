"""core/cron.py: the local times that an expression names, and the ticks that a zone makes of them."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC as UTC_ZONE
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disque_py.core.cron import DAY_S, PIECE_S, PIECES_MAX, UTC, Cron, CronError, Ticks, Zone, date_of, day_of

BERLIN = "Europe/Berlin"  # 2026: 29 March 2:00 -> 3:00, 25 October 3:00 -> 2:00


def zone(name: str) -> Zone:
    """A zone by the rules of the standard library."""
    known = ZoneInfo(name)

    def offset_at(unix_s: int) -> int:
        return int(datetime.fromtimestamp(unix_s, known).utcoffset().total_seconds())

    return Zone(name, offset_at)


def ms(text: str, name: str = "UTC", fold: int = 0) -> int:
    """Unix ms of a local time."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(name), fold=fold).timestamp()) * 1000


def ticks(expression: str, start: str, count: int, name: str = "UTC") -> list[str]:
    """The next ticks as local times with their offsets, which tell the first from the second time."""
    made = Ticks(Cron(expression), 0, zone(name) if name != "UTC" else UTC)
    found = []
    at_ms = ms(start, name)
    for _ in range(count):
        at_ms = made.after(at_ms)
        found.append(datetime.fromtimestamp(at_ms / 1000, ZoneInfo(name)).strftime("%Y-%m-%dT%H:%M:%S%z"))
    return found


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00:30", ["2026-01-01T00:01:00", "2026-01-01T00:02:00"]),
        ("*/20 * * * *", "2026-01-01T00:00", ["2026-01-01T00:20:00", "2026-01-01T00:40:00", "2026-01-01T01:00:00"]),
        ("30 4 1,15 * *", "2026-01-02T00:00", ["2026-01-15T04:30:00", "2026-02-01T04:30:00"]),
        ("0 9-17/4 * * *", "2026-01-01T09:00", ["2026-01-01T13:00:00", "2026-01-01T17:00:00", "2026-01-02T09:00:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00", ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        ("0 0 29 2 *", "2096-03-01T00:00", ["2104-02-29T00:00:00"]),
        ("0 12 * JAN mon", "2026-01-27T00:00", ["2027-01-04T12:00:00"]),
        ("0 0 * * 7", "2026-01-01T00:00", ["2026-01-04T00:00:00", "2026-01-11T00:00:00"]),
        (
            "0 0 * * fri-sun",
            "2026-01-01T00:00",
            ["2026-01-02T00:00:00", "2026-01-03T00:00:00", "2026-01-04T00:00:00"],
        ),
        ("0 0 13 * FRI", "2026-02-01T00:00", ["2026-02-06T00:00:00", "2026-02-13T00:00:00", "2026-02-20T00:00:00"]),
        ("0 0 */15 * MON", "2026-01-02T00:00", ["2026-01-05T00:00:00", "2026-01-12T00:00:00", "2026-01-16T00:00:00"]),
        ("15,45 30 6 * * *", "2026-01-01T06:30:15", ["2026-01-01T06:30:45", "2026-01-02T06:30:15"]),
        ("5/25 * * * *", "2026-01-01T00:00", ["2026-01-01T00:05:00", "2026-01-01T00:30:00", "2026-01-01T00:55:00"]),
        ("0 0 31 * *", "2026-01-31T00:00", ["2026-03-31T00:00:00", "2026-05-31T00:00:00"]),
        ("@hourly", "2026-01-01T23:30", ["2026-01-02T00:00:00", "2026-01-02T01:00:00"]),
        ("@daily", "2026-12-31T00:00", ["2027-01-01T00:00:00"]),
        ("@midnight", "2026-12-31T00:00", ["2027-01-01T00:00:00"]),
        ("@weekly", "2026-01-01T00:00", ["2026-01-04T00:00:00"]),
        ("@monthly", "2026-01-01T00:00", ["2026-02-01T00:00:00"]),
        ("@Yearly", "2026-01-01T00:00", ["2027-01-01T00:00:00"]),
        ("@annually", "2026-01-01T00:00", ["2027-01-01T00:00:00"]),
    ],
)
def test_an_expression_names_these_times(expression, start, expected):
    """Spec SD1: lists, ranges, steps, names, 7 as Sunday; if day and weekday are given, either fits."""
    assert [tick[:-5] for tick in ticks(expression, start, len(expected))] == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "five or six fields are expected, not 0"),
        ("* * * *", "five or six fields are expected, not 4"),
        ("* * * * * * *", "five or six fields are expected, not 7"),
        ("60 * * * *", "bad minute '60': a number from 0 to 59 is expected"),
        ("* 24 * * *", "bad hour '24': a number from 0 to 23 is expected"),
        ("* * 0 * *", "bad day '0': a number from 1 to 31 is expected"),
        ("* * * 13 *", "bad month '13': a number from 1 to 12, or JAN to DEC is expected"),
        ("* * * * 8", "bad weekday '8': a number from 0 to 7, or SUN to SAT is expected"),
        ("* * * * moon", "bad weekday 'moon': a number from 0 to 7, or SUN to SAT is expected"),
        ("61 * * * * *", "bad second '61': a number from 0 to 59 is expected"),
        ("*/0 * * * *", "bad minute '*/0': a step from 1 to 59 is expected"),
        ("5-1 * * * *", "bad minute '5-1': the range '5-1' ends before it begins"),
        ("1, * * * *", "bad minute '': a number from 0 to 59 is expected"),
        ("-1 * * * *", "bad minute '': a number from 0 to 59 is expected"),
        ("0 0 31 2,4 *", "none of the named months has such a day"),
        ("@never", "'@never' is not one of @hourly"),
        ("* " * 1000, "at most 1024 bytes"),
    ],
)
def test_a_wrong_expression_says_why(expression, reason):
    """Spec SD1."""
    with pytest.raises(CronError, match=f"^{reason.replace('*', '[*]')}"):
        Cron(expression)


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        # Skipped: the tick is at the moment of the jump.
        ("30 2 * * *", "2026-03-28T12:00", ["2026-03-29T03:00:00+0200", "2026-03-30T02:30:00+0200"]),
        # Two such ticks are one; and one with a tick that is named for that moment.
        ("15,45 2 * * *", "2026-03-28T12:00", ["2026-03-29T03:00:00+0200", "2026-03-30T02:15:00+0200"]),
        ("0 2,3 * * *", "2026-03-28T12:00", ["2026-03-29T03:00:00+0200", "2026-03-30T02:00:00+0200"]),
        (
            "*/30 * * * *", "2026-03-29T01:00",
            ["2026-03-29T01:30:00+0100", "2026-03-29T03:00:00+0200", "2026-03-29T03:30:00+0200"],
        ),
        # Twice: the first time only …
        ("30 2 * * *", "2026-10-24T12:00", ["2026-10-25T02:30:00+0200", "2026-10-26T02:30:00+0100"]),
        (
            "30 1-4 * * *", "2026-10-25T01:00",
            ["2026-10-25T01:30:00+0200", "2026-10-25T02:30:00+0200", "2026-10-25T03:30:00+0100"],
        ),
        # … unless the hour field is `*` or has a step.
        (
            "30 * * * *", "2026-10-25T02:00",
            ["2026-10-25T02:30:00+0200", "2026-10-25T02:30:00+0100", "2026-10-25T03:30:00+0100"],
        ),
        (
            "30 */2 * * *", "2026-10-25T02:00",
            ["2026-10-25T02:30:00+0200", "2026-10-25T02:30:00+0100", "2026-10-25T04:30:00+0100"],
        ),
    ],
)  # fmt: skip
def test_ticks_follow_summer_time(expression, start, expected):
    """Spec SD2."""
    assert ticks(expression, start, len(expected), BERLIN) == expected


def test_a_day_that_a_zone_left_out_has_its_tick_at_the_jump():
    """Samoa went from 29 December 2011 to the 31st. Spec SD2."""
    found = ticks("0 12 * * *", "2011-12-29T13:00", 2, "Pacific/Apia")
    assert found == ["2011-12-31T00:00:00+1400", "2011-12-31T12:00:00+1400"]


def test_a_jump_of_half_an_hour_moves_a_skipped_tick_to_its_end():
    """Lord Howe Island sets its clocks by 30 minutes. Spec SD2."""
    found = ticks("15 2 * * *", "2026-10-03T12:00", 2, "Australia/Lord_Howe")
    assert found == ["2026-10-04T02:30:00+1100", "2026-10-05T02:15:00+1100"]


def test_every_counts_from_unix_time_0():
    """Spec SD3: so all nodes agree, whenever they heard of the schedule."""
    made = Ticks(None, 90_000, UTC)
    assert [made.after(0), made.after(89_999), made.after(90_000)] == [90_000, 90_000, 180_000]
    assert made.count(0, 180_000) == 2
    assert made.last(0, 200_000) == 180_000
    assert made.last(180_000, 200_000) == 0


def test_a_schedule_that_slept_for_a_year_costs_no_walk_over_its_ticks():
    """Spec SD11: ticks that were missed are counted by days."""
    made = Ticks(Cron("* * * * * *"), 0, zone(BERLIN))
    begin, end = ms("2026-01-01T00:00"), ms("2027-01-01T00:00")
    assert made.count(begin, end) == 365 * 86_400
    assert made.last(begin, end) == end


def test_there_are_no_ticks_after_the_last_year():
    """Zone rules end with the year 9999."""
    made = Ticks(Cron("@yearly"), 0, UTC)
    assert made.after(ms("9997-06-01T00:00")) == ms("9998-01-01T00:00")
    assert made.after(ms("9998-06-01T00:00")) == 0


@given(st.integers(-1_000_000, 3_000_000))
def test_days_have_their_dates(number):
    assert day_of(*date_of(number)) == number
    if -700_000 < number < 2_900_000:
        moment = datetime(1970, 1, 1) + timedelta(days=number)
        assert date_of(number) == (moment.year, moment.month, moment.day)


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    """A field: `*`, a step, or a list of numbers."""
    return st.one_of(
        st.just("*"),
        st.sampled_from(["*/2", "*/5", f"{low}-{high}/3"]),
        st.lists(st.integers(low, high), min_size=1, max_size=3).map(lambda found: ",".join(map(str, found))),
    )


def brute(expression: str, name: str, begin: int, end: int) -> list[int]:
    """Return the ticks of (begin, end] in seconds, checked minute by minute with the standard library."""
    minute, hour, day, month, weekday = (_set(*field) for field in zip(expression.split(), RANGES, strict=True))
    words = expression.split()
    known = ZoneInfo(name)
    found = set()
    local = datetime.fromtimestamp(begin, known).replace(tzinfo=None, second=0) - timedelta(days=2)
    while local <= datetime.fromtimestamp(end, known).replace(tzinfo=None) + timedelta(days=2):
        days = local.day in day, local.isoweekday() % 7 in {each % 7 for each in weekday}
        fits = any(days) if words[2] != "*" and words[4] != "*" else all(days)
        if fits and local.minute in minute and local.hour in hour and local.month in month:
            moments = [local.replace(tzinfo=known, fold=fold).timestamp() for fold in (0, 1)]
            back = datetime.fromtimestamp(moments[0], known).replace(tzinfo=None)
            if back != local:  # Skipped.
                found.add(_jump(known, int(moments[1]), int(moments[0])))
            else:
                found.update(moments if words[1] == "*" or "/" in words[1] else moments[:1])
        local += timedelta(minutes=1)
    return sorted(int(each) for each in found if begin < each <= end)


RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def _set(text: str, bounds: tuple[int, int]) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        body, _, step = part.partition("/")
        low, high = bounds if body == "*" else [int(each) for each in (body.split("-") * 2)[:2]]
        found |= set(range(low, high + 1, int(step or 1)))
    return found


def _jump(known: ZoneInfo, low: int, high: int) -> int:
    """The moment within two at which a zone's offset changes."""
    first = datetime.fromtimestamp(low, known).utcoffset()
    moments = range(low, high + 1)
    return moments[bisect_left(moments, True, key=lambda at: datetime.fromtimestamp(at, known).utcoffset() != first)]


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(*[numbers(*bounds) for bounds in ((0, 59), (0, 5), (1, 31), (1, 12), (0, 7))]),
    st.sampled_from(
        [
            (BERLIN, "2026-03-28T20:00"),
            (BERLIN, "2026-10-24T20:00"),
            ("America/New_York", "2026-11-01T00:00"),
            ("Australia/Lord_Howe", "2026-04-04T20:00"),
            ("Pacific/Apia", "2011-12-29T12:00"),
        ]
    ),
)
def test_ticks_are_those_that_the_rule_names(fields, place):
    """The test compares every minute around a change of the clocks with the standard library. Spec SD1, SD2."""
    name, start = place
    expression = " ".join(fields)
    try:
        made = Ticks(Cron(expression), 0, zone(name))
    except CronError:
        return
    begin = ms(start, name) // 1000
    end = begin + 86_400
    expected = brute(expression, name, begin, end)
    found = [begin * 1000]
    while (tick := made.after(found[-1])) and tick <= end * 1000:
        found.append(tick)
    assert [tick // 1000 for tick in found[1:]] == expected
    assert made.count(begin * 1000, end * 1000) == len(expected)
    assert made.last(begin * 1000, end * 1000) == (expected[-1] * 1000 if expected else 0)
    assert all(made.count(one, two) == 1 for one, two in pairwise(found))


def test_the_changes_of_a_zone_are_found_to_the_second():
    """Also before 1970, and where a piece of the table begins."""
    known = zone(BERLIN)
    begin, end = ms("2026-01-01T00:00") // 1000, ms("2027-01-01T00:00") // 1000
    assert list(known.changes(begin, end)) == [
        (int(datetime(2026, 3, 29, 1, tzinfo=UTC_ZONE).timestamp()), 3600, 7200),
        (int(datetime(2026, 10, 25, 1, tzinfo=UTC_ZONE).timestamp()), 7200, 3600),
    ]


def test_a_zone_reads_its_rules_once_and_keeps_a_bounded_number_of_them():
    asked = []

    def offset_at(unix_s: int) -> int:
        asked.append(unix_s)
        return 0

    known = Zone("x", offset_at)
    for _ in range(2):
        list(known.changes(0, PIECE_S))
    once = len(asked)
    assert once <= 2 * (PIECE_S // DAY_S + 2)
    list(known.changes(0, 2 * PIECES_MAX * PIECE_S))
    asked.clear()
    list(known.changes(0, PIECE_S))
    assert len(asked) == once
