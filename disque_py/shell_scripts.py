"""Scripts for TAB completion, which command line programs print for a shell.

A program has a command `completion SHELL`, or an option `--completion SHELL` if it has no other commands. disque-cli
completes words of the broker, so it has scripts of its own (cli/shell/shell_completion.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

SHELLS: Final = ("bash", "zsh", "fish")
_PLAIN: Final = re.compile(r"[\w%+,./:@-]+")

F = TypeVar("F", bound=Callable[..., Any])


def is_plain(name: str) -> bool:
    """Return whether a name is an ordinary word for every shell.

    Names of queues are chosen by producers, and bash inserts a completion into the line as it is. A queue named
    `$(reboot)` would be a command there.
    """
    return _PLAIN.fullmatch(name) is not None


def completion_script(command: click.Command, program: str, shell: str) -> str:
    """Return the script that makes TAB complete the program in a shell of SHELLS."""
    from click.shell_completion import get_completion_class  # disque-query starts faster without it.

    complete = get_completion_class(shell)
    assert complete is not None
    return complete(command, {}, program, f"_{program.replace('-', '_').upper()}_COMPLETE").source()


def completion_option(program: str) -> Callable[[F], F]:
    """Return a decorator that adds `--completion SHELL` to a command. It prints the script and ends the program."""

    def show(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(completion_script(ctx.command, program, value))
            ctx.exit()

    return click.option(
        "--completion",
        type=click.Choice(SHELLS),
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print a script for TAB completion, and exit.",
    )
