"""The ACL file and the audit log on disk. Both are readable by the node's own user of the system only.

The ACL file is replaced as a whole. A new file is written and synced beside it, and then takes its name. So after a
crash either the old or the new users are there. The file writer's thread does it.

The audit log is appended to, a line at a time, and opened anew when it was moved away (logrotate). A log that can't be
written costs lines, never the server, as with the log of the server.
"""

from __future__ import annotations

import logging
import os
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final

from disque_py.server.log import SYSLOG_ADDRESS, FollowedFile, Syslog
from persistence.files import replace_private

if TYPE_CHECKING:
    from disque_py.config.settings import Settings

SYSLOG: Final = "syslog"
PRIVATE: Final = 0o600
# No ACL file that a node writes is larger.
ACL_BYTES_MAX: Final = 1 << 30


def write_acl_file(path: str, text: bytes) -> None:
    """Replace the ACL file. It is on disk when this returns. OSError."""
    replace_private(os.path.realpath(path), text)


def read_acl_file(path: str, *, may_be_missing: bool = True) -> bytes:
    """Return the text of the ACL file; empty if it may be missing, and there is none yet.

    OSError, also if its directory is missing.
    """
    try:
        with open(path, "rb") as file:
            return file.read(ACL_BYTES_MAX)
    except FileNotFoundError:
        if not may_be_missing or not os.path.isdir(os.path.dirname(os.path.realpath(path))):
            raise
        return b""


class PrivateFile(FollowedFile):
    """A file of lines that only the node's user may read."""

    def _open(self) -> TextIOWrapper:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, PRIVATE)

        return open(self.baseFilename, "a", encoding="utf-8", opener=private)


class AuditLog:
    """The audit log that `audit-log` names: a file, or syslog. OSError if it can't be opened."""

    def __init__(self, settings: Settings) -> None:
        self._handler: logging.Handler | None = None
        if settings.audit_log == SYSLOG:
            syslog = Syslog(SYSLOG_ADDRESS, settings.syslog_facility)
            syslog.ident = f"{settings.syslog_ident}: "
            self._handler = syslog
        elif settings.audit_log:
            self._handler = PrivateFile(os.path.abspath(settings.audit_log))
        if self._handler is not None:
            self._handler.setFormatter(logging.Formatter("%(message)s"))

    def write(self, line: str) -> None:
        """Add a line."""
        if self._handler is not None:
            self._handler.handle(logging.LogRecord("disque.audit", logging.INFO, "", 0, "%s", (line,), None))

    def close(self) -> None:
        """Close the file."""
        if self._handler is not None:
            self._handler.close()
