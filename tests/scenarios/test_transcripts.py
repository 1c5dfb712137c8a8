"""Conversations of the cluster, as text. After a change of the rules: pytest tests/scenarios --rewrite, and review."""

from __future__ import annotations

from pathlib import Path

import pytest

from transcript import perform, stories

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("path", stories(FOLDER), ids=lambda path: path.stem)
def test_a_conversation_has_the_stored_transcript(path, request):
    """The messages of nodes and the replies to clients are those of the file."""
    written = path.read_text(encoding="utf-8")
    told = perform(written)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(told, encoding="utf-8")
    else:
        assert told.split("\n") == written.split("\n")


def test_two_runs_of_a_story_have_the_same_transcript():
    """A scenario has no random choices."""
    text = (FOLDER / "replication.txt").read_text(encoding="utf-8")
    assert perform(text) == perform(text)
