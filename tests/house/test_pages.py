"""Everything that the pages name exists: files, headings, directives in examples, figures to watch."""

from __future__ import annotations

import re

import pytest

from disque_py.config.directives import BY_NAME
from rewrite_docs import ROOT

PAGES = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def anchors_of(text: str) -> set[str]:
    """Return the anchors of all headings: lower case, no punctuation, dashes for blanks."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page):
    """This includes links from one page to a heading of another."""
    missing = []
    for target, anchor in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors_of(path.read_text(encoding="utf-8"))):
            missing.append(f"{target}#{anchor}")
    assert missing == []


@pytest.mark.parametrize("name", ["systemd/disque-server@.service", "image/Dockerfile"])
def test_examples_use_directives_that_exist(root, name):
    """A node with a misspelled directive does not start."""
    lines = (root / "packaging" / name).read_text(encoding="utf-8").splitlines()
    used = [
        word
        for line in lines
        if "ExecStart" in line or "docker run" in line
        for word in re.findall(r"(?<=--)[a-z-]+", line)
        if word not in ("test-config", "read-only", "tmpfs")  # The last two are options of docker.
    ]
    assert used or name == "image/Dockerfile"
    assert [word for word in used if word not in BY_NAME] == []


def test_figures_to_watch_are_explained(root):
    """Each field in the table of operations.md is in info.md."""
    operations = (root / "docs/operations.md").read_text(encoding="utf-8")
    section = operations.partition("\n## Monitoring\n")[2].partition("\n## ")[0]
    fields = {
        field
        for row in re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
        for field in re.findall(r"`([a-z_-]+)`", row)
    }
    info = (root / "docs/info.md").read_text(encoding="utf-8")
    assert len(fields) > 20
    assert [field for field in sorted(fields) if f"`{field}`" not in info] == []


def test_every_design_note_is_listed(root):
    """The table of notes has it, so that readers find it."""
    text = (root / "docs/design/index.md").read_text(encoding="utf-8")
    assert [note.name for note in (root / "docs/design").glob("[0-9]*.md") if f"]({note.name})" not in text] == []


def test_every_design_note_has_a_number_of_its_own(root):
    """A note is cited by its number, and its heading begins with it."""
    notes = sorted((root / "docs/design").glob("[0-9]*.md"))
    numbers = [int(note.name[:4]) for note in notes]
    assert numbers == sorted(set(numbers))
    assert [n.name for n in notes if not n.read_text(encoding="utf-8").startswith(f"# {n.name[:4]} ")] == []
