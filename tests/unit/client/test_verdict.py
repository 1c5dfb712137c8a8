"""A handler's decision: another attempt, or none."""

from __future__ import annotations

from datetime import timedelta

import pytest

from disque_py.client import Fail, Retry
from disque_py.client.verdict import reason_of


@pytest.mark.parametrize(("delay", "ms"), [(None, None), (0, 0), (1.5, 1500), (timedelta(minutes=1), 60_000)])
def test_a_delay_is_kept_in_milliseconds(delay, ms):
    assert Retry(delay).delay_ms == ms


@pytest.mark.parametrize("delay", [-1, 10**14])
def test_a_delay_that_no_node_takes_is_refused(delay):
    """It may come from a header of a reply that the handler got. The handler fails with it, and not the worker."""
    with pytest.raises(ValueError, match="must not be below 0"):
        Retry(delay)


class MuteError(Exception):
    def __str__(self):
        raise AttributeError("no message")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no"), "ValueError: no"),
        (KeyError(), "KeyError"),
        (Retry(reason="busy"), "busy"),
        (Fail(), ""),
        (MuteError(), "MuteError"),
    ],
)
def test_the_reason_of_an_error_is_its_type_and_text(error, reason):
    """A decision may have its own reason, or none."""
    assert reason_of(error) == reason
