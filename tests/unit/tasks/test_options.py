"""Options of tasks become words of ADDJOB."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from disque_py.client import commands
from disque_py.tasks.options import arguments, checked, merged

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def words(**options):
    return b" ".join(commands.add_options(**arguments(checked(options), NOW))).decode()


def test_a_task_has_a_lease_a_life_and_five_attempts():
    assert words() == "RETRY 60 TTL 604800 ATTEMPTS 5"


def test_a_delay_makes_the_life_longer():
    """A lease can be extended until half of the job's life is over. A delay must not use up that half."""
    assert words(delay=86_400) == "DELAY 86400 RETRY 60 TTL 777600 ATTEMPTS 5"
    assert words(delay=0.25, ttl=60).startswith("DELAYMS 250 RETRY 60 TTL 60")


def test_an_eta_is_a_delay():
    assert words(eta=NOW + timedelta(minutes=2)).startswith("DELAY 120 ")
    assert words(eta=NOW - timedelta(minutes=2)) == words()


def test_a_key_is_used_until_its_task_is_over():
    assert words(key="k").endswith("KEY k WINDOW 0")
    assert words(key="k", window=60).endswith("KEY k WINDOW 60")
    assert words(key="k", window=None).endswith("KEY k")
    assert words(key="k", replace=True, delay=1).endswith("KEY k REPLACE")
    assert words(key="k", replace=True, delay=1, window=60).endswith("KEY k WINDOW 60 REPLACE")


def test_attempts_may_be_left_to_the_queue():
    assert words(attempts=None) == "RETRY 60 TTL 604800"
    assert words(lease=0, priority=1, meta={"a": "b"}).startswith("RETRY 0 TTL 604800 PRIORITY 1 ATTEMPTS 5 META a b")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"dealy": 1}, TypeError),
        ({"delay": 1, "eta": NOW}, ValueError),
        ({"eta": datetime(2026, 1, 1)}, ValueError),  # Deliberately without a time zone.
        ({"delay": -1}, ValueError),
        ({"ttl": "1"}, TypeError),
    ],
)
def test_options_that_make_no_sense_are_refused(options, error):
    with pytest.raises(error):
        checked(options)


def test_later_options_win():
    assert merged({"queue": "a", "delay": 1}, {"queue": "b", "eta": NOW}) == {"queue": "b", "eta": NOW}
    assert merged({"eta": NOW}, {"delay": 2}) == {"delay": 2}
