"""Ticks: the moments that a cron expression or an interval defines.

An expression has five fields (minute, hour, day, month, weekday), or six with seconds in front. A field is `*`, or a
list of numbers, names, ranges and steps. If both day and weekday are given, a day that matches one of them is enough.

An expression names local times, but a tick is a moment. `Ticks` converts local times with the offsets of a time zone:

* A local time that the clocks skip becomes the moment of the jump. Several skipped times become one tick.
* A local time that occurs twice is a tick only the first time. But if the hour field is `*` or has a step, it is a tick
  both times. So a schedule for every half hour keeps its rhythm.

Between two changes of the clocks, a zone has one offset. All work is done for one such span after the other: to find
the next local time in it, or to count the local times in it. Neither visits each tick. To skip a year of a schedule for
every second costs one look at each day.

An interval (EVERY) has its ticks at its multiples from Unix time 0 on, so that all nodes agree.

The offsets come from a function of the process, because zone rules are files (ports.Host.time_zone).
Spec SD1, SD2, SD3, SD11.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

DAY_S: Final = 86_400
# The longest expression. People write expressions by hand, on one line.
EXPRESSION_BYTES_MAX: Final = 1_024
# How many days are searched for the next tick. 29 February may be eight years away (1896 to 1904, 2096 to 2104).
# Without a matching day in this span, an expression has no further ticks.
SEARCHED_DAYS: Final = 9 * 366
# How many days of zone rules are read at a time. One look per day is enough, because no zone changes its clocks twice
# within a day.
PIECE_DAYS: Final = 64
PIECE_S: Final = PIECE_DAYS * DAY_S
# The most pieces that a zone keeps: more than a search for one tick reads.
PIECES_MAX: Final = 128
# No zone ever changed its clocks by more than this in one step.
CHANGE_S_MAX: Final = DAY_S + 3_600
# The last possible moment of a tick: the end of the year 9998. Zone rules end with the year 9999.
LAST_S: Final = 253_370_764_800

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTH_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

# Returns the seconds east of UTC at a Unix time in seconds.
OffsetAt = Callable[[int], int]


class CronError(ValueError):
    """An invalid expression. The text is the reason."""


# -- days ---------------------------------------------------------------------------------------------------------


def day_of(year: int, month: int, day: int) -> int:
    """Return the number of a day of the Gregorian calendar; 1 January 1970 is day 0."""
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def date_of(number: int) -> tuple[int, int, int]:
    """Return year, month and day of the day with this number."""
    era, day_of_era = divmod(number + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


# -- expressions --------------------------------------------------------------------------------------------------


class Cron:
    """The local times that a cron expression names.

    is_hour_loose   whether the hour field is `*` or has a step, so that a local time that occurs twice is a tick twice
    """

    __slots__ = (
        "_days",
        "_has_days",
        "_has_weekdays",
        "_hours",
        "_minutes",
        "_months",
        "_seconds",
        "_weekdays",
        "is_hour_loose",
    )

    def __init__(self, text: str) -> None:
        if len(text) > EXPRESSION_BYTES_MAX:
            raise CronError(f"at most {EXPRESSION_BYTES_MAX} bytes")
        words = text.split()
        if len(words) == 1 and words[0].startswith("@"):
            known = MACROS.get(words[0].lower())
            if known is None:
                raise CronError(f"'{words[0]}' is not one of {', '.join(MACROS)}")
            words = known.split()
        if len(words) == 5:
            words.insert(0, "0")
        if len(words) != 6:
            raise CronError(f"five or six fields are expected, not {len(words)}")
        self._seconds = _read("second", words[0], 0, 59)
        self._minutes = _read("minute", words[1], 0, 59)
        self._hours = _read("hour", words[2], 0, 23)
        self._days = frozenset(_read("day", words[3], 1, 31))
        self._months = frozenset(_read("month", words[4], 1, 12, MONTHS))
        self._weekdays = frozenset(each % 7 for each in _read("weekday", words[5], 0, 7, WEEKDAYS))
        self._has_days = words[3] != "*"
        self._has_weekdays = words[5] != "*"
        self.is_hour_loose = words[2] == "*" or "/" in words[2]
        if self._has_days and not self._has_weekdays:
            first = min(self._days)
            if all(first > _MONTH_DAYS[month - 1] for month in self._months):
                raise CronError("none of the named months has such a day")

    def next_local(self, local_s: int, end_s: int) -> int:
        """Return the first named local time that is at least `local_s` and below `end_s`; -1 if there is none.

        Local times are seconds since 1 January 1970, 0:00, on a clock that is never changed.
        """
        number, second = divmod(local_s, DAY_S)
        end_number = min(end_s // DAY_S, number + SEARCHED_DAYS)
        while number <= end_number:
            skip = self._days_to_skip(number)
            if skip:
                number += skip
                second = 0
                continue
            found = self._time_from(second)
            if found >= 0:
                at_s = number * DAY_S + found
                return at_s if at_s < end_s else -1
            number += 1
            second = 0
        return -1

    def count_local(self, local_s: int, end_s: int) -> int:
        """Return how many named local times are at least `local_s` and below `end_s`."""
        if end_s <= local_s:
            return 0
        number, second = divmod(local_s, DAY_S)
        end_number, end_second = divmod(end_s, DAY_S)
        count = -self._times_before(second) if not self._days_to_skip(number) else 0
        whole = len(self._hours) * len(self._minutes) * len(self._seconds)
        while number < end_number:
            skip = self._days_to_skip(number)
            if skip:
                number += skip
            else:
                count += whole
                number += 1
        if number == end_number and not self._days_to_skip(number):
            count += self._times_before(end_second)
        return count

    def _days_to_skip(self, number: int) -> int:
        """Return 0 if a day matches; else how many days can be skipped at least."""
        year, month, day = date_of(number)
        if month not in self._months:
            return (day_of(year + 1, 1, 1) if month == 12 else day_of(year, month + 1, 1)) - number
        if self._has_days and self._has_weekdays:
            return 0 if day in self._days or (number + 4) % 7 in self._weekdays else 1
        return 0 if day in self._days and (number + 4) % 7 in self._weekdays else 1

    def _time_from(self, second: int) -> int:
        """Return the first named second of a day that is at least `second`; -1 if there is none."""
        hours, minutes, seconds = self._hours, self._minutes, self._seconds
        hour, rest = divmod(second, 3_600)
        minute, rest = divmod(rest, 60)
        at_hour = bisect_left(hours, hour)
        if at_hour == len(hours):
            return -1
        if hours[at_hour] > hour:
            return hours[at_hour] * 3_600 + minutes[0] * 60 + seconds[0]
        at_minute = bisect_left(minutes, minute)
        if at_minute < len(minutes) and minutes[at_minute] == minute:
            at_second = bisect_left(seconds, rest)
            if at_second < len(seconds):
                return hour * 3_600 + minute * 60 + seconds[at_second]
            at_minute += 1
        if at_minute < len(minutes):
            return hour * 3_600 + minutes[at_minute] * 60 + seconds[0]
        if at_hour + 1 < len(hours):
            return hours[at_hour + 1] * 3_600 + minutes[0] * 60 + seconds[0]
        return -1

    def _times_before(self, second: int) -> int:
        """Return how many named seconds of a day are below `second`."""
        hours, minutes, seconds = self._hours, self._minutes, self._seconds
        hour, rest = divmod(second, 3_600)
        minute, rest = divmod(rest, 60)
        at_hour, at_minute = bisect_left(hours, hour), bisect_left(minutes, minute)
        count = at_hour * len(minutes) * len(seconds)
        if at_hour < len(hours) and hours[at_hour] == hour:
            count += at_minute * len(seconds)
            if at_minute < len(minutes) and minutes[at_minute] == minute:
                count += bisect_left(seconds, rest)
        return count


def _read(name: str, text: str, low: int, high: int, names: tuple[str, ...] = ()) -> list[int]:
    """Return the values of a field, in ascending order. Raise CronError."""
    found: set[int] = set()
    for part in text.split(","):
        body, has_step, step_text = part.partition("/")
        first_text, has_range, last_text = body.partition("-")
        if body == "*":
            first, last = low, high
        else:
            first = last = _value(name, first_text, low, high, names)
            if has_range:
                last = _value(name, last_text, low, high, names)
                if name == "weekday" and last == 0 < first:
                    last = 7  # FRI-SUN
                if last < first:
                    raise CronError(f"bad {name} '{text}': the range '{body}' ends before it begins")
            elif has_step:
                last = high
        step = 1
        if has_step:
            if not _is_number(step_text) or not 0 < int(step_text) <= high:
                raise CronError(f"bad {name} '{text}': a step from 1 to {high} is expected")
            step = int(step_text)
        found.update(range(first, last + 1, step))
    return sorted(found)


def _value(name: str, text: str, low: int, high: int, names: tuple[str, ...]) -> int:
    if _is_number(text):
        value = int(text)
        if low <= value <= high:
            return value
    elif text.lower() in names:
        return names.index(text.lower()) + (1 if names == MONTHS else 0)
    more = f", or {names[0].upper()} to {names[-1].upper()}" if names else ""
    raise CronError(f"bad {name} '{text}': a number from {low} to {high}{more} is expected")


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 4 and text.isascii() and text.isdigit()


# -- zones --------------------------------------------------------------------------------------------------------


class Zone:
    """A time zone: its offset at each moment, and the moments at which the offset changes.

    To find the changes, the zone asks for the offset of each day, for PIECE_DAYS at a time. It keeps what it found, up
    to PIECES_MAX pieces.
    """

    __slots__ = ("_pieces", "name", "offset_at")

    def __init__(self, name: str, offset_at: OffsetAt) -> None:
        self.name = name
        self.offset_at = offset_at
        self._pieces: dict[int, list[tuple[int, int, int]]] = {}

    def changes(self, from_s: int, end_s: int) -> Iterator[tuple[int, int, int]]:
        """Yield the changes in [from_s, end_s) as (moment, offset before, offset from then on)."""
        for number in range(from_s // PIECE_S, min(end_s, LAST_S) // PIECE_S + 1):
            piece = self._pieces.get(number)
            if piece is None:
                if len(self._pieces) >= PIECES_MAX:
                    self._pieces.clear()
                piece = self._pieces[number] = self._looked_up(number * PIECE_S)
            for change in piece:
                if from_s <= change[0] < end_s:
                    yield change

    def _looked_up(self, begin_s: int) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        before = self.offset_at(begin_s - 1)
        at_s = begin_s - 1
        while at_s < begin_s + PIECE_S - 1:
            next_s = min(at_s + DAY_S, begin_s + PIECE_S - 1)
            after = self.offset_at(next_s)
            if after != before:
                low, high = at_s, next_s  # The old offset applies at `low`, and no longer at `high`.
                while high - low > 1:
                    middle = (low + high) // 2
                    if self.offset_at(middle) == before:
                        low = middle
                    else:
                        high = middle
                after = self.offset_at(high)
                found.append((high, before, after))
                at_s = high
                before = after
            else:
                at_s = next_s
        return found


def utc(unix_s: int) -> int:
    """Return the offset of UTC, which is 0."""
    return 0


UTC: Final = Zone("UTC", utc)


# -- ticks --------------------------------------------------------------------------------------------------------


class Ticks:
    """The ticks of one schedule, as Unix times in milliseconds.

    cron       the expression; None: the ticks are the multiples of `every_ms`
    every_ms   at least a second
    """

    __slots__ = ("cron", "every_ms", "zone")

    def __init__(self, cron: Cron | None, every_ms: int, zone: Zone) -> None:
        assert (cron is None) == (every_ms > 0)
        self.cron = cron
        self.every_ms = every_ms
        self.zone = zone

    def after(self, at_ms: int) -> int:
        """Return the first tick after a moment; 0 if there is none."""
        if self.cron is None:
            found_ms = (at_ms // self.every_ms + 1) * self.every_ms
            return found_ms if found_ms <= LAST_S * 1_000 else 0
        found = _next(self.cron, self.zone, at_ms // 1_000 + 1)
        return found * 1_000 if found >= 0 else 0

    def count(self, after_ms: int, until_ms: int) -> int:
        """Return how many ticks are after `after_ms` and not after `until_ms`."""
        if until_ms <= after_ms:
            return 0
        if self.cron is None:
            return until_ms // self.every_ms - after_ms // self.every_ms
        return _count(self.cron, self.zone, after_ms // 1_000 + 1, until_ms // 1_000 + 1)

    def last(self, after_ms: int, until_ms: int) -> int:
        """Return the last tick that is after `after_ms` and not after `until_ms`; 0 if there is none."""
        if self.cron is None:
            found_ms = until_ms // self.every_ms * self.every_ms
            return found_ms if found_ms > after_ms else 0
        low, high = after_ms // 1_000, until_ms // 1_000
        found = self.after(low * 1_000)
        if not found or found > high * 1_000:
            return 0
        while high - low > 1:  # The first tick after `low` is in the span, and the first tick after `high` is not.
            middle = (low + high) // 2
            next_ms = self.after(middle * 1_000)
            if next_ms and next_ms <= until_ms:
                low, found = middle, next_ms
            else:
                high = middle
        return found


def _next(cron: Cron, zone: Zone, at_s: int) -> int:
    """Return the first tick at or after a moment; -1 if there is none."""
    end_s = min(at_s + SEARCHED_DAYS * DAY_S, LAST_S)
    offset = zone.offset_at(at_s)
    first_local = at_s + offset
    for change_s, before, after in zone.changes(at_s - CHANGE_S_MAX, end_s):
        if change_s <= at_s:
            # The clocks show these local times for the second time, so they were ticks before.
            if after < before and not cron.is_hour_loose:
                first_local = max(first_local, change_s + before)
            if change_s == at_s and _is_skipped(cron, change_s, before, after):
                return change_s
            continue
        found = cron.next_local(first_local, change_s + before)
        if found >= 0:
            return found - before
        if _is_skipped(cron, change_s, before, after):
            return change_s
        first_local = change_s + after
        if after < before and not cron.is_hour_loose:
            first_local = change_s + before
        offset = after
    found = cron.next_local(first_local, end_s + offset)
    return found - offset if found >= 0 else -1


def _is_skipped(cron: Cron, change_s: int, before: int, after: int) -> bool:
    """Return whether the clocks skip a named local time."""
    return after > before and cron.next_local(change_s + before, change_s + after) >= 0


def _count(cron: Cron, zone: Zone, at_s: int, end_s: int) -> int:
    """Return how many ticks are in [at_s, end_s)."""
    count = 0
    offset = zone.offset_at(at_s)
    first_local = at_s + offset
    for change_s, before, after in zone.changes(at_s - CHANGE_S_MAX, end_s):
        if change_s > at_s:
            count += cron.count_local(first_local, change_s + before)
            first_local = change_s + after
            offset = after
        if after < before and not cron.is_hour_loose:
            first_local = max(first_local, change_s + before)
        if change_s >= at_s and _is_skipped(cron, change_s, before, after):
            # If the local time at the jump is named itself, it and the skipped times are one tick.
            count += cron.next_local(change_s + after, change_s + after + 1) < 0
    return count + cron.count_local(first_local, end_s + offset)
