"""disque-server: from the command line to a running node, and to its exit status.

This module handles the process: configuration, log, background, pid file, limits. After the node's life
(node_lifecycle.py) it exits, or runs the same program again. A reason not to start is one line on standard error, and
in the log if that goes elsewhere. The status is 1 then.
"""

from __future__ import annotations

import asyncio
import os
import platform
import struct
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import uvloop

from disque_py import __version__
from disque_py.config.conf_file import ConfigError
from disque_py.config.settings import Settings
from disque_py.output_errors import end_output
from disque_py.server import completion, log, process, settings_file, trial
from disque_py.server.host import NO_RESTART, UVLOOP_VERSION, Ending
from disque_py.server.node_lifecycle import NodeLifecycle
from disque_py.server.settings_file import IGNORED, Configuration
from disque_py.server.start_error import DIRECTORY, FEW_FILES, LOG_FILE, SYSLOG, StartError

USAGE: Final = """\
Usage: disque-server [<config file> | -] [--<directive> <value> ...]
       disque-server --test-config [<config file> | -] [--<directive> <value> ...]
       disque-server --completion bash|zsh|fish
       disque-server -h | --help
       disque-server -v | --version

Run a node of disque-py. conf/disque.conf explains all directives. Without a file, the defaults are used.
The environment overrides the file, and the command line overrides both: DISQUE_TCP_BACKLOG=100 in the
environment means --tcp-backlog 100.

  -                       Read the configuration from standard input.
  --test-config           Start no node. Print the errors with which a start would fail, and exit with status 1,
                          or exit with status 0 if there are none. The option may be anywhere.
  --completion <shell>    Print a script for TAB completion: eval "$(disque-server --completion bash)"

Examples
  disque-server                               all defaults: port 7711, nodes.conf in this directory
  disque-server /etc/disque/disque.conf
  disque-server disque.conf --port 7712 --bind 10.0.0.1 127.0.0.1
  disque-server - < disque.conf
  DISQUE_PORT=7712 disque-server
  disque-server --test-config /etc/disque/disque.conf

SIGTERM and SIGINT stop the node. The exit status is 0 then, and 1 if the node could not start.
"""

FAILURE: Final = 1
TEST_CONFIG: Final = "--test-config"


def main(argv: list[str] | None = None) -> int:
    """Run a node until it is stopped. Return the exit status."""
    process.fill_standard_descriptors()
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in ("-h", "--help"):
        return _print(USAGE)
    if arguments and arguments[0] in ("-v", "--version"):
        return _print(_version())
    if arguments and arguments[0] == completion.OPTION:
        return _complete(arguments)
    start_directory = os.getcwd()
    is_trial = TEST_CONFIG in arguments
    try:
        configuration = settings_file.load([word for word in arguments if word != TEST_CONFIG])
    except ConfigError as error:
        sys.stderr.write(error.report())
        return FAILURE
    if is_trial:
        return _try(configuration)
    try:
        ending = _run(configuration, may_restart="-" not in arguments[:1])
    except StartError as error:
        sys.stderr.write(f"disque-server: {error}\n")
        return FAILURE
    if ending.restart_delay_ms != NO_RESTART:
        time.sleep(ending.restart_delay_ms / 1000)
        process.exec_again(start_directory)
    return ending.status


def _complete(arguments: Sequence[str]) -> int:
    script = completion.script(arguments)
    if script is None:
        sys.stderr.write(f"disque-server: {completion.OPTION} takes one word: bash, zsh or fish\n")
        return FAILURE
    return _print(script)


def _try(configuration: Configuration) -> int:
    """Print the configuration's warnings and problems, or that there are no problems. Return the exit status."""
    for name in configuration.ignored:
        sys.stderr.write(f"disque-server: {IGNORED.format(name)}\n")
    found = trial.look(configuration.settings)
    for text in (*found.warnings, *found.problems):
        sys.stderr.write(f"disque-server: {text}\n")
    if found.problems:
        return FAILURE
    return _print("disque-server: the configuration can be used\n")


def _print(text: str) -> int:
    """Write to standard output. Return the exit status."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        return end_output(error)
    return 0


def _run(configuration: Configuration, *, may_restart: bool) -> Ending:
    """Enter the directory, open the log, and continue. StartError."""
    settings = configuration.settings
    _enter_directory(settings)
    try:
        log.open_log(settings)
    except OSError as error:
        raise (LOG_FILE if settings.logfile else SYSLOG).refused(settings.logfile or "syslog", error) from None
    log.report_crashes()
    try:
        return _live(configuration, may_restart=may_restart)
    except StartError as error:
        if settings.logfile or settings.syslog_enabled:  # Else the terminal would show the reason twice.
            log.tell("start-failed", reason=str(error))
        raise


def _live(configuration: Configuration, *, may_restart: bool) -> Ending:
    """Prepare the process, and run the node. StartError."""
    settings = configuration.settings
    is_again = process.was_restarted()
    report_write = process.daemonize() if settings.daemonize and not is_again else None
    pid_path = os.path.abspath(settings.pidfile) if settings.daemonize and settings.pidfile else ""
    _allow_clients(settings)
    # Not earlier: a second start by mistake must not touch the running node's file.
    on_taken = partial(_write_pid_file, pid_path) if pid_path else _do_nothing
    on_ready = partial(process.report_ready, report_write) if report_write is not None else _do_nothing
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            node = NodeLifecycle(configuration, may_restart=may_restart, on_taken=on_taken, on_ready=on_ready)
            return runner.run(node.run())
    finally:
        if pid_path:
            process.remove_pid_file(pid_path)


def _enter_directory(settings: Settings) -> None:
    try:
        os.chdir(settings.dir)
    except OSError as error:
        raise DIRECTORY.refused(settings.dir, error) from None


def _allow_clients(settings: Settings) -> None:
    """Raise the limit of open files, or serve fewer clients if that is not allowed."""
    possible = process.raise_file_limit(settings.maxclients)
    if possible < 1:
        raise StartError(FEW_FILES.format(process.RESERVED_FILES))
    if possible < settings.maxclients:
        log.tell("maxclients-cut", possible=possible, wanted=settings.maxclients)
        settings.maxclients = possible


def _write_pid_file(path: str) -> None:
    try:
        process.write_pid_file(path)
    except OSError as error:
        log.tell("pid-file-failed", path=path, reason=error.strerror or str(error))


def _version() -> str:
    bits = 8 * struct.calcsize("P")
    python = f"build={process.BUILD} python={platform.python_version()}"
    return f"Disque server v={__version__} {python} uvloop={UVLOOP_VERSION} bits={bits}\n"


def _do_nothing() -> None:
    """Do nothing: no caller waits."""


if __name__ == "__main__":
    sys.exit(main())
