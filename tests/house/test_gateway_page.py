"""docs/gateway.md and the table of operations agree."""

from __future__ import annotations

import re

from disque_py.gateway.command import main
from disque_py.gateway.operations import TABLE
from rewrite_gateway_page import MARK, PAGE, ROOT, in_step


def test_the_page_is_in_step_with_the_tables():
    """After a change of a table: python tests/house/rewrite_gateway_page.py."""
    text = PAGE.read_text(encoding="utf-8")
    assert MARK in text
    assert in_step(text) == text


def test_the_examples_name_operations_that_exist():
    """Each path in an example is in the table."""
    text = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    paths = {re.sub(r"\{\w+\}", "[^/ ?']+", row.path) for row in TABLE}
    used = re.findall(r"localhost:8711(/v1/[^ ?'\"\n]*)", text)
    assert used
    assert [path for path in used if not any(re.fullmatch(pattern, path) for pattern in paths)] == []


def test_options_of_the_examples_exist():
    """This includes the options in the systemd unit."""
    texts = [
        PAGE.read_text(encoding="utf-8"),
        (ROOT / "packaging/systemd/disque-gateway.service").read_text(encoding="utf-8"),
    ]
    known = {opt for param in main.params for opt in param.opts}
    used = {
        word
        for text in texts
        for line in re.findall(r"disque-gateway (.+)$", text, re.MULTILINE)
        for word in re.findall(r"--[a-z-]+", line)
    }
    assert used - known == set()
