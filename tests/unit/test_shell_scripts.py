"""Scripts for TAB completion: one of each shell for each program."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from disque_py.shell_scripts import SHELLS, completion_option, completion_script, is_plain


@click.command()
@click.argument("word")
@completion_option("disque-x")
def program(word):
    raise AssertionError("the option ends the program")


@pytest.mark.parametrize("shell", SHELLS)
def test_an_option_prints_the_script_without_the_words_that_the_program_needs(shell):
    result = CliRunner().invoke(program, ["--completion", shell])
    assert (result.exit_code, result.output.strip()) == (0, completion_script(program, "disque-x", shell).strip())
    assert f"_DISQUE_X_COMPLETE={shell}_complete" in result.output


def test_another_shell_is_refused_with_the_names_of_those_that_work():
    result = CliRunner().invoke(program, ["--completion", "tcsh"])
    assert result.exit_code == 2
    assert all(shell in result.output for shell in SHELLS)


def test_tab_after_the_option_prints_no_script():
    """Then click parses the line so far, to complete it."""
    words = {"COMP_WORDS": "disque-x --completion bash ", "COMP_CWORD": "3", "_DISQUE_X_COMPLETE": "bash_complete"}
    result = CliRunner().invoke(program, [], prog_name="disque-x", env=words)
    assert "_complete" not in result.output


@pytest.mark.parametrize("name", ["mail", "user:key:1", "a.b/c@d", "größe"])
def test_an_ordinary_name_is_plain(name):
    assert is_plain(name)


@pytest.mark.parametrize("name", ["$(reboot)", "a b", "a;b", "`x`", "*", "~", "{a,b}", "=ls", "a\n", "\x1b[2J", ""])
def test_a_name_that_a_shell_would_change_or_execute_is_not(name):
    assert not is_plain(name)
