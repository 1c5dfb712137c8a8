"""Three versions of the bus protocol, so that a rolling upgrade can be played.

OLD is today's version (cluster_bus/codec.py). PREVIOUS is the version before it, which nodes still speak with older
nodes. NEW is a possible next version: every item that has positions has one more at its end. docs/bus.md promises that
a node ignores a position that it does not know, and that two nodes speak the highest version that both know. A world
with nodes of all three versions tests that.

An item of NOWAIT is a list of ids, and has no positions. Some items may leave out their last positions. A new position
behind such an item would be read as one of these. So NEW adds the position only to complete items, as docs/bus.md
requires of a real version.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.codec import PROTOCOL_MAX, Decoder, encode_run, frame
from cluster_bus.messages import (
    ACKATTEMPT,
    DELJOB,
    FIRST_JOB_KIND,
    HINT,
    INTEREST,
    LEASED,
    NEEDJOBS,
    NOWAIT,
    REPLJOB,
    SETACK,
)

OLD: Final = PROTOCOL_MAX
PREVIOUS: Final = OLD - 1
NEW: Final = OLD + 1
# The value of the new position: a number that no older handler can take for one of its own positions.
NEW_FIELD: Final = 7_654_321
# The length of items that may leave out their last positions.
WHOLE: Final = {ACKATTEMPT: 3, LEASED: 9, DELJOB: 3, HINT: 5, INTEREST: 4, NEEDJOBS: 5, REPLJOB: 3, SETACK: 4}


def decoder(version: int) -> Decoder:
    """Return a decoder for the frames of a link of this version."""
    return Decoder(versions=(version, version))


def renewed(data: bytes) -> bytes:
    """Return the driver's frames as a node of version NEW writes them: with the new position."""
    result = []
    for runs in decoder(NEW).feed(data):
        packed = [encode_run(run[0], [_longer(run[0], item) for item in run[1:]]) for run in runs]
        result.append(frame(NEW, packed))
    return b"".join(result)


def _longer(kind: int, item: Any) -> Any:
    if kind < FIRST_JOB_KIND or kind == NOWAIT or not isinstance(item, list) or len(item) < WHOLE.get(kind, 0):
        return item
    return [*item, NEW_FIELD]
