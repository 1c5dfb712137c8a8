"""Whole numbers and spans of time."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from disque_py.client import commands
from disque_py.client.address import Address
from disque_py.client.events import events_read
from disque_py.client.options import make_options
from disque_py.client.spans import milliseconds, seconds, whole
from disque_py.client.templates import add_jobs

HALF = timedelta(milliseconds=500)


@pytest.mark.parametrize("option", ["delay", "retry", "ttl", "replicate", "maxlen", "priority", "timeout_ms"])
@pytest.mark.parametrize("number", [0.9, float("nan"), "5", True, Decimal("0.5")])
def test_a_number_that_is_not_whole_is_refused_when_jobs_are_added(option, number):
    """Rounding RETRY 0.9 to RETRY 0 would make the job at-most-once."""
    with pytest.raises((ValueError, TypeError), match=f"^{option} must be a whole number"):
        commands.add_job("q", "b", **{option: number})
    with pytest.raises((ValueError, TypeError), match=f"^{option} must be a whole number"):
        add_jobs("q", [b"b"], **{option: number})


@pytest.mark.parametrize(
    "build",
    [
        lambda: commands.get_jobs("q", count=1.5),
        lambda: commands.get_jobs("q", timeout_ms=0.5),
        lambda: commands.get_job("q", lease=0.5),
        lambda: commands.jobs("q", idle_ms=0.5),
        lambda: commands.extend_token("t", 1.5),
        lambda: commands.working("i", 1.5),
        lambda: commands.qpeek("q", 1.5),
        lambda: commands.qscan_page(count=1.5),
        lambda: commands.jscan_page(count=1.5),
        lambda: commands.execute("X", wait_ms=0.5),
        lambda: events_read("log", 1, block_ms=0.5),
        lambda: events_read("log", 1.5),
    ],
)
def test_a_number_that_is_not_whole_is_refused_by_every_command(build):
    """Dropping a fraction silently would surprise the caller."""
    with pytest.raises(ValueError, match="must be a whole number"):
        build()


def test_a_timedelta_is_accepted_like_a_number():
    """It is converted to the command's unit, seconds or milliseconds."""
    minute = timedelta(minutes=1)
    spans = commands.add_job("q", "b", timeout_ms=HALF, delay=minute, retry=minute, ttl=timedelta(hours=1))
    assert spans.argv == commands.add_job("q", "b", timeout_ms=500, delay=60, retry=60, ttl=3600).argv
    assert spans.wait_ms == 500
    assert commands.get_jobs("q", timeout_ms=HALF, lease=minute).argv == (
        commands.get_jobs("q", timeout_ms=500, lease=60).argv
    )
    assert commands.working("i", minute).argv == (b"WORKING", b"i", b"60")
    assert commands.extend_token("t", minute, node=Address("a", 1)).argv == (b"EXTENDTOKEN", b"t", b"60")
    assert commands.execute("X", wait_ms=HALF).wait_ms == 500
    assert events_read("log", 1, block_ms=HALF).wait_ms == 500


def test_half_a_second_is_not_a_number_of_seconds():
    """The error names the command's unit."""
    with pytest.raises(ValueError, match=r"^seconds must be a whole number of seconds, not 0:00:00.500000$"):
        commands.extend_token("t", HALF)
    with pytest.raises(ValueError, match=r"^delay must be a whole number of seconds, or a timedelta, not 0.5$"):
        commands.add_job("q", "b", delay=0.5)
    assert milliseconds("timeout_ms", HALF) == 500


def test_a_span_with_milliseconds_takes_the_word_for_them():
    """Spec Y11. Whole seconds use the original option, which older servers know."""
    spans = {"delay": HALF, "retry": timedelta(seconds=90), "ttl": timedelta(hours=1, milliseconds=1)}
    assert commands.add_job("q", "b", **spans).argv[4:] == (b"DELAYMS", b"500", b"RETRY", b"90", b"TTLMS", b"3600001")
    assert commands.get_jobs("q", lease=HALF, nohang=True).argv == (
        b"GETJOB",
        b"NOHANG",
        b"LEASEMS",
        b"500",
        b"FROM",
        b"q",
    )
    with pytest.raises(ValueError, match="delay must be a whole number of milliseconds"):
        commands.nack("id", delay=timedelta(microseconds=1))


def test_a_float_without_a_fraction_is_whole():
    """Arithmetic produces such numbers."""
    assert (seconds("ttl", 60.0), whole("count", 3.0)) == (60, 3)


def test_settings_take_spans_and_fractions():
    """They belong to the library and are never sent to a node."""
    options = make_options((), {"timeout": timedelta(seconds=2), "patience": 0.5})
    assert (options.timeout, options.patience) == (2.0, 0.5)
    with pytest.raises(TypeError, match="timeout must be a number of seconds or a timedelta, not str"):
        make_options((), {"timeout": "2"})
    with pytest.raises(ValueError, match="pool_size must be a whole number"):
        make_options((), {"pool_size": 1.5})
