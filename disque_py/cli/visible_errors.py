"""A click group whose error messages may repeat names of queues and words of nodes."""

from __future__ import annotations

from typing import Any

import click

from disque_py.cli.visible import visible_lines
from disque_py.program_commands import ProgramGroup


class VisibleErrors(ProgramGroup):
    """A group of commands. In its errors, characters that a terminal would obey are escapes.

    A program overrides `run`, and raises click's errors there.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return self.run(ctx)
        except click.UsageError:
            raise  # click quotes the words of the command line itself.
        except click.ClickException as error:
            raise click.ClickException(visible_lines(error.message)) from error

    def run(self, ctx: click.Context) -> Any:
        """Run the command that was named, as click does."""
        return super().invoke(ctx)
