"""The tables of an index by name, opened and checked, for those that only read them.

Their columns are in index_schema.py. Imports no pyarrow, as store.py.
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
STAGING: Final = "_staging"

DESCRIPTION: Final = "disque-py index, format {}"
# A property of our own: Unix ms at which the table got its last column, 0 for never. Files that are older lack it.
WIDENED: Final = "disque.widened"

# Colours and arrows in the messages of object stores.
TERMINAL: Final = re.compile(r"\x1b\[\d+m|↳")


def check_not_lost(store: Store) -> None:
    """A table `current` that is gone, while `history` has events, must not begin anew. Raises TableError."""
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
            f"{store.path} has events in its table {HISTORY} and no table {CURRENT}, which would begin anew without "
            f"their jobs; make it from {HISTORY} with: disque-pipeline rebuild --path {store.path}"
        )


def open_existing(store: Store, name: str) -> DeltaTable:
    """One table of an index that is there. Raises TableError, also for one of a newer version."""
    try:
        exists = store.under(name).exists()
    except (DeltaError, OSError) as error:
        raise no_storage(store, error) from None
    if not exists:
        check_not_lost(store)
        raise TableError(
            f"{store.path} has no table {name}; run the index pipeline first, or check the path for a slip"
        )
    table = store.under(name).table()
    check_format(store, table)
    return table


def check_format(store: Store, table: DeltaTable) -> None:
    """Raises TableError when a newer version wrote it."""
    found = re.fullmatch(DESCRIPTION.format(r"(\d+)"), table.metadata().description or "")
    if found and int(found[1]) > FORMAT:
        raise TableError(
            f"{store.path} has format {found[1]}, written by a newer version; this one knows {FORMAT}: update disque-py"
        )


def no_storage(store: Store, error: Exception) -> TableError:
    """What to say when a path can't be reached."""
    why = " ".join(TERMINAL.sub(" ", str(error)).split())[:300]
    return TableError(
        f"{store.path} can't be reached or written: {why}; check the option path, the rights to it, and for an object "
        "store the options storage.*"
    )
