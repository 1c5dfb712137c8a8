"""The glossary lists each term once, and each meaning once."""

from __future__ import annotations

import re
from collections import Counter

import pytest

ROW = re.compile(r"^\| ((?:\*\*|`).+?) \| (.+) \|$", re.MULTILINE)
TERM = re.compile(r"\*\*([^*]+)\*\*")


@pytest.fixture(scope="module")
def glossary(root):
    """The page."""
    return (root / "docs/glossary.md").read_text(encoding="utf-8")


def terms_of(text: str) -> list[str]:
    """Return the terms that a row defines: in its first cell, in bold, separated by commas."""
    cells = [row[0] for row in ROW.findall(text)]
    return [term.strip().lower() for cell in cells for bold in TERM.findall(cell) for term in bold.split(",")]


def test_each_term_is_defined_once(glossary):
    """A word that two rows define would name two things."""
    counted = Counter(terms_of(glossary))
    assert len(counted) > 100
    assert [term for term, count in counted.items() if count > 1] == []


def test_no_meaning_is_given_twice(glossary):
    """Two words with one meaning are one word too many."""
    meanings = Counter(meaning for _, meaning in ROW.findall(glossary))
    assert [meaning for meaning, count in meanings.items() if count > 1] == []


def test_a_term_that_is_defined_twice_is_found():
    """One row may have several terms."""
    text = "| **node** | a |\n| **run, Node** | b |\n| word | meaning |\n"
    assert Counter(terms_of(text))["node"] == 2


def test_a_path_in_the_glossary_exists(glossary, root):
    """If a module moves, its row must change, too."""
    named = re.findall(r"`([\w/]+\.py)`", glossary)
    assert named
    assert [name for name in named if not (root / name).exists() and not (root / "disque_py" / name).exists()] == []
