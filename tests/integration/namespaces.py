"""Nodes with separate network stacks, whose links can be cut: namespaces of Linux on one bridge.

    with SeparateCluster(tmp_path) as cluster:
        with cluster.cut([0], [1, 2]):
            …

A cut link loses packets silently, like a broken switch: connections stay open, and there is no error. Both nodes send
their frames to a hardware address that no machine has. The test itself has an address on the bridge, so it reaches
nodes on both sides of a cut.

Needs root, network namespaces and the program `ip`; `why_not` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from servers import Cluster

PORT = 7711
NO_MACHINE = "02:00:00:00:00:01"


def why_not() -> str | None:
    """Return why no namespaces can be made here; None if they can."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return "needs root and the program ip"
    name = f"dq-try-{os.getpid()}"
    try:
        _ip("netns", "add", name)
        try:
            _ip("link", "add", f"dqt{os.getpid()}", "type", "bridge")
            _ip("link", "del", f"dqt{os.getpid()}")
        finally:
            _ip("netns", "del", name)
    except OSError as error:
        return str(error)
    return None


class SeparateCluster(Cluster):
    """Nodes in separate namespaces, on one bridge."""

    def __init__(self, folder: Path, count: int = 3, options: Iterable[str] = ()) -> None:
        super().__init__(folder, count, tuple(options))
        pid = os.getpid()
        self._bridge = f"dqb{pid}"
        self._spaces = [f"dq-{pid}-{number}" for number in range(1, count + 1)]
        network = f"198.18.{pid % 256}"  # A range for tests of networks (RFC 2544).
        self._own_address = f"{network}.254"
        self._hardware = [f"02:00:00:01:00:{number:02x}" for number in range(1, count + 1)]
        for number, (server, space) in enumerate(zip(self.servers, self._spaces, strict=True), 1):
            server.port, server.host = PORT, f"{network}.{number}"
            server.prefix = ["ip", "netns", "exec", space]

    def start(self) -> SeparateCluster:
        """Make the network, start all nodes and join them. Raises OSError if the network can't be made."""
        try:
            self._make_network()
            super().start()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End all nodes, and remove their network."""
        super().close()
        for number, space in enumerate(self._spaces):
            with suppress(OSError):
                _ip("link", "del", self._outer(number))  # The namespace ends only some time after its deletion.
            with suppress(OSError):
                _ip("netns", "del", space)
        with suppress(OSError):
            _ip("link", "del", self._bridge)

    @contextmanager
    def cut(self, one_side: Iterable[int], other_side: Iterable[int], *, both_ways: bool = True) -> Iterator[None]:
        """Lose all packets between nodes of the two sides (indices of servers).

        both_ways   False: only packets from the first side to the other one are lost
        """
        pairs = [(one, other) for one in one_side for other in other_side]
        if both_ways:
            pairs += [(other, one) for one, other in pairs]
        for sender, receiver in pairs:
            self._aim(sender, receiver, NO_MACHINE)
        try:
            yield
        finally:
            for sender, receiver in pairs:
                self._aim(sender, receiver, self._hardware[receiver])

    def _aim(self, sender: int, receiver: int, hardware: str) -> None:
        """Set the hardware address to which one node sends its packets for another one."""
        to = self.servers[receiver].host
        self._inside(sender, "neigh", "replace", to, "lladdr", hardware, "nud", "permanent", "dev", "eth0")

    def _make_network(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self._own_address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number, space in enumerate(self._spaces):
            outer = self._outer(number)
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outer, "master", self._bridge, "up")
            self._inside(number, "link", "set", "eth0", "address", self._hardware[number])
            self._inside(number, "addr", "add", f"{self.servers[number].host}/24", "dev", "eth0")
            self._inside(number, "link", "set", "lo", "up")
            self._inside(number, "link", "set", "eth0", "up")

    def _outer(self, number: int) -> str:
        """Return the name of the bridge's end of a node's cable: at most 15 characters."""
        return f"dqv{os.getpid()}-{number}"

    def _inside(self, number: int, *words: str) -> None:
        _ip("-n", self._spaces[number], *words)


def _ip(*words: str) -> None:
    """Run the program ip. Raises OSError with its message."""
    done = subprocess.run(("ip", *words), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
