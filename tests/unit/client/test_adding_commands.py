"""ADDJOB: its words, and when it may be sent again."""

from __future__ import annotations

import pytest

from disque_py.client import adding_commands
from disque_py.client.request import Repeat
from request_words import words_of


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (adding_commands.add_job("q", "b"), "ADDJOB q b 5000"),
        (
            adding_commands.add_job(
                "q", b"b", timeout_ms=1, replicate=2, delay=3, retry=0, ttl=5, maxlen=6, async_=True
            ),
            "ADDJOB q b 1 REPLICATE 2 DELAY 3 RETRY 0 TTL 5 MAXLEN 6 ASYNC",
        ),
        (adding_commands.add_job("q", "b", priority=-7, meta={"a": "b", "c": b"d"}, key="k"),
         "ADDJOB q b 5000 PRIORITY -7 META a b META c d KEY k"),
    ],
)  # fmt: skip
def test_arguments_become_words(request_, wire):
    """Spec R8."""
    assert words_of(request_) == wire


def test_an_addjob_is_repeated_only_with_permission():
    """A second ADDJOB is a second job."""
    assert adding_commands.add_job("q", "b").repeat is Repeat.ASK
    assert adding_commands.add_job("q", "b", retry_unsafe=True).repeat is Repeat.SAFE
    assert adding_commands.add_job("q", "b", retry_unsafe=False).repeat is Repeat.NEVER


def test_an_addjob_with_a_key_may_be_sent_again():
    """The reply to the second one has the id of the first."""
    assert adding_commands.add_job("q", "b").repeat is Repeat.ASK
    assert adding_commands.add_job("q", "b", key="k").repeat is Repeat.SAFE
