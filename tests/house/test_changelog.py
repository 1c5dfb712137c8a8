"""Each entry of CHANGELOG.md is written once. A merge may repeat an entry that two branches have moved or edited."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

# Two entries that begin with so many equal characters are the same entry.
BEGINNING = 60
# So are two entries that share this part of their words: one of them was edited on one branch only.
SHARED = 0.75


def entries_of(text: str) -> dict[str, list[str]]:
    """Return the items of all lists of each release, with folded white space."""
    releases = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        items = re.findall(r"^- .*(?:\n {2,}\S.*)*", body, re.MULTILINE)
        releases[name] = [" ".join(item[2:].split()) for item in items]
    return releases


def doubled(entries: list[str]) -> list[tuple[str, str]]:
    """Return the pairs of entries that have the same text or nearly the same text."""
    words = {entry: set(entry.split()) for entry in entries}
    return [
        (one, other)
        for one, other in combinations(entries, 2)
        if one[:BEGINNING] == other[:BEGINNING]
        or len(words[one] & words[other]) >= SHARED * len(words[one] | words[other])
    ]


def test_no_release_of_the_changelog_has_an_entry_twice(root):
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [pair for entries in entries_of(text).values() for pair in doubled(entries)] == []


def test_an_entry_is_an_item_with_its_further_lines():
    text = "# Changelog\n\n## [2]\n\n### Added\n\n- One entry\n  of two lines.\n- Another one.\n\n## [1]\n\n- Old.\n"
    assert entries_of(text) == {"[2]": ["One entry of two lines.", "Another one."], "[1]": ["Old."]}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("A node waits.", "A node waits.", True),
        ("x" * BEGINNING + " ends here.", "x" * BEGINNING + " ends there.", True),
        ("The node waits for one second at most.", "A node waits for one second at most.", True),
        ("A queue is dropped.", "A job is dropped.", False),
    ],
)
def test_entries_that_are_nearly_the_same_are_doubled(one, other, same):
    assert bool(doubled([one, other])) == same
