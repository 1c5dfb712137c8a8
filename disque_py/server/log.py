"""The server's log: few lines, never one per command.

A line is `<pid>:P <dd Mon HH:MM:SS.mmm> <level> <text>` with the level as one character, `.` debug, `-` verbose, `*`
notice, `#` warning (spec: disque/config.md, section 1). It goes to standard output or to a file, and to syslog if
asked. Everything logged by libraries through `logging` comes here too.

A log that can't be written (full disk, closed pipe) costs lines, never the server.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from disque_py.config.settings import Settings

DEBUG: Final = logging.DEBUG
VERBOSE: Final = 15  # Between logging's DEBUG and INFO.
NOTICE: Final = logging.INFO
WARNING: Final = logging.WARNING

LEVELS: Final = {"debug": DEBUG, "verbose": VERBOSE, "notice": NOTICE, "warning": WARNING}

TEXT_BYTES_MAX: Final = 1024

# Not strftime's %b: the log must not depend on the locale.
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

SYSLOG_ADDRESS: Final = "/dev/log"

_LOGGER: Final = logging.getLogger("disque")


class LineFormatter(logging.Formatter):
    """Lines as described in the module; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line, without its end."""
        now = time.localtime(record.created)
        moment = f"{now.tm_mday:02d} {MONTHS[now.tm_mon - 1]} {now.tm_hour:02d}:{now.tm_min:02d}:{now.tm_sec:02d}"
        line = f"{record.process}:P {moment}.{int(record.msecs):03d} {_character(record.levelno)} {_text(record)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class TextFormatter(logging.Formatter):
    """For syslog, which adds time, process and level itself."""

    def format(self, record: logging.LogRecord) -> str:
        """The text alone."""
        return _text(record)


class FollowedFile(logging.handlers.WatchedFileHandler):
    """A file that is opened anew when it was moved away, so that logrotate needs no signal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; if the file can't be opened again, the line is lost."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)


class Syslog(logging.handlers.SysLogHandler):
    """The local syslog daemon."""

    priority_map = {  # noqa: RUF012 - the attribute of the class in the standard library
        "DEBUG": "debug",
        "VERBOSE": "info",
        "INFO": "notice",
        "WARNING": "warning",
        "ERROR": "err",
        "CRITICAL": "crit",
    }


def open_log(settings: Settings) -> None:
    """Send the log where the settings say; may be called again. OSError if the file or syslog can't be opened."""
    handlers = [_main_handler(settings.logfile)]
    if settings.syslog_enabled:
        syslog = Syslog(SYSLOG_ADDRESS, settings.syslog_facility)
        syslog.ident = f"{settings.syslog_ident}: "
        syslog.setFormatter(TextFormatter())
        handlers.append(syslog)
    logging.addLevelName(VERBOSE, "VERBOSE")
    logging.raiseExceptions = False  # See the module: no complaint on standard error for each lost line.
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        root.addHandler(handler)
    set_level(settings.loglevel)


def set_level(loglevel: str) -> None:
    """Log lines of this level and those above; debug, verbose, notice or warning."""
    logging.getLogger().setLevel(LEVELS[loglevel])


def log(level: str, text: str) -> None:
    """One line; level is debug, verbose, notice or warning."""
    _LOGGER.log(LEVELS[level], "%s", text)


def log_mistake(text: str, error: BaseException) -> None:
    """One warning, and the traceback of an exception that should not have happened."""
    _LOGGER.warning("%s", text, exc_info=error)


def _main_handler(logfile: str) -> logging.Handler:
    handler: logging.Handler
    if logfile:
        handler = FollowedFile(logfile, encoding="utf-8", errors="backslashreplace")
    else:
        handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(LineFormatter())
    return handler


def _character(levelno: int) -> str:
    if levelno >= WARNING:
        return "#"
    if levelno >= NOTICE:
        return "*"
    return "-" if levelno >= VERBOSE else "."


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if len(text) * 4 <= TEXT_BYTES_MAX:
        return text
    return text.encode("utf-8", "backslashreplace")[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
