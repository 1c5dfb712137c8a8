"""Free ports of this machine, for nodes that programs and tests start.

A port that is free now may be taken before the node listens on it. So a node that finds its port taken is started again
on another one. The module is a leaf: the command line programs and the testing aid import it.
"""

from __future__ import annotations

import random
import socket
from typing import Final

HOST: Final = "127.0.0.1"
# Below the range from which Linux takes ports for outgoing connections, the bus ports included.
PORTS: Final = range(12_000, 22_000)
# Unless the directive cluster-port says otherwise, a node's bus port is this much above its client port.
BUS_PORT_DISTANCE: Final = 10_000
# Ports that this process has given out. Their nodes may not listen yet.
_given_out: Final[set[int]] = set()
# The tests of a project may seed the generator of `random`. Processes with one seed must not try the same ports.
_chance: Final = random.SystemRandom()


def free_port() -> int:
    """Return a port that is free now with its bus port, and was not given out before. OSError if there is none."""
    for port in _chance.sample(PORTS, len(PORTS)):
        if port not in _given_out and is_free_with_bus(port):
            _given_out.add(port)
            return port
    raise OSError(f"no free ports on {HOST} from {PORTS.start} on")


def is_free_with_bus(port: int) -> bool:
    """Return whether no process listens on the port and its bus port."""
    return is_free(port) and is_free(port + BUS_PORT_DISTANCE)


def is_free(port: int) -> bool:
    """Return whether no process listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
