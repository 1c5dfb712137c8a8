"""How much is refused while the disk is in trouble (semantics.md, section 8). Each level includes those before."""

from __future__ import annotations

from typing import Final

FINE: Final = 0
NO_ADDS: Final = 1  # What would be a new promise: ADDJOB, copies, hand-overs in, deliveries of at-most-once jobs.
NO_ACKS: Final = 2  # Acks, too: they promise under `always`.
NO_WRITES: Final = 3  # No room in memory for more that is unrecorded.
