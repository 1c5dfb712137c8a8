"""Commands about the node that receives them: their words and replies."""

from __future__ import annotations

import pytest

from disque_py.client import node_commands
from request_words import words_of


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (node_commands.ping(), "PING"),
        (node_commands.time(), "TIME"),
        (node_commands.info(), "INFO"),
        (node_commands.info("jobs"), "INFO jobs"),
        (node_commands.config_get("max*"), "CONFIG GET max*"),
        (node_commands.config_set("maxmemory", 100), "CONFIG SET maxmemory 100"),
        (node_commands.execute("any", 1, b"x"), "any 1 x"),
    ],
)  # fmt: skip
def test_arguments_become_words(request_, wire):
    """Spec R8."""
    assert words_of(request_) == wire


def test_answers_are_numbers_or_raw():
    """The words of TIME become numbers. `execute` returns the raw reply."""
    assert node_commands.time().read([b"7", b"8"]) == (7, 8)
    assert node_commands.execute("X").read([1, None]) == [1, None]
