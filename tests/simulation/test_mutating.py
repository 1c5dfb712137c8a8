"""The deliberate defects (mutating.py) still fit the code, and do what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import mutating


@pytest.mark.parametrize("mutation", mutating.MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_defect_can_still_be_put_in(mutation):
    """Its piece of code is there once, and the function is whole again afterwards."""
    function = mutating.function_of(mutation.where)
    whole = function.__code__
    with mutating.defective(mutation):
        assert function.__code__.co_code != whole.co_code or function.__code__.co_consts != whole.co_consts
    assert function.__code__ is whole


def test_there_are_enough_of_them():
    """And no two under one name."""
    assert len({mutation.name for mutation in mutating.MUTATIONS}) == len(mutating.MUTATIONS) >= 25


def test_the_list_takes_its_place_in_the_page(tmp_path, monkeypatch):
    """It replaces the one before, and what stands around it stays."""
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{mutating.TITLE}\n\nold\n\n## More\n\ntext\n")
    monkeypatch.setattr(mutating, "PAGE", page)
    for _ in range(2):
        mutating.write_page(mutating.table([(mutating.MUTATIONS[0], 30, None)]))
    text = page.read_text()
    assert text.count(mutating.TITLE) == 1
    assert "old" not in text
    assert "| not in 30 | |" in text
    assert text.endswith("\n\n## More\n\ntext\n")
