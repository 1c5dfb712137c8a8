"""Citations resolve: comments, tests and pages cite rules of docs/spec, and each rule has a test that cites it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs/spec"
HEADING = re.compile(r"^## ([A-Z]{1,2}\d+)\. \S", re.MULTILINE)
# `spec A3, A4`; a comment may break a list of rules between two lines.
BREAK = r"(?: |[ ]?\n[ ]*(?:#[ ])?)"
CITATION = re.compile(rf"\b[Ss]pec{BREAK}([A-Z]{{1,2}}\d+\b(?:,{BREAK}[A-Z]{{1,2}}\d+\b)*)")
NUMBER = re.compile(r"[A-Z]{1,2}\d+")
# A test may be named after defects: test_q02_q23_….
NAMED = re.compile(r"\bdef test_((?:q\d+_)+)")
# Pages outside this repository, and numbers without a page.
OUTSIDE = re.compile(
    r"\b(?:semantics|queues|quirks|claims|flows|doors|pipeline|jobs-and-queues)\.md"
    r"|\bdisque/[a-z-]+\.md|\bspec/disque\b|\b[Qq]uirks,?\s+(?:Q\d|section)|(?:\(|\.md,\s)sections? \d"
    r"|\b(?<!Disque's )README(?: FAQ)?,? \"|# README, "
    r"|(?<![\w`\"'=/-])Q\d{1,2}(?=[:)])"
)
PLACES = ("cluster_bus", "persistence", "disque_py", "tests", "docs", "bin", "conf")
ENDINGS = (".py", ".md", ".txt", ".conf", ".toml")


def _files() -> list[Path]:
    """Return the files that may cite a rule, except this one."""
    inside = [path for place in PLACES for path in (ROOT / place).rglob("*")]
    found = [path for path in (*ROOT.glob("*"), *inside) if path.suffix in ENDINGS and path.is_file()]
    return sorted(path for path in found if path != Path(__file__).resolve())


def cited(text: str) -> set[str]:
    """Return the numbers of all rules that a text cites."""
    return {number for found in CITATION.finditer(text) for number in NUMBER.findall(found[1])}


def test_each_rule_has_a_number_of_its_own():
    """Its page is named in the index."""
    index = (SPEC / "README.md").read_text(encoding="utf-8")
    prefixes = dict(re.findall(r"^\| ([A-Z]{1,2}) \| \[[^]]+\]\(([a-z-]+\.md)\) \|$", index, re.MULTILINE))
    numbers = [
        (number, path.name) for path in sorted(SPEC.glob("*.md")) for number in HEADING.findall(path.read_text("utf-8"))
    ]
    assert len({number for number, _ in numbers}) == len(numbers)
    assert [(number, name) for number, name in numbers if prefixes.get(number.rstrip("0123456789")) != name] == []


def test_citations_lead_to_rules():
    """Each number that is cited is a heading of docs/spec."""
    rules = _rules()
    wrong = [
        f"{path.relative_to(ROOT)}: {number}"
        for path in _files()
        for number in sorted(cited(path.read_text(encoding="utf-8")) - rules)
    ]
    assert wrong == []


def test_no_page_outside_the_repository_is_cited():
    """A reader must be able to look up what a comment relies on."""
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in _files()
        for found in OUTSIDE.finditer(CITATION.sub("", path.read_text(encoding="utf-8")))
    ]
    assert wrong == []


def test_each_rule_is_cited_by_a_test():
    """The citation may be in a docstring, in a comment of a transcript, or in the name of a test."""
    shown: set[str] = set()
    for path in _files():
        parts = path.relative_to(ROOT).parts
        if "tests" in parts and "house" not in parts:
            text = path.read_text(encoding="utf-8")
            shown |= cited(text)
            for names in NAMED.findall(text):
                shown |= {f"Q{int(number)}" for number in re.findall(r"q(\d+)_", names)}
    assert sorted(_rules() - shown) == []


def _rules() -> set[str]:
    return {number for path in SPEC.glob("*.md") for number in HEADING.findall(path.read_text(encoding="utf-8"))}
