"""Settings effects: changed directives that must be put into effect on the process.

Most directives are read at each use and need nothing here. If an effect fails, the caller restores the old value
(`Settings.restore`) and replies with the error's text, which is a whole reply.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from disque_py.config.settings import DirectiveError
from disque_py.server import log
from disque_py.server.process import raise_file_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.config.settings import Settings

# Two periods of the loop's housekeeping: a shorter watchdog would report a healthy loop.
WATCHDOG_PERIOD_MS_MIN: Final = 200


def apply(name: str, settings: Settings) -> None:
    """Put the directive's value into effect. DirectiveError."""
    effect = EFFECTS.get(name.lower())
    if effect is not None:
        effect(settings)


def change_directory(settings: Settings) -> None:
    """Change to `dir`, relative to the present directory. Afterwards the setting is absolute."""
    try:
        os.chdir(settings.dir)
    except OSError as error:
        raise DirectiveError(f"ERR Changing directory: {error.strerror}") from None
    settings.dir = os.getcwd()


def _change_loglevel(settings: Settings) -> None:
    log.set_level(settings.loglevel)


def _change_log_format(settings: Settings) -> None:
    log.set_format(settings.log_format)


def _change_maxclients(settings: Settings) -> None:
    possible = raise_file_limit(settings.maxclients)
    if possible < settings.maxclients:
        raise DirectiveError(
            "ERR The operating system is not able to handle the specified number of clients,"
            f" try with {max(possible, 0)}"
        )


def _change_watchdog_period(settings: Settings) -> None:
    if settings.watchdog_period:
        settings.watchdog_period = max(settings.watchdog_period, WATCHDOG_PERIOD_MS_MIN)


EFFECTS: Final[dict[str, Callable[[Settings], None]]] = {
    "dir": change_directory,
    "log-format": _change_log_format,
    "loglevel": _change_loglevel,
    "maxclients": _change_maxclients,
    "watchdog-period": _change_watchdog_period,
}
