"""Helpers for the commands disque-pipeline and disque-query: pairs, one-sentence errors, completion by TAB.

disque-query answers in less time than most imports take. So this module imports only click.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


class FailureError(click.ClickException):
    """An expected error: the program's name and one sentence, without Spark's pages around it. Exit status 1."""

    def __init__(self, program: str, text: str) -> None:
        super().__init__(text)
        self.program = program

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentence to stderr, or to `file`."""
        click.echo(f"{self.program}: {self.message}", file=file, err=file is None)


def read_pairs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """Return the values NAME=VALUE of an option by name; click's usage error for a text without `=`."""
    pairs = {}
    for text in value:
        name, equals, setting = text.partition("=")
        if not equals:
            raise click.BadParameter(f"'{text}' is not NAME=VALUE; write the name, = and the value", ctx, param)
        pairs[name] = setting
    return pairs


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let TAB complete folders. The option also takes URIs, so it can't be a click.Path, which looks for a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let TAB complete files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]
