"""A small file beside the tables that says what the last batches of the index did.

Spark shows nothing that a Python sink would like to tell (rows merged, milliseconds of the merge),
and the sink runs in a process of its own; so it leaves a note, and the progress listener
(progress.py) and `disque-query` read it. Losing it loses nothing else.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Final

from disque_py.spark.delta_store import Store

NAME: Final = "_progress.json"


def note_batch(store: Store, batch: int, figures: dict[str, Any]) -> None:
    """Replace the note; only for local paths."""
    if not store.is_local:
        return
    note = {"batch": batch, "at_ms": time.time_ns() // 1_000_000, **figures}
    path = store.local_path / NAME
    fresh = path.with_name(f"{NAME}.{os.getpid()}")
    fresh.write_text(json.dumps(note))
    fresh.replace(path)


def last_note(store: Store) -> dict[str, Any]:
    """The note of the last batch; empty without one."""
    if not store.is_local:
        return {}
    try:
        note = json.loads((store.local_path / NAME).read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
