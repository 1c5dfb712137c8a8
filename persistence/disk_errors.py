"""Disk errors: their meaning, and which commands are refused because of them.

The journal sets a *level* (journal.py), and the node refuses commands by it. Each level includes those before it. The
codes of errors say whether to try again: a full disk may get room, and a lack of resources passes. Spec P5.
"""

from __future__ import annotations

import errno
from typing import Final

# The disk is full. Writing works again when other data is removed.
FULL_DISK: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
# Errors that say nothing about the file: the system is short of a resource.
PASSING: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR))

FINE: Final = 0
NO_ADDS: Final = 1  # No new promises: ADDJOB, copies, hand-overs in, deliveries of at-most-once jobs.
NO_ACKS: Final = 2  # No acks either: under `always` a reply to an ack is a promise.
NO_WRITES: Final = 3  # No room in memory for more unrecorded changes.
