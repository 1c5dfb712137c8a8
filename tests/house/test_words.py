"""The project describes only itself: not the place where it was written, nor the tools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SKIPPED_FOLDERS = {
    ".git", ".venv", ".demo", ".compat", ".bounds", ".bounds-spark", ".spark", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis", ".import_linter_cache", "__pycache__", "build", "dist", "node_modules",
}  # fmt: skip
# Paths that exist on one machine only. /tmp, /var and /etc belong to every machine.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:home|root|Users|work|farm|opt/(?:dev|wheels|pypi))/\w")
# Each word has brackets, so that this file does not contain the words itself.
WORDS = re.compile(
    r"\b(?:c[l]aude|g[p]t|l[l]ms?|co[p]ilot|cha[t]bots?|(?:sub|a[i] |coding )[a]gents?)\b", re.IGNORECASE
)
UNFINISHED = re.compile(r"\b(?:T[O]DO|F[I]XME|X[X]X|H[A]CK|Not[I]mplementedError)\b")


def written_files(root: Path) -> list[Path]:
    """Return every text file, because text files are written by hand."""
    found = []
    for path in sorted(root.rglob("*")):
        folders = path.relative_to(root).parts
        if path.is_file() and not SKIPPED_FOLDERS & set(folders) and not any(f.endswith(".egg-info") for f in folders):
            found.append(path)
    assert found
    return found


@pytest.fixture(scope="module")
def lines(root):
    """Return (place, text) of every line in the checkout."""
    found = []
    for path in written_files(root):
        text = path.read_bytes()
        if b"\0" not in text[:4096]:
            numbered = enumerate(text.decode("utf-8").splitlines(), 1)
            found += [(f"{path.relative_to(root)}:{number}", line) for number, line in numbered]
    return found


def test_the_project_has_no_path_of_one_machine(lines):
    """A path that exists on one machine only is of no use elsewhere."""
    assert [place for place, line in lines if MACHINE_PATHS.search(line) and "test_words.py" not in place] == []


def test_the_project_does_not_mention_how_it_was_made(lines):
    """Readers want to know what the project does."""
    assert [place for place, line in lines if WORDS.search(line)] == []


def test_the_project_has_no_notes_about_later_work(lines):
    """Missing work belongs in an issue, not in the middle of a function."""
    code = (".py", ".sh", ".toml", "Makefile", "bin/", ".ci/")
    found = [place for place, line in lines if UNFINISHED.search(line) and any(word in place for word in code)]
    assert found == []
