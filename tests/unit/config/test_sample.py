"""The commented sample file."""

from __future__ import annotations

import re

from disque_py.config.conf_file import ConfigReader
from disque_py.config.directives import DIRECTIVES, NEVER
from disque_py.config.sample import render
from disque_py.config.settings import Settings


def directive_lines():
    return [line[1:] for line in render().splitlines() if re.match(r"#\S", line)]


def test_the_sample_as_delivered_changes_nothing():
    assert all(not line or line.startswith("#") for line in render().splitlines())


def test_every_line_with_its_mark_removed_is_accepted():
    lines = [line for line in directive_lines() if not line.startswith("include")]
    reader = ConfigReader(Settings(), "/", lambda path: "", lambda path: True)
    reader.read_text("\n".join(lines), "sample")
    reader.finish()


def test_lines_show_the_defaults_unless_they_are_examples():
    examples = {directive.name for directive in DIRECTIVES if directive.example} | {"include", "dir"}
    reader = ConfigReader(Settings(), "/", lambda path: "", lambda path: True)
    reader.read_text("\n".join(line for line in directive_lines() if line.split()[0] not in examples), "sample")
    reader.settings.dir = Settings().dir
    assert reader.settings.matching("*") == Settings().matching("*")


def test_every_directive_is_in_it():
    names = {line.split()[0] for line in directive_lines()}
    assert names == {directive.name for directive in DIRECTIVES if directive.rewriting != NEVER} | {"include"}
