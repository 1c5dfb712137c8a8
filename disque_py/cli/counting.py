"""Numbers of things in messages: `1 node`, `3 nodes`."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 job` or `12,841 jobs`. The plural ends with s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def counted_of(count: int, total: int, noun: str, verb: str = "") -> str:
    """Return a part of a total and what became of it, such as `1 of 1 job is` or `1 of 3 jobs are`.

    verb   `is` or `was`, in the number of the total; empty for none
    """
    plural = {"is": "are", "was": "were", "has": "have"}
    words = verb if total == 1 else plural.get(verb, verb)
    return f"{count:,} of {counted(total, noun)}" + (f" {words}" if words else "")
