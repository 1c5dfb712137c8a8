"""Values of the command line: times, pairs and settings. Pure, except for click's errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import click

_SPAN: Final = re.compile(r"(\d+)(ms|s|m|h|d)?")
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def read_span(ctx: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
    """Return a time as a timedelta: `90`, `90s`, `500ms`, `2h`, `1d`; a bare number is in seconds."""
    if value is None:
        return None
    found = _SPAN.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"'{value}' is not a time: write 500ms, 90s, 5m, 2h or 1d", ctx, parameter)
    return timedelta(milliseconds=int(found[1]) * _UNITS[found[2] or "s"])


def span_text(span: timedelta) -> str:
    """Return a time as `read_span` reads it, in the largest unit that divides it: `90s`, `2h`."""
    milliseconds = span // timedelta(milliseconds=1)
    unit = next((name for name in ("d", "h", "m", "s") if milliseconds % _UNITS[name] == 0), "ms")
    return f"{milliseconds // _UNITS[unit]}{unit}"


def pairs_of(words: Sequence[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE words as a mapping. Raises click.UsageError."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{option} takes NAME=VALUE, not '{word}'")
        found[name] = value
    return found


def settings_of_words(words: Sequence[str]) -> list[str]:
    """Return `field=value …` or `field value …` as the words of QUEUE SET. Raises click.UsageError."""
    found: list[str] = []
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        if not equals:
            if at + 1 == len(words):
                raise click.UsageError(
                    f"'{name}' needs a value: {name}=…; an empty value ({name}=) resets it to its default"
                )
            at += 1
            value = words[at]
        found += (name, value)
        at += 1
    return found
