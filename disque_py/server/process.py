"""The process: background, pid file, limits, figures of the kernel, and ending it on purpose.

daemonize() forks and must therefore come before the event loop and before any thread.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from disque_py.node import turn

if TYPE_CHECKING:
    from collections.abc import MutableMapping

# Files a node needs besides its clients: listeners, log, links to other nodes (spec D5).
RESERVED_FILES: Final = 32
# Further files for the links of a large cluster, two for each node, and for unknown connections to the bus (bus.py).
# Where the limit can't be raised that far, clients come first, as in the original.
LINK_FILES: Final = 1024

# Tells the program that exec_again has started it, in the process that it already had.
RESTART_MARK: Final = "DISQUE_RESTARTED"

_READY: Final = b"1"

# Whether the pure modules are compiled here (setup.py). Both builds have the same source and behave the same.
BUILD: Final = "python" if turn.__file__.endswith(".py") else "compiled"


def fill_standard_descriptors() -> None:
    """Open the descriptors 0, 1 and 2 if they are missing. Called first.

    The parent process may have closed them. Then files that the node opens would get these numbers, and lose them when
    a daemon leaves its terminal.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The system gives the lowest free number. Children inherit these three.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def daemonize() -> int:
    """Go into the background. Return the pipe for report_ready.

    The first process waits for that report. It exits with 0 then, or with 1 if the daemon died before. So its caller
    learns whether the node runs. Standard error stays open until then.
    """
    report_read, report_write = os.pipe()
    if os.fork():
        os.close(report_write)
        os._exit(0 if os.read(report_read, 1) == _READY else 1)
    os.close(report_read)
    os.setsid()
    if os.fork():  # The session's leader ends, so the daemon can't get a terminal again.
        os._exit(0)
    return report_write


def report_ready(report_write: int) -> None:
    """Leave the terminal, and tell the first process that the node runs."""
    with open(os.devnull, "r+b") as nowhere:
        for descriptor in (0, 1, 2):
            os.dup2(nowhere.fileno(), descriptor)
    os.write(report_write, _READY)
    os.close(report_write)


def write_pid_file(path: str) -> None:
    """Write the process id. OSError."""
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


def remove_pid_file(path: str) -> None:
    """Remove the file if it exists and is ours. A failure is ignored: it is no reason for an error at exit."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            is_ours = file.read().strip() == str(os.getpid())
        if is_ours:
            os.unlink(path)
    except OSError:
        return


def raise_file_limit(maxclients: int) -> int:
    """Allow as many open files as `maxclients` need. Return how many clients are possible, at most `maxclients`.

    For links the soft limit is raised, up to the hard one. For clients the hard limit is raised, too, if that is
    permitted. The result may be 0 or less.
    """
    wanted = maxclients + RESERVED_FILES
    roomy = wanted + LINK_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for soft_try, hard_try, needed in ((roomy, hard, roomy), (hard, hard, roomy), (wanted, wanted, wanted)):
        if soft == resource.RLIM_INFINITY or soft >= needed:
            continue
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft_try, hard_try))
        except (ValueError, OSError):
            continue
        soft = soft_try
    if soft == resource.RLIM_INFINITY:
        return maxclients
    return min(maxclients, soft - RESERVED_FILES)


def rss_bytes() -> int:
    """Return the resident memory of this process; where /proc is missing, its highest value so far."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        unit_bytes = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes


def cpu_seconds() -> tuple[float, float, float, float]:
    """Return the CPU time used: system, user, children's system, children's user."""
    times = os.times()
    return times.system, times.user, times.children_system, times.children_user


def exec_again(start_directory: str, environ: MutableMapping[str, str] = os.environ) -> NoReturn:
    """Replace this process by a new run of the same program with the same arguments and the same pid.

    Python's descriptors are not inherited, so sockets and file locks are released. Relative paths of the command line
    refer to the directory in which the program was first started.
    """
    os.chdir(start_directory)
    environ[RESTART_MARK] = "1"
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(environ))


def was_restarted(environ: MutableMapping[str, str] = os.environ) -> bool:
    """Return whether exec_again started this run; such a run is in the background already. Remove the mark."""
    return environ.pop(RESTART_MARK, "") != ""


def crash(how: str) -> NoReturn:
    """End the process on purpose for DEBUG SEGFAULT, ASSERT and OOM: by signal 11, else by abort."""
    if how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    os.abort()
