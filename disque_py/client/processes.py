"""One client per process, for libraries that open connections and then fork.

If a parent and its child shared a connection, their replies would be mixed up. So a child that asks for the client gets
a new one, and leaves the parent's connections alone. All threads of a process get the same client, also if they ask for
it at the same moment.
"""

from __future__ import annotations

import os
import threading

from disque_py.client.blocking import Disque

# Held while a client is made. A fork may happen while another thread holds it, so each child begins with a new one.
_making = threading.Lock()


def _after_fork_in_child() -> None:
    global _making
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class ProcessClient:
    """The client of a URL, one per process. Call it to get this process's."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._made: tuple[int, Disque] | None = None  # And the process that it belongs to.
        self._parents: Disque | None = None

    def __call__(self) -> Disque:
        """Return the client of this process, which is made when it is first asked for."""
        made = self._made
        if made is not None and made[0] == os.getpid():
            return made[1]
        with _making:
            made = self._made
            if made is None or made[0] != os.getpid():
                if made is not None:
                    self._parents = made[1]  # Kept, so that nothing finalizes the parent's connections here.
                made = self._made = os.getpid(), Disque.from_url(self._url, name=self._name)
            return made[1]

    def close(self) -> None:
        """Close the client of this process. The next call makes another one."""
        made = self._made
        if made is not None and made[0] == os.getpid():
            made[1].close()
            self._made = None
