"""Advice for an option of a connection that stands behind the command, where click does not know it."""

from __future__ import annotations

import click


def with_place(error: click.NoSuchOption, group: click.Group) -> click.NoSuchOption:
    """Return the error with the place of the option, if it is one of the program itself."""
    own = [name for param in group.params if isinstance(param, click.Option) for name in param.opts]
    if error.option_name not in own or error.ctx is None:
        return error
    words = error.ctx.command_path.split()
    advice = f"Put it before the command: {words[0]} {error.option_name} … {' '.join(words[1:])}"
    return click.NoSuchOption(error.option_name, f"{error.message.rstrip('.')}. {advice}", ctx=error.ctx)
