"""A small file beside the tables with figures of the index's last batch.

Spark does not show figures of a Python sink (rows merged, milliseconds of the merge), and the sink runs in a separate
process. So the sink writes a note, and the progress listener (progress.py) reads it. Nothing else depends on the file.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any, Final

from disque_py.spark.delta_store import Store

NAME: Final = "_progress.json"


def note_batch(store: Store, batch: int, figures: dict[str, Any]) -> None:
    """Replace the note. Only local paths have one. If it can't be written, the figures are missing, and no more."""
    if not store.is_local:
        return
    note = {"batch": batch, "at_ms": time.time_ns() // 1_000_000, **figures}
    path = store.local_path / NAME
    fresh = path.with_name(f"{NAME}.{os.getpid()}")
    with suppress(OSError):
        fresh.write_text(json.dumps(note))
        fresh.replace(path)


def last_note(store: Store) -> dict[str, Any]:
    """Return the note of the last batch; empty if there is none."""
    if not store.is_local:
        return {}
    try:
        note = json.loads((store.local_path / NAME).read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
