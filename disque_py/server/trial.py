"""`--test-config`: finds the problems that a start would have with a configuration, without changing anything.

Ports are not taken, and no file is opened for writing. So a configuration may be tried while a node runs with it.
settings_file.load has found problems of single lines. This module checks the machine: certificates and directories.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cluster_bus.node import ID_BYTES
from disque_py.server import tls
from disque_py.server.bus_adapter import bus_addresses
from disque_py.server.node_lifecycle import myself
from disque_py.server.start_error import StartError, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from disque_py.config.settings import Settings


def problems(settings: Settings) -> list[str]:
    """Return the reasons why a node can't start with these settings, as far as files and certificates show them."""
    checks: list[Callable[[], object]] = [
        lambda: myself(settings, bytes(ID_BYTES)),
        lambda: bus_addresses(settings.cluster_seeds),
        lambda: tls.bus_contexts(settings),
    ]
    if settings.tls_port:
        checks.append(lambda: tls.clients_context(settings))
    found = list(_missing_directories(settings))
    start = os.getcwd()
    try:
        os.chdir(settings.dir)  # Relative paths refer to it.
    except OSError as error:
        found.append(str(refused(f"can't change to the directory {settings.dir}", error, "dir")))
        return list(dict.fromkeys(found))
    try:
        for check in checks:
            try:
                check()
            except StartError as error:
                found.append(str(error))
    finally:
        os.chdir(start)
    return list(dict.fromkeys(found))


def _missing_directories(settings: Settings) -> Iterator[str]:
    """Return a sentence for each file that would be made in a missing directory."""
    paths = {
        "logfile": settings.logfile,
        "unixsocket": settings.unixsocket,
        "cluster-config-file": settings.cluster_config_file,
        "pidfile": settings.pidfile if settings.daemonize else "",
    }
    for name, path in paths.items():
        directory = os.path.dirname(os.path.join(settings.dir, path))
        if path and not os.path.isdir(directory):
            yield f"{name} {path}: there is no directory {directory}. Create it, or change {name}"
