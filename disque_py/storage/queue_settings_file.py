"""The file of queue settings: its items are [queue, field, value, counter, node id]. Spec QS3.

framed_file.py has the layout. The newest version of each field counts.
"""

# Stays Python: a rewrite runs in a thread, and compiled code would keep the loop from running meanwhile.
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from disque_py.core.queue_settings import QueueSettingsTable, is_item
from disque_py.storage.framed_file import Format


def _latest(items: Iterable[Any]) -> Iterable[Any]:
    table = QueueSettingsTable()
    for item in items:
        table.merge_version(item)
    return table.all_items()


QUEUE_SETTINGS: Final = Format("queue settings", 5, is_item, _latest)
