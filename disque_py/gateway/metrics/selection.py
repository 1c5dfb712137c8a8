"""Selection: the queues that get their own labels. All other queues are counted together.

Producers choose names of queues, so the number of queues has no limit. The number of labels must have one. Patterns
admit or exclude names. The first `limit` admitted queues get a place, that is, labels. A queue keeps its place as long
as any node has the queue, because a time series that comes and goes is useless. Then the place is free for another
queue. The nodes of a cluster share the places.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from disque_py.gateway.metrics.table import OTHER, label_value

LIMIT_DEFAULT: Final = 1_000
# Longer names get no label.
NAME_MAX: Final = 200


class Selection:
    """The queues with labels. Any thread may use it.

    allow   patterns of a shell (`*`, `?`, `[ab]`); without patterns all names are admitted
    deny    patterns of names that are not admitted
    limit   the most queues with labels
    is_for_labels   whether the form of a name matters: it must be short, and UTF-8
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        limit: int = LIMIT_DEFAULT,
        *,
        is_for_labels: bool = True,
    ) -> None:
        self._is_for_labels = is_for_labels
        self._allow = tuple(allow)
        self._deny = tuple(deny)
        self._limit = limit
        self._lock = threading.Lock()
        self._holders: dict[str, set[object]] = {}

    def choose(self, node: object, names: Iterable[str]) -> list[str]:
        """Return the queues of a node that get labels. `names` are all queues that the node has now."""
        admitted = sorted(name for name in set(names) if self.admits(name))
        with self._lock:
            gone = {name for name, holders in self._holders.items() if node in holders}.difference(admitted)
            for name in gone:
                self._drop(node, name)
            chosen = []
            for name in admitted:
                if name in self._holders or len(self._holders) < self._limit:
                    self._holders.setdefault(name, set()).add(node)
                    chosen.append(name)
            return chosen

    def take(self, node: object, name: str) -> bool:
        """Return whether a queue has a place. Give it a free one if it has none."""
        if not self.admits(name):
            return False
        with self._lock:
            if name not in self._holders and len(self._holders) >= self._limit:
                return False
            self._holders.setdefault(name, set()).add(node)
            return True

    def is_only(self, node: object, name: str) -> bool:
        """Return whether only `node` has the queue."""
        with self._lock:
            return self._holders.get(name) == {node}

    def give_up(self, node: object, name: str) -> None:
        """Free the place of one queue."""
        with self._lock:
            self._drop(node, name)

    def forget(self, node: object) -> None:
        """Free the places of a node that is not watched any more."""
        with self._lock:
            for name in [name for name, holders in self._holders.items() if node in holders]:
                self._drop(node, name)

    def admits(self, name: str) -> bool:
        """Return whether the patterns and the form of the name allow a label."""
        if self._is_for_labels and (len(name) > NAME_MAX or name == OTHER or label_value(name) != name):
            return False
        allowed = not self._allow or any(fnmatchcase(name, pattern) for pattern in self._allow)
        return allowed and not any(fnmatchcase(name, pattern) for pattern in self._deny)

    def _drop(self, node: object, name: str) -> None:
        holders = self._holders[name]
        holders.discard(node)
        if not holders:
            del self._holders[name]
