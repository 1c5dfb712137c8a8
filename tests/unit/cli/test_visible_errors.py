"""cli/visible_errors.py: errors of programs on a terminal."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from disque_py.cli.visible_errors import VisibleErrors


def refuse() -> None:
    raise click.ClickException("no queue '\x1b[2Jmail'\nlook at the list")


def misuse() -> None:
    raise click.UsageError("no option of that name")


@pytest.mark.parametrize(
    ("function", "status", "said"),
    [(refuse, 1, "Error: no queue '\\x1b[2Jmail'\nlook at the list\n"), (misuse, 2, "no option of that name")],
)
def test_an_error_shows_what_a_terminal_would_obey(function, status, said):
    """Line ends stay, and so does the status of click for a wrong command line."""
    group = VisibleErrors("program", commands=[click.Command("try", callback=function)])
    result = CliRunner().invoke(group, ["try"])
    assert result.exit_code == status
    assert said in result.output
