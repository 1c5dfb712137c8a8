"""Checks of numbers and spans of time in commands: whole numbers only.

Disque counts seconds and milliseconds in whole numbers. Cutting off a fraction would silently change a guarantee: RETRY
0.9 would become RETRY 0, which delivers a job at most once. So a number with a fraction is an error here. Wherever a
command takes seconds or milliseconds, a `datetime.timedelta` is accepted too. Pure.
"""

from __future__ import annotations

from datetime import timedelta
from operator import index
from typing import Final, SupportsIndex, TypeAlias

# Whole numbers of seconds or milliseconds, or the same as a span.
Seconds: TypeAlias = "int | timedelta"
Milliseconds: TypeAlias = "int | timedelta"
# Settings of the library itself. They may have a fraction.
Span: TypeAlias = "float | timedelta"

SECOND: Final = timedelta(seconds=1)
MILLISECOND: Final = timedelta(milliseconds=1)


def whole(name: str, value: int) -> int:
    """Return the argument `name` as an int. Raises ValueError for a fraction, TypeError for anything but a number."""
    if type(value) is int:
        return value
    return _whole(name, value, "a whole number")


def seconds(name: str, value: Seconds) -> int:
    """Return the argument `name` in whole seconds. Raises ValueError for a fraction, TypeError for no number."""
    if type(value) is int:
        return value
    return _span(name, value, SECOND, "seconds")


def milliseconds(name: str, value: Milliseconds) -> int:
    """Return the argument `name` in whole milliseconds. Raises ValueError for a fraction, TypeError for no number."""
    if type(value) is int:
        return value
    return _span(name, value, MILLISECOND, "milliseconds")


def time_words(name: str, value: Seconds) -> tuple[bytes, bytes]:
    """Return an option of a command: `DELAY 3`, or `DELAYMS 2500` for a timedelta with a part of a second.

    Raises ValueError for a part of a millisecond or a number with a fraction, TypeError for no number.
    """
    if type(value) is int:
        return name.upper().encode(), b"%d" % value
    if isinstance(value, timedelta) and value.microseconds:
        return name.upper().encode() + b"MS", b"%d" % milliseconds(name, value)
    return name.upper().encode(), b"%d" % seconds(name, value)


def float_seconds(name: str, value: Span) -> float:
    """Return a setting of the library in seconds. Raises TypeError for anything but a number or a timedelta."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds or a timedelta, not {_kind(value)}")
    return float(value)


def _span(name: str, value: object, unit: timedelta, units: str) -> int:
    if not isinstance(value, timedelta):
        return _whole(name, value, f"a whole number of {units}, or a timedelta")
    count, rest = divmod(value, unit)
    if rest:
        raise ValueError(f"{name} must be a whole number of {units}, not {value}")
    return count


def _whole(name: str, value: object, wanted: str) -> int:
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        raise ValueError(f"{name} must be {wanted}, not {value}")
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be {wanted}, not {_kind(value)}")
    return index(value)


def _kind(value: object) -> str:
    return f"{value!r}" if isinstance(value, bool) else type(value).__name__
