"""visible.py: text on a terminal."""

from __future__ import annotations

import json

import pytest

from disque_py.cli.visible import visible, visible_json, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [("Zoë 🔑", "Zoë 🔑"), ("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("\x9b2J", "\\x9b2J"), ("\udcff", "\\udcff")],
)
def test_only_characters_that_can_be_printed_are_shown_as_they_are(text, shown):
    assert visible(text) == shown


def test_text_of_several_lines_keeps_its_line_ends():
    assert visible_lines("a\x1b[2J\nb\r") == "a\\x1b[2J\nb\\r"


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "\x9b2J", "\x7f", "\u202ea", "\u2028", "\ud800", "\U000e0001", "Zoë 🔑 宽"]
)
def test_json_has_nothing_that_a_terminal_obeys_and_means_the_same(text):
    shown = visible_json({text: [text]})
    assert shown.isprintable()
    assert json.loads(shown) == {text: [text]}
    assert visible_json("Zoë 🔑 宽") == '"Zoë 🔑 宽"'
