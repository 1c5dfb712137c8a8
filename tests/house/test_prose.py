"""Habits of prose that a regular expression can find: docstrings and comments of Python files, pages, and scenarios.

A sentence has a subject with a name. It does not begin with a headless "What …" or "Who …", and a machine is not called
"somebody". The rules are in CONTRIBUTING.md. The name of a test is a sentence, too.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

# Every file is read, which takes minutes on a machine that is busy with other work.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("cluster_bus", "persistence", "disque_py", "tests", "bin")
PAGES = ("*.md", "docs/**/*.md")
SCENARIOS = "tests/scenarios/*.txt"

# Where a sentence or a summary begins: a text, a paragraph, an item of a list, a cell, or behind a full stop.
START = r"(?:\A|\n\s*\n|(?:\A|\n) *(?:[-*|]|\d+\.) +|(?<=[a-z0-9`)\"][.!?]) +|(?<=[a-z0-9`)\"][.!?])\n *|\| +)\**"
MACHINE = (
    r"(?:node|client|server|consumer|producer|worker|reader|link|connection|process|machine|broker|disk|leader|holder|"
    r"sender|receiver|asker|giver|taker|peer|program|thread|disque|redis)s?"
)
HABITS = {
    "a headless sentence": re.compile(rf"{START}(?:What|Who|Whom|Whoever|Whatever|Whose|That which)\b(?![^.!?]*\?)"),
    "a machine called somebody": re.compile(r"\b(?:no|some|every)body\b(?:'s)?", re.IGNORECASE),
    "a machine called who": re.compile(rf"\b{MACHINE},? who(?:m|ever)?\b", re.IGNORECASE),
}
TEST_NAME = re.compile(r"^test_(?:what|who|whom|whoever|whatever)_|_(?:no|some|every)body(?:_|$)")

# A quick check of a whole file: without one of these words it has no finding.
CANDIDATE = re.compile(r"\b(?:what|who|whom|whose|whoever|whatever|that which)(?:\b|_)|body\b|body_", re.IGNORECASE)

# Sentences that may stay, by the words they contain: quotations, names, and people.
ALLOWED = (
    "What changed",  # The heading of the changelog, known from other projects.
    'a machine is not "somebody"',  # The rule itself.
    "people who",
    "programmers who",
    "operators who",
    "users who",
)

Finding = tuple[str, str, str]


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the prose of a file: a page without its code, or docstrings and blocks of comments; each with its line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".txt":
        for block in re.finditer(r"(?:^#.*\n)+", text, re.MULTILINE):
            yield text.count("\n", 0, block.start()) + 1, re.sub(r"^#+ ?", "", block[0], flags=re.MULTILINE)
        return
    if path.suffix == ".md":
        yield 1, re.sub(r"^```.*?^```$", blank, text, flags=re.DOTALL | re.MULTILINE)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring
    yield from comments_of(text)


def blank(match: re.Match[str]) -> str:
    """Return as many empty lines as the match has, so that line numbers stay right."""
    return "\n" * match[0].count("\n")


def comments_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield blocks of comments: consecutive lines make one text."""
    start, end, column, lines = 0, -1, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.string.lstrip("#").strip()
        if token.start == (end + 1, column):
            lines.append(line)
        else:
            yield start, "\n".join(lines)
            start, column, lines = token.start[0], token.start[1], [line]
        end = token.start[0]
    yield start, "\n".join(lines)


def habits_of(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line below the first, habit, words) for each finding in a text."""
    for habit, pattern in HABITS.items():
        for match in pattern.finditer(text):
            words = text[match.start() : match.end() + 60].strip(" \n|*-").split("\n\n")[0].replace("\n", " ")
            around = text[max(match.start() - 30, 0) : match.end() + 60].replace("\n", " ")
            if not any(allowed in around for allowed in ALLOWED):
                yield text.count("\n", 0, match.end()), habit, words[:80]


def findings_in(path: Path) -> Iterator[Finding]:
    """Yield (place, habit, words) for each finding in a file, including names of tests."""
    name = path.relative_to(ROOT).as_posix()
    if not CANDIDATE.search(path.read_text(encoding="utf-8")):
        return
    for first, text in texts_of(path):
        for below, habit, words in habits_of(text):
            yield f"{name}:{first + below}", habit, words
    if path.suffix == ".py" and name.startswith("tests/"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            called = re.match(r"\s*(?:async )?def (test_\w+)", line)
            if called and TEST_NAME.search(called[1]):
                yield f"{name}:{number}", "a name of a test", called[1]


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    """Return all findings in the checkout."""
    paths = [path for place in PLACES for path in (ROOT / place).rglob("*.py")]
    paths += [path for pattern in (*PAGES, SCENARIOS) for path in ROOT.glob(pattern)]
    return [found for path in sorted({*paths}) if path.name != "test_prose.py" for found in findings_in(path)]


def test_sentences_begin_with_a_named_subject(findings):
    """This checks every file of the checkout."""
    assert findings == []


def test_comments_of_scenarios_are_checked_too(tmp_path):
    """Each block of comments is a text. The conversation below it is not."""
    path = tmp_path / "story.txt"
    path.write_text("# A story.\n\n# One node\n# answers.\ncluster a b\n", encoding="utf-8")
    assert list(texts_of(path)) == [(1, "A story.\n"), (3, "One node\nanswers.\n")]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("What waits for its record goes on.", 1),
        ("The disk is full. Whoever waited hears so.", 1),
        ("* Who may come in", 1),
        ("| `a` | What it does |", 1),
        ("A node that nobody knows.", 1),
        ("The node who asks.", 1),
        ("What is a node?", 0),
        ("The line says what it is, and which node asked.", 0),
        ("e.g. What", 1),
        ("Replies wait (spec P1). The driver\nknows what to do.", 0),
    ],
)
def test_each_forbidden_habit_is_found(text, count):
    """Other sentences give no finding."""
    assert len(list(habits_of(text))) == count
