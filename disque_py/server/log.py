"""The server's log: few lines, never one per command.

A line is `<pid>:P <dd Mon YYYY HH:MM:SS.mmm +ZZZZ> <level> <text>`. The level is one character: `.` debug, `-` verbose,
`*` notice, `#` warning (spec D6; year and zone are ours). With `log-format json` a line is an object. Lines go to
standard output or to a file, and to syslog if asked. Lines that libraries log through `logging` come here, too.

The messages are those of log_lines.py. Of each message, LINES_MAX lines are written in SPAN_SECONDS. Further ones are
counted, and a line tells their number (`flush`, once a second).

When a fatal signal ends the process, the stacks of all threads follow in the same place (`report_crashes`).

A log that can't be written (full disk, closed pipe, a reader that stalls) costs lines, never the server.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import logging.handlers
import os
import select
import stat
import sys
import time
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final, TextIO

from disque_py.log_lines import LINES_MAX, SPAN_SECONDS, Line, Value, line

if TYPE_CHECKING:
    from disque_py.config.settings import Settings

DEBUG: Final = logging.DEBUG
VERBOSE: Final = 15  # Between logging's DEBUG and INFO.
NOTICE: Final = logging.INFO
WARNING: Final = logging.WARNING

LEVELS: Final = {"debug": DEBUG, "verbose": VERBOSE, "notice": NOTICE, "warning": WARNING}

TEXT_BYTES_MAX: Final = 1024

# strftime's %b would make the log depend on the locale.
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

SYSLOG_ADDRESS: Final = "/dev/log"

_LOGGER: Final = logging.getLogger("disque")


class LineFormatter(logging.Formatter):
    """A formatter for lines as the module describes them. A traceback follows on further lines."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line, without its end."""
        now = time.localtime(record.created)
        day = f"{now.tm_mday:02d} {MONTHS[now.tm_mon - 1]} {now.tm_year:04d}"
        clock = f"{now.tm_hour:02d}:{now.tm_min:02d}:{now.tm_sec:02d}.{int(record.msecs):03d} {_zone(now)}"
        line = f"{record.process}:P {day} {clock} {_character(record.levelno)} {_text(record)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """A formatter for one JSON object per line: time, pid, level, message, text, fields, and perhaps a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line, without its end."""
        now = time.localtime(record.created)
        zone = _zone(now)
        text = record.args[0] if isinstance(record.args, tuple) and record.args else None
        said: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', now)}.{int(record.msecs):03d}{zone[:3]}:{zone[3:]}",
            "pid": record.process,
            "level": _name(record.levelno),
            "message": text.name if isinstance(text, Line) else "other",
            "text": _text(record),
            "fields": {key: _cut_field(value) for key, value in text.fields.items()} if isinstance(text, Line) else {},
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said)


class TextFormatter(logging.Formatter):
    """A formatter for syslog, which adds time, process and level itself."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text alone."""
        return _text(record)


class Limiter:
    """A limiter that counts the lines of each message, so that a flood of them stays short."""

    def __init__(self) -> None:
        # Message -> (when its span began, lines in it, lines left out).
        self._spans: dict[str, list[float]] = {}

    def allows(self, name: str, now_s: float) -> bool:
        """Return whether a line of this message may be written now. Count it if not."""
        span = self._spans.get(name)
        if span is None:
            self._spans[name] = [now_s, 1, 0]
            return True
        if span[1] < LINES_MAX:
            span[1] += 1
            return True
        span[2] += 1
        return False

    def over(self, now_s: float) -> list[tuple[str, int]]:
        """Return the messages whose span is over and that were left out, and how often."""
        ended = [name for name, span in self._spans.items() if now_s - span[0] >= SPAN_SECONDS]
        spans = [(name, int(self._spans.pop(name)[2])) for name in ended]
        return [(name, count) for name, count in spans if count]


class FollowedFile(logging.handlers.WatchedFileHandler):
    """A log file that is opened anew when it was moved away, so that logrotate needs no signal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record. If the file can't be opened again, the line is lost."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)


class CrashReports:
    """The stacks of all threads, which go to the log when a fatal signal ends the process.

    Their descriptor is their own, because that of a log file is closed when the file was moved away. Its number may
    then belong to another file.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._descriptor = -1

    def go_to(self, stream: TextIO) -> None:
        """Write them to this stream from now on. If that is impossible, there are none."""
        if not self.is_on:
            return
        try:
            descriptor = os.dup(stream.fileno())
        except (OSError, ValueError):
            return
        faulthandler.enable(descriptor)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor


class MainFile(FollowedFile):
    """The file of the log."""

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        _CRASH_REPORTS.go_to(stream)
        return stream


class StandardOutput(logging.StreamHandler[TextIO]):
    """Standard output. If it is a pipe or a socket, and its reader takes nothing, lines are lost.

    Otherwise a container's log driver that stalls, or a pager, would stop the node. The descriptor stays blocking,
    because other processes may share it.
    """

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self._ready = _ready(sys.stdout)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as far as that needs no waiting."""
        if self._ready is None:
            super().emit(record)
            return
        try:
            data = f"{self.format(record)}{self.terminator}".encode("utf-8", "backslashreplace")
            for at in range(0, len(data), select.PIPE_BUF):
                if not self._ready.poll(0):
                    return
                os.write(self.stream.fileno(), data[at : at + select.PIPE_BUF])
        except Exception:  # As in every handler: a record of a library may have arguments that don't fit.
            self.handleError(record)


class Syslog(logging.handlers.SysLogHandler):
    """The local syslog daemon. If it takes nothing, lines are lost."""

    priority_map = {  # noqa: RUF012 - the attribute of the class in the standard library
        "DEBUG": "debug",
        "VERBOSE": "info",
        "INFO": "notice",
        "WARNING": "warning",
        "ERROR": "err",
        "CRITICAL": "crit",
    }

    def _connect_unixsocket(self, address: str) -> None:
        super()._connect_unixsocket(address)  # type: ignore[misc]  # There is no public hook for a new socket.
        self.socket.setblocking(False)  # type: ignore[attr-defined]  # typeshed does not know it.


_LIMITER: Final = Limiter()
_CRASH_REPORTS: Final = CrashReports()


def open_log(settings: Settings) -> None:
    """Open the log as the settings say. May be called again. OSError if the file or syslog can't be opened."""
    handlers = [_main_handler(settings.logfile)]
    if settings.syslog_enabled:
        syslog = Syslog(SYSLOG_ADDRESS, settings.syslog_facility)
        syslog.ident = f"{settings.syslog_ident}: "
        syslog.setFormatter(TextFormatter())
        handlers.append(syslog)
    logging.addLevelName(VERBOSE, "VERBOSE")
    logging.raiseExceptions = False  # `logging` must not report a lost line on standard error (see the module).
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        root.addHandler(handler)
    set_format(settings.log_format)
    set_level(settings.loglevel)


def report_crashes() -> None:
    """From now on, write the stacks of all threads to the open log when a fatal signal ends the process."""
    _CRASH_REPORTS.is_on = True
    for handler in logging.getLogger().handlers:
        if isinstance(handler, MainFile | StandardOutput) and handler.stream is not None:
            _CRASH_REPORTS.go_to(handler.stream)


def set_level(loglevel: str) -> None:
    """Log lines of this level and above: debug, verbose, notice or warning."""
    logging.getLogger().setLevel(LEVELS[loglevel])


def set_format(log_format: str) -> None:
    """Write lines to the file or standard output as text or as json. Syslog gets the text alone."""
    for handler in logging.getLogger().handlers:
        if not isinstance(handler, Syslog):
            handler.setFormatter(JsonFormatter() if log_format == "json" else LineFormatter())


def is_logged(number: int) -> bool:
    """Return whether lines of this level are written. If not, a caller need not make a frequent line."""
    return _LOGGER.isEnabledFor(number)


def log(level: str, text: str) -> None:
    """Write one line. Levels are debug, verbose, notice and warning. A line of the table brings its own level."""
    number = LEVELS[text.level if isinstance(text, Line) else level]
    if not _LOGGER.isEnabledFor(number):
        return
    if isinstance(text, Line) and not _LIMITER.allows(text.name, time.monotonic()):
        return
    _LOGGER.log(number, "%s", text)


def write(text: str) -> None:
    """Write one line, a notice unless the table says otherwise."""
    log("notice", text)


def tell(name: str, **fields: Value) -> None:
    """Write one line of the table."""
    write(line(name, **fields))


def flush() -> None:
    """Log how many lines of each message were left out, for the messages whose span is over."""
    for name, count in _LIMITER.over(time.monotonic()):
        tell("suppressed", message=name, count=count, seconds=SPAN_SECONDS)


def log_mistake(error: BaseException, *, consequence: str, context: str) -> None:
    """Log a warning with the traceback of an exception that should not have happened."""
    _LOGGER.warning("%s", line("mistake", consequence=consequence, context=context), exc_info=error)


def _main_handler(logfile: str) -> logging.Handler:
    handler: logging.Handler
    if logfile:
        handler = MainFile(logfile, encoding="utf-8", errors="backslashreplace")
    else:
        handler = StandardOutput()
    return handler


def _ready(stream: TextIO) -> select.poll | None:
    """Return an object whose `poll` says whether the stream takes PIPE_BUF bytes; None if writing never waits."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return None  # The stream is no file of the system.
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return None
    ready = select.poll()
    ready.register(stream.fileno(), select.POLLOUT)
    return ready


def _character(levelno: int) -> str:
    if levelno >= WARNING:
        return "#"
    if levelno >= NOTICE:
        return "*"
    return "-" if levelno >= VERBOSE else "."


def _name(levelno: int) -> str:
    return {"#": "warning", "*": "notice", "-": "verbose", ".": "debug"}[_character(levelno)]


def _zone(now: time.struct_time) -> str:
    """Return the distance from UTC in hours and minutes, as in +0200."""
    sign = "-" if now.tm_gmtoff < 0 else "+"
    minutes = abs(now.tm_gmtoff) // 60
    return f"{sign}{minutes // 60:02d}{minutes % 60:02d}"


def _text(record: logging.LogRecord) -> str:
    """Return the text of a record, ours on one line: names chosen by clients must not begin new lines.

    Nor may they control the terminal of a reader. So unprintable characters are escaped.
    """
    text = record.getMessage()
    if isinstance(record.args, tuple) and record.args and isinstance(record.args[0], Line) and not text.isprintable():
        text = "".join([each if each.isprintable() else ascii(each)[1:-1] for each in text])
    return _cut(text)


def _cut(text: str) -> str:
    if len(text) * 4 <= TEXT_BYTES_MAX:
        return text
    return text.encode("utf-8", "backslashreplace")[:TEXT_BYTES_MAX].decode("utf-8", "ignore")


def _cut_field(value: Value) -> Value:
    return _cut(value) if isinstance(value, str) else value
