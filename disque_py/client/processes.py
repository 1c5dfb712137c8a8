"""One client per process, for libraries that open connections and then fork.

If a parent and its child shared a connection, their replies would be mixed up. So a child that asks for the client gets
a new one, and leaves the parent's connections alone.
"""

from __future__ import annotations

import os
import threading

from disque_py.client.blocking import Disque


class ProcessClient:
    """The client of a URL, one per process. Call it to get this process's."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._pid = 0
        self._client: Disque | None = None
        self._parents: Disque | None = None
        self._making = threading.Lock()

    def __call__(self) -> Disque:
        """Return the client of this process, which is made when it is first asked for."""
        if self._pid != os.getpid():
            self._making = threading.Lock()
            self._parents = self._client  # Kept, so that nothing finalizes the parent's connections here.
            self._client = None
            self._pid = os.getpid()
        client = self._client
        if client is None:
            with self._making:
                client = self._client
                if client is None:
                    client = self._client = Disque.from_url(self._url, name=self._name)
        return client

    def close(self) -> None:
        """Close the client of this process. The next call makes another one."""
        if self._pid == os.getpid() and self._client is not None:
            self._client.close()
            self._client = None
