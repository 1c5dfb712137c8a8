"""The log: docs/logs.md agrees with the table, and the code uses all of its messages and no others."""

from __future__ import annotations

import ast
import re

import pytest

from disque_py.log_lines import MESSAGES, SECTIONS
from rewrite_logs_page import MARK, PAGE, in_step

SAYING = {"line", "tell", "note"}
# Programs and libraries that don't write a node's log.
OTHERS = tuple(
    f"disque_py/{folder}/"
    for folder in ("client", "cli", "gateway", "integrations", "spark", "simulator", "tasks", "testing")
)
LEVELS = {"debug", "verbose", "notice", "warning"}


def said(modules):
    """Return (place, name) of each message that the code logs."""
    return [
        (f"{module.name}:{call.lineno}", word.value)
        for module in modules
        if not module.name.startswith(OTHERS)
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call) and name_of(call.func) in SAYING
        for argument in call.args[:2]
        for word in ast.walk(argument)
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    ]


def name_of(called):
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def test_the_page_is_in_step_with_the_table():
    """After a change of the table: python tests/house/rewrite_logs_page.py."""
    text = PAGE.read_text(encoding="utf-8")
    assert MARK in text
    assert in_step(text) == text


def test_every_message_has_one_entry():
    listed = [message.name for section in SECTIONS for message in section.messages]
    assert sorted(listed) == sorted(MESSAGES)


def test_the_code_says_what_is_in_the_table_and_nothing_else(modules):
    assert [(where, name) for where, name in said(modules) if name not in MESSAGES] == []


def test_every_message_of_the_table_is_said(modules):
    words = {
        node.value
        for module in modules
        if module.name != "disque_py/log_lines.py"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert sorted(MESSAGES.keys() - words) == []


def test_nothing_is_logged_beside_the_table(modules):
    """A literal text in a call of log or notice would be in no table."""
    found = [
        f"{module.name}:{call.lineno}"
        for module in modules
        if not module.name.startswith(OTHERS)
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call) and name_of(call.func) in {"log", "_log", "_notice"}
        if call.args and isinstance(call.args[-1], ast.Constant | ast.JoinedStr)
        if not module.name.startswith("cluster_bus/")  # Messages of the bus are logged under `bus`.
    ]
    assert found == []


@pytest.mark.parametrize("message", MESSAGES.values(), ids=lambda message: message.name)
def test_a_message_says_what_it_means_and_what_to_do(message):
    assert re.fullmatch(r"[a-z][a-z-]*", message.name)
    assert message.level in LEVELS
    assert message.meaning.endswith(".")
    assert message.advice.endswith(".")
