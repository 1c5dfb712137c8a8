"""The deliberate defects (mutating.py) still fit the code, and hunts work."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FunctionType

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import mutating

from disque_py.core.broker import Broker

is_compiled = type(Broker.find) is not FunctionType
pytestmark = pytest.mark.skipif(is_compiled, reason="compiled functions have no code of Python")


@pytest.mark.parametrize("mutation", mutating.MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_defect_can_still_be_put_in(mutation):
    """Its piece of code occurs once, and the function is restored afterwards."""
    function = mutating.function_of(mutation.where)
    whole = function.__code__
    with mutating.defective(mutation):
        assert function.__code__.co_code != whole.co_code or function.__code__.co_consts != whole.co_consts
    assert function.__code__ is whole


def test_there_are_enough_defects():
    """No two have the same name."""
    assert len({mutation.name for mutation in mutating.MUTATIONS}) == len(mutating.MUTATIONS) >= 25


def test_the_list_takes_its_place_in_the_page(tmp_path, monkeypatch):
    """It replaces the old list, and the text around it stays."""
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{mutating.TITLE}\n\nold\n\n## More\n\ntext\n")
    monkeypatch.setattr(mutating, "PAGE", page)
    for _ in range(2):
        mutating.write_page(mutating.table([(mutating.MUTATIONS[0], mutating.Found(30, ""))]))
    text = page.read_text()
    assert text.count(mutating.TITLE) == 1
    assert "old" not in text
    assert "| not in 30 | |" in text
    assert text.endswith("\n\n## More\n\ntext\n")


def test_a_hunt_goes_on_where_it_was(tmp_path):
    """A mutation with a recorded result is not looked for again."""
    state = tmp_path / "state"
    mutation = mutating.MUTATIONS[0]
    state.write_text(json.dumps({json.dumps([*mutation, 7]): [3, "a rule"]}))
    assert mutating.hunt_all([mutation], 7, 1, state) == [(mutation, mutating.Found(3, "a rule"))]
