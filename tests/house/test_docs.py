"""The documents are in step with the tables and with each other."""

from __future__ import annotations

import re

import pytest

from disque_py.commands.table import COMMANDS
from rewrite_docs import categories_in_step, commands_of_help, help_of_table, overview_in_step, reference_in_step

DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/commands.md", "docs/glossary.md")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")
NAMES = sorted(command.name.upper() for command in COMMANDS)


def test_every_command_has_its_line_in_the_overview(root):
    """The table at the head of the reference is complete."""
    text = (root / "docs/commands.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[`([A-Z]+)`\]\(#[a-z]+\) \|", text, re.MULTILINE)) == NAMES


def test_every_command_has_its_section_in_the_reference(root):
    """Every section belongs to a command."""
    headings = re.findall(r"^### (\S+)$", (root / "docs/commands.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == NAMES


@pytest.mark.parametrize("in_step", [overview_in_step, reference_in_step])
def test_the_reference_says_the_same_as_help(root, in_step):
    """Summaries and syntax are equal, word by word. `python tests/house/rewrite_docs.py` brings them into step."""
    text = (root / "docs/commands.md").read_text(encoding="utf-8")
    assert in_step(text, commands_of_help()) == text


def test_the_page_of_errors_names_each_command_that_a_full_memory_refuses(root):
    """A program that sends one of these commands has to expect -OOM."""
    page = (root / "docs/protocol.md").read_text(encoding="utf-8")
    [row] = re.findall(r"^\| `OOM` \| (.*?) \|", page, re.MULTILINE)
    refused = {command.name.upper() for command in COMMANDS if "denyoom" in command.flags}
    assert refused <= set(re.findall(r"\b[A-Z]+\b", row))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_to_files(root, name):
    """A reader can follow every link to a file of the project."""
    path = root / name
    targets = LINK.findall(path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_every_document_is_reachable_from_the_readme(root):
    """Readers can't find a page without a link to it."""
    readme = root / "README.md"
    seen, waiting = set(), [readme]
    while waiting:
        path = waiting.pop()
        if path in seen or path.suffix != ".md" or not path.exists():
            continue
        seen.add(path)
        waiting += [(path.parent / target).resolve() for target in LINK.findall(path.read_text(encoding="utf-8"))]
    assert [path.name for path in (root / "docs").glob("*.md") if path not in seen] == []


def test_every_word_of_make_is_explained(root):
    """CONTRIBUTING names all targets of the Makefile."""
    targets = re.findall(r"^([a-z]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    told = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [target for target in targets if f"`make {target}`" not in told] == []


def test_the_help_of_the_client_is_the_table_of_the_server() -> None:
    """disque-cli may not import the server's packages, so it has a copy of the table. The copy must be equal."""
    assert commands_of_help() == help_of_table()


def test_the_page_of_users_has_the_categories_of_the_table(root):
    text = (root / "docs/users.md").read_text(encoding="utf-8")
    assert "`addjob`" in text
    assert categories_in_step(text) == text


def test_every_place_for_figures_has_a_table(root):
    """After a run of a new benchmark: python tests/benchmarks/document.py <results file>."""
    text = (root / "docs/performance.md").read_text(encoding="utf-8")
    places = re.findall(r"^<!-- figures: (\S+) -->\n(.*?)<!-- end -->$", text, re.DOTALL | re.MULTILINE)
    assert places
    assert [name for name, table in places if len(re.findall(r"^\|", table, re.MULTILINE)) < 3] == []
