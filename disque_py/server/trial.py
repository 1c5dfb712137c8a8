"""`--test-config`: what a start would refuse in a configuration, before it touches anything.

Ports are not taken, and no file is opened for writing, so a configuration may be tried while a node runs with it. What
concerns single lines was found by settings_file.load; here is what needs the machine: certificates and directories.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cluster_bus.node import ID_BYTES
from disque_py.server import tls
from disque_py.server.cluster_side import bus_addresses
from disque_py.server.lifetime import myself
from disque_py.server.start_error import StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from disque_py.config.settings import Settings


def problems(settings: Settings) -> list[str]:
    """All that keeps a node from starting with these settings, as far as a look can tell."""
    checks: list[Callable[[], object]] = [
        lambda: myself(settings, bytes(ID_BYTES)),
        lambda: bus_addresses(settings.cluster_seeds),
        lambda: tls.bus_contexts(settings),
    ]
    if settings.tls_port:
        checks.append(lambda: tls.clients_context(settings))
    found = list(_missing_directories(settings))
    start = os.getcwd()
    os.chdir(settings.dir)  # What relative paths refer to.
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
    """A sentence for each file that would be made in a directory which is not there."""
    paths = {
        "logfile": settings.logfile,
        "unixsocket": settings.unixsocket,
        "cluster-config-file": settings.cluster_config_file,
        "pidfile": settings.pidfile if settings.daemonize else "",
    }
    for name, path in paths.items():
        directory = os.path.dirname(os.path.join(settings.dir, path))
        if path and not os.path.isdir(directory):
            yield f"{name} {path}: there is no directory {directory}"
