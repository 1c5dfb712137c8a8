"""The error of a node that can't start: the reason, and the operator's next step.

The operating system gives a reason such as "Address already in use". `refused` adds the next step to it, with the name
of the directive to change. The start (node_lifecycle.py) and `--test-config` (trial.py) say the same about the same
failure, so the texts of both are here: one Step for each thing that a start opens.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final, NamedTuple

# The next step for each error of the system. {directive} is the directive to change, {user} this process's user id.
ADVICE: Final = {
    errno.EACCES: "The node runs as user {user}: give this user access, or change {directive}",
    errno.EADDRINUSE: "Another process listens there: stop it, or change {directive}",
    errno.EADDRNOTAVAIL: "No interface of this machine has this address: change {directive}",
    errno.EEXIST: "A file is where the node needs a directory: move it away, or change {directive}",
    errno.EISDIR: "A directory is where the node needs a file: move it away, or change {directive}",
    errno.ENOENT: "Create the missing directory or file, or change {directive}",
    errno.ENOSPC: "Free space on the disk, or change {directive}",
    errno.ENOTSOCK: "Move the file away, or change {directive}",
    errno.ENOTDIR: "A part of the path is no directory: change {directive}",
    errno.EPERM: "The node runs as user {user}: give this user access, or change {directive}",
    errno.EROFS: "Mount the file system writable, or change {directive}",
}
# Only a process with extra rights may open these ports.
LOW_PORTS_ADVICE: Final = "Ports below 1024 need the capability CAP_NET_BIND_SERVICE: grant it, or change {directive}"
NAME_ADVICE: Final = "Correct the name in {directive}, or the name service of this machine"
OTHER_ADVICE: Final = "Check {directive}"
FEW_FILES: Final = (
    "the limit of open files is too low: a node needs more than {}."
    " Raise it with `ulimit -n`, or with LimitNOFILE in the systemd unit"
)


class StartError(Exception):
    """A reason why the node can't start, as one line for the operator. The exit status is 1."""


def refused(failure: str, error: Exception, directive: str, *, is_port: bool = False) -> StartError:
    """Return an error that says what failed, the system's reason, and the next step.

    `failure` is the beginning, such as "can't open the log /var/log/disque". `directive` names the directive to change,
    or several joined by "or". `is_port` says that the error is of a TCP port, and not of a file.
    """
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, socket.gaierror | UnicodeError):
        advice = NAME_ADVICE
    elif is_port and number in (errno.EACCES, errno.EPERM):
        advice = LOW_PORTS_ADVICE
    else:
        advice = ADVICE.get(number or 0, OTHER_ADVICE)
    reason = getattr(error, "strerror", None) or str(error)
    return StartError(f"{failure}: {reason}. {advice.format(directive=directive, user=os.geteuid())}")


class Step(NamedTuple):
    """Something that a start opens.

    failure     the beginning of the error, with {} for the path or the address
    directive   the directive to change, or several joined by "or"
    is_port     whether it is a TCP port, and not a file
    """

    failure: str
    directive: str
    is_port: bool = False

    def refused(self, name: str, error: Exception) -> StartError:
        """Return the error of this step for the path or the address `name`."""
        return refused(self.failure.format(name), error, self.directive, is_port=self.is_port)


DIRECTORY: Final = Step("can't change to the directory {}", "dir")
LOG_FILE: Final = Step("can't open the log {}", "logfile")
SYSLOG: Final = Step("can't open the log {}", "syslog-enabled")
NODES_FILE: Final = Step("can't open the nodes file {}", "cluster-config-file or dir")
NODES_FILE_WRITE: Final = Step("can't write the nodes file {}", "cluster-config-file")
CLIENT_PORT: Final = Step("can't accept clients on {}", "port, tls-port or bind", is_port=True)
UNIX_SOCKET: Final = Step("can't accept clients on {}", "unixsocket")
BUS_PORT: Final = Step("can't accept other nodes on {}", "cluster-port or bind", is_port=True)
AUDIT_LOG: Final = Step("can't open the audit log {}", "audit-log")
ACL_FILE: Final = Step("can't read the ACL file {}", "aclfile")
SPILL: Final = Step("can't open {}", "dir or maxmemory-spill")
JOURNAL: Final = Step("can't open the journal: {}", "dir or appendfilename")
