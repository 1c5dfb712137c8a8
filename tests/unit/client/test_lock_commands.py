"""LOCK: the words of its subcommands."""

from __future__ import annotations

from datetime import timedelta

import pytest

from disque_py.client import lock_commands
from request_words import words_of


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (lock_commands.acquire_lock("l", "me", 500), "LOCK ACQUIRE l me 500"),
        (
            lock_commands.acquire_lock("l", "me", timedelta(seconds=1), attempts=3, timeout_ms=9),
            "LOCK ACQUIRE l me 1000 TIMEOUT 9 ATTEMPTS 3",
        ),
        (lock_commands.extend_lock("l", "me", 7, 500), "LOCK EXTEND l me 7 500"),
        (lock_commands.release_lock("l", "me", 7), "LOCK RELEASE l me 7"),
        (lock_commands.release_lock("l", "me", 7, done_ms=60), "LOCK RELEASE l me 7 DONE 60"),
        (lock_commands.show_lock("l"), "LOCK SHOW l"),
        (lock_commands.locks("n*"), "LOCK LIST n*"),
    ],
)  # fmt: skip
def test_arguments_become_words(request_, wire):
    """Spec R8."""
    assert words_of(request_) == wire
