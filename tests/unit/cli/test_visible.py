"""visible.py: text on a terminal."""

from __future__ import annotations

import pytest

from disque_py.cli.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [("Zoë 🔑", "Zoë 🔑"), ("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("\x9b2J", "\\x9b2J"), ("\udcff", "\\udcff")],
)
def test_only_characters_that_can_be_printed_are_shown_as_they_are(text, shown):
    assert visible(text) == shown
