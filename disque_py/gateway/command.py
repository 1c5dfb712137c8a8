"""disque-gateway: the command line.

    disque-gateway                                    # the node 127.0.0.1:7711, on 127.0.0.1:8711
    disque-gateway gateway.conf --listen 10.0.0.5:8711
    disque-gateway --new-token billing --grant produce:mail-* --days 90

Exit status: 0 ended by a signal, 1 can't listen or the extra `[gateway]` is missing, 2 bad usage.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from disque_py import __version__
from disque_py.gateway.logins.access_file import new_secret, token_entry
from disque_py.gateway.settings import ENVIRONMENT, TABLE, Settings, read_settings
from disque_py.gateway.variables import unknown_variables
from disque_py.program_commands import ProgramCommand
from disque_py.shell_scripts import completion_option

PROGRAM: Final = "disque-gateway"


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command an option for each setting."""
    for setting in reversed(TABLE):
        shown = f"  [default: {setting.default}]" if setting.default else ""
        command = click.option(
            f"--{setting.name}",
            setting.field,
            metavar="VALUE",
            help=f"{setting.help[:1].upper()}{setting.help[1:]}.{shown}",
        )(command)
    return command


@click.command(cls=ProgramCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message=f"{PROGRAM} %(version)s")
@click.argument("conf", required=False, type=click.Path(exists=True, dir_okay=False))
@_with_settings
@click.option("--new-token", metavar="NAME", help="Print a new token and its entry for the access file, and exit.")
@click.option("--grant", multiple=True, metavar="ROLE[:PATTERN]", help="With --new-token: a grant; may be repeated.")
@click.option(
    "--days", type=click.IntRange(1, 36_500), help="With --new-token: days until it expires.  [default: never]"
)
@completion_option(PROGRAM)
def main(conf: str | None, new_token: str | None, grant: tuple[str, ...], days: int | None, **words: Any) -> None:
    """Serve a cluster over HTTP and gRPC, with a console.

    CONF is a file of settings, one per line: `name value`. Each setting can also be an environment variable, for
    example DISQUE_GATEWAY_LISTEN. An environment variable wins over the file, and an option wins over both.
    """
    if new_token is not None:
        _print_token(new_token, grant, days)
        return
    if grant or days:
        raise click.UsageError("--grant and --days need --new-token")
    by_field = {setting.field: setting.name for setting in TABLE}
    options = {by_field[field]: value for field, value in words.items() if value is not None}
    try:
        settings = read_settings(conf, options)
    except (OSError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    _serve(settings)


def _print_token(name: str, grants: tuple[str, ...], days: int | None) -> None:
    secret = new_secret()
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days else None
    try:
        entry = token_entry(name, secret, list(grants), expires)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"# The token, shown once: {secret}\n# Its entry for the access file:\n{entry}", nl=False)


def _serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for warning in unknown_variables(os.environ, ENVIRONMENT, [setting.variable for setting in TABLE]):
        logging.warning(warning)
    try:
        from disque_py.gateway.server import StartError, serve
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'disque-py[gateway]'") from error
    try:
        serve(settings)
    except StartError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name=PROGRAM)
