"""The process: background, pid file, limits, numbers the kernel keeps, and ending it on purpose.

daemonize() forks and must therefore come before the event loop and before any thread.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from disque_py import driver

if TYPE_CHECKING:
    from collections.abc import MutableMapping

# Files a node needs besides its clients: listeners, log, links to other nodes (spec D5).
RESERVED_FILES: Final = 32
# What the links of a large cluster take besides, two for each node, and who else knocks at the bus (bus.py).
# Where the limit can't be raised as far, clients come first, as the original has it.
LINK_FILES: Final = 1024

# Tells the program that it was started again by exec_again, in the process it already had.
RESTART_MARK: Final = "DISQUE_RESTARTED"

_READY: Final = b"1"

# Whether the pure modules are C here (setup.py): both have the same source and behave the same.
BUILD: Final = "python" if driver.__file__.endswith(".py") else "compiled"


def fill_standard_descriptors() -> None:
    """Open what is missing of 0, 1 and 2; to be called first.

    Whoever starts programs may have closed them. Files that the node opens would get these numbers then, and lose them
    when a daemon lets go of its terminal.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The system gives the lowest number that is free. Children have these three, too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def daemonize() -> int:
    """Go on in the background; the pipe returned is for report_ready.

    The process that was started waits for that report and exits with 0, or with 1 if the daemon died before it, so that
    whoever starts a node learns whether it runs. Standard error stays open until then.
    """
    report_read, report_write = os.pipe()
    if os.fork():
        os.close(report_write)
        os._exit(0 if os.read(report_read, 1) == _READY else 1)
    os.close(report_read)
    os.setsid()
    if os.fork():  # The session's leader ends, so that no terminal can become ours again.
        os._exit(0)
    return report_write


def report_ready(report_write: int) -> None:
    """Let go of the terminal and tell the process that was started that all is well."""
    with open(os.devnull, "r+b") as nowhere:
        for descriptor in (0, 1, 2):
            os.dup2(nowhere.fileno(), descriptor)
    os.write(report_write, _READY)
    os.close(report_write)


def write_pid_file(path: str) -> None:
    """Write the process id; OSError."""
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


def remove_pid_file(path: str) -> None:
    """Remove the file if it is there and ours; a file that can't be removed is not worth an error at exit."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            is_ours = file.read().strip() == str(os.getpid())
        if is_ours:
            os.unlink(path)
    except OSError:
        return


def raise_file_limit(maxclients: int) -> int:
    """Allow as many open files as `maxclients` need; how many clients are possible, at most `maxclients`.

    The soft limit is raised up to the hard one, as far as links need it, and for clients the hard one too if we may.
    The result may be 0 or less.
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
    """Resident memory of this process; where /proc is missing, its highest value so far."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        unit_bytes = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes


def cpu_seconds() -> tuple[float, float, float, float]:
    """CPU time used: system, user, children's system, children's user."""
    times = os.times()
    return times.system, times.user, times.children_system, times.children_user


def exec_again(start_directory: str, environ: MutableMapping[str, str] = os.environ) -> NoReturn:
    """Replace this process by a fresh run of the same program with the same arguments; same pid.

    Python's descriptors are not inherited, so sockets, and locks that are tied to files, are let go of. Relative paths
    of the command line refer to the directory in which the program was started.
    """
    os.chdir(start_directory)
    environ[RESTART_MARK] = "1"
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(environ))


def was_restarted(environ: MutableMapping[str, str] = os.environ) -> bool:
    """Did exec_again start this run? Then it is in the background already. The mark is taken away."""
    return environ.pop(RESTART_MARK, "") != ""


def crash(how: str) -> NoReturn:
    """Die on purpose, as DEBUG SEGFAULT, ASSERT and OOM ask for: by signal 11, else by abort."""
    if how == "segfault":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    os.abort()
