"""docs/tasks.md has a row for each option of tasks and of disque-worker, and mentions each name of the package."""

from __future__ import annotations

import re

import pytest

from disque_py import tasks
from disque_py.tasks.command import main
from disque_py.tasks.options import NAMES


@pytest.fixture(scope="module")
def page(root):
    """The page."""
    return (root / "docs/tasks.md").read_text(encoding="utf-8")


def rows(page, title):
    """Return the names in the first cells of the tables of a section."""
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(.+?)`", cell)}


def test_each_option_of_a_task_has_a_row(page):
    """The option `batch` needs none, because only groups set it."""
    both = set(tasks.TaskOptions.__annotations__) | NAMES
    assert rows(page, "Options") - {"@app.task"} == both - {"batch"}


def test_each_option_of_the_program_has_a_row(page):
    words = {word for option in main.params for word in (*option.opts, *option.secondary_opts) if word.startswith("-")}
    shown = {name.split()[0] for name in rows(page, "Workers")}
    assert shown == words - {"--version"}


def test_each_public_name_is_in_the_guide_or_the_reference(page, root):
    text = page + (root / "docs/api.md").read_text(encoding="utf-8")
    assert [name for name in tasks.__all__ if not re.search(rf"\b{name}\b", text)] == []
