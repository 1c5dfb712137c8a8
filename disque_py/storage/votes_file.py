"""The file of votes: its items are those of a voter's memory, [kind, value] (core/voter_memory.py). Spec CL3.

framed_file.py has the layout. The last item of a kind counts, for grants that of each key.
"""

# Stays Python: a rewrite runs in a thread, and compiled code would keep the loop from running meanwhile.
from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

from disque_py.core.voter_memory import KINDS, VoterMemory, is_item
from disque_py.storage.framed_file import Format


def _latest(items: Iterable[Any]) -> Iterable[Any]:
    """Return the items that count. Time stands still meanwhile, so a grant keeps its whole lease."""
    memory = VoterMemory()
    others: list[Any] = []
    for item in items:
        if item[0] in KINDS:
            memory.apply(item, 0)
        else:
            others.append(item)  # A newer version wrote it, and can read it.
    return chain(memory.items(0), others)


VOTES: Final = Format("votes", 2, is_item, _latest)
