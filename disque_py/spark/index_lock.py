"""One writer of an index at a time on this machine.

Only one query writes to a path (docs/spark.md). Its batches are committed in a process that Spark starts. When no
batch comes, the program that started the query merges waiting changes. `disque-pipeline upkeep` and `rebuild` write,
too. Each takes this lock before it writes. The lock is a file in the folder for temporary files, so it works for object
stores, too. The operating system releases it when its process ends.
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
    """Wait for the lock of the index at this path, and hold it. Raises OSError when the lock's file can't be opened."""
    name = str(store.local_path.absolute()) if store.is_local else store.path.rstrip("/")
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"disque-index-{os.getuid()}-{digest}.lock"
    # Anyone may write to the folder. A link of another user must not lead to a file of this one.
    file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
