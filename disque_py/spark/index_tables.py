"""Opening and checking the tables of an index by name, for programs that only read them.

index_schema.py has their columns. Like store.py, this module imports no pyarrow.
"""

from __future__ import annotations

import re
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from disque_py.spark.store import Store, TableError

FORMAT: Final = 1
HISTORY: Final = "history"
CURRENT: Final = "current"
# Changes of old jobs that wait for their merge into `current` (index_changes.py).
CHANGES: Final = "current_changes"
STAGING: Final = "_staging"

DESCRIPTION: Final = "disque-py index, format {}"
# Our own table property: Unix ms at which the table got its last column; 0: never. Older files lack that column.
WIDENED: Final = "disque.widened"
# Our own property of `current`: 1 while it is rebuilt.
REBUILDING: Final = "disque.rebuilding"

# Messages of object stores contain colour codes and arrows.
TERMINAL: Final = re.compile(r"\x1b\[\d+m|↳")


def check_not_lost(store: Store) -> None:
    """Raise TableError if `history` has events and `current` is gone: a new `current` would lack their jobs."""
    try:
        is_lost = (
            not store.under(CURRENT).exists()
            and store.under(HISTORY).exists()
            and len(store.under(HISTORY).table().file_uris()) > 0
        )
    except (DeltaError, OSError) as error:
        raise no_storage(store, error) from None
    if is_lost:
        raise TableError(
            f"{store.path} has events in its table {HISTORY} and no table {CURRENT}; a new table would lack the jobs "
            f"of these events; make it from {HISTORY} with: disque-pipeline rebuild --path {store.path}"
        )


def check_complete(store: Store, current: DeltaTable) -> None:
    """Raise TableError if `current` lacks jobs, because a rebuild has begun and has not ended."""
    if current.metadata().configuration.get(REBUILDING) == "1":
        raise TableError(
            f"the table {CURRENT} of {store.path} lacks jobs, because its rebuild was interrupted or still runs; run "
            f"it again: disque-pipeline rebuild --path {store.path}"
        )


def open_existing(store: Store, name: str) -> DeltaTable:
    """Open an existing table of an index. Raises TableError, also for a table of a newer version."""
    try:
        exists = store.under(name).exists()
    except (DeltaError, OSError) as error:
        raise no_storage(store, error) from None
    if not exists:
        check_not_lost(store)
        raise TableError(f"{store.path} has no table {name}; check the path, or run the index pipeline first")
    table = store.under(name).table()
    check_format(store, table)
    return table


def check_format(store: Store, table: DeltaTable) -> None:
    """Raise TableError when a newer version wrote the table."""
    found = re.fullmatch(DESCRIPTION.format(r"(\d+)"), table.metadata().description or "")
    if found and int(found[1]) > FORMAT:
        raise TableError(
            f"{store.path} has format {found[1]}, written by a newer version; this one knows {FORMAT}: update disque-py"
        )


def no_storage(store: Store, error: Exception) -> TableError:
    """Return the error for a path that can't be reached."""
    why = " ".join(TERMINAL.sub(" ", str(error)).split())[:300]
    return TableError(
        f"{store.path} can't be reached or written: {why}; check the option path, the permissions, and for an object "
        "store the options storage.*"
    )
