"""Changes of source files, for `disque-worker --reload`.

The watch compares sizes and times of the Python files below some folders. Hidden folders, environments and caches are
left out. It polls, so it needs no package and works on any file system. It is meant for development.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

LEFT_OUT: Final = frozenset(("__pycache__", "node_modules", "venv", "site-packages"))


class SourceWatch:
    """The Python files below some folders, in the state of the last look."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)
        self._seen = self._look()

    def changed(self) -> list[str]:
        """Return the files that were created, changed or removed since the last call, sorted."""
        before, self._seen = self._seen, self._look()
        now = self._seen
        return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))

    def _look(self) -> dict[str, tuple[int, int]]:
        return {path: state for folder in self._folders for path, state in _files(folder)}


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in LEFT_OUT]
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(root, name)
                try:
                    found = os.stat(path)
                except OSError:
                    continue  # It was removed meanwhile.
                yield path, (found.st_mtime_ns, found.st_size)
