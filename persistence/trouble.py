"""Trouble with the disk: what its errors mean, and how much is refused therefore.

Each level includes those before; spec P5.
"""

from __future__ import annotations

import errno
from typing import Final

# No room. Time, or somebody who removes something, may help.
FULL_DISK: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
# What says nothing about the file: the system is short of something.
PASSING: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR))

FINE: Final = 0
NO_ADDS: Final = 1  # What would be a new promise: ADDJOB, copies, hand-overs in, deliveries of at-most-once jobs.
NO_ACKS: Final = 2  # Acks, too: they promise under `always`.
NO_WRITES: Final = 3  # No room in memory for more that is unrecorded.
