"""One writer of an index at a time on this machine.

A path has one query that writes it (docs/spark.md). Its batches are committed in a process that Spark starts. The
program that started the query also merges changes that wait, when no batch comes. Both hold this lock meanwhile. The
lock is a file in the folder for temporary files, so it works for object stores, too. The system ends it with its
process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from disque_py.spark.store import Store


@contextmanager
def write_lock(store: Store) -> Iterator[None]:
    """Hold the lock of the index at this path. Waits for it."""
    name = str(store.local_path.absolute()) if store.is_local else store.path.rstrip("/")
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"disque-index-{os.getuid()}-{digest}.lock"
    with place.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
