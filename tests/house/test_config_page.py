"""docs/config.md agrees with the table of directives."""

from __future__ import annotations

import re

import pytest

from disque_py.config.directives import DIRECTIVES
from rewrite_config_page import MARK, PAGE, in_step, tables, values_of


def test_the_page_is_in_step_with_the_table():
    """After a change of the table: python tests/house/rewrite_config_page.py."""
    text = PAGE.read_text(encoding="utf-8")
    assert MARK in text
    assert in_step(text) == text


def test_every_directive_has_one_line():
    """No directive is missing, and none is there twice."""
    listed = re.findall(r"^\| `([a-z-]+)`", tables(), re.MULTILINE)
    assert sorted(listed) == sorted(directive.name for directive in DIRECTIVES)


@pytest.mark.parametrize("directive", DIRECTIVES, ids=lambda directive: directive.name)
def test_every_kind_of_value_can_be_described(directive):
    """A new kind needs words in rewrite_config_page.VALUES."""
    assert values_of(directive.kind)


def test_no_secret_has_a_default():
    """Every reader of the page would know it."""
    assert [directive.name for directive in DIRECTIVES if directive.is_secret and directive.default] == []
