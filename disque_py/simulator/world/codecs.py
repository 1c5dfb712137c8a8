"""Three versions of the bus protocol, so that a rolling upgrade can be played.

OLD is the one that nodes speak today (cluster_bus/codec.py), and PREVIOUS the one before, which they still speak with
older nodes. NEW is a possible next one: every item that has positions has one more at its end. docs/bus.md promises
that a node ignores a position that it does not know, and that two nodes speak the highest version both know. A world
with nodes of all kinds tests that.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.codec import PROTOCOL_MAX, Decoder, encode_run, frame
from cluster_bus.messages import FIRST_JOB_KIND

OLD: Final = PROTOCOL_MAX
PREVIOUS: Final = OLD - 1
NEW: Final = OLD + 1
# The value of the new position; a number no older handler could mistake for one of its own positions.
NEW_FIELD: Final = 7_654_321


def decoder(version: int) -> Decoder:
    """Return a decoder for the frames of a link of this version."""
    return Decoder(versions=(version, version))


def renewed(data: bytes) -> bytes:
    """Frames of the driver as a node of version NEW writes them: with the new position."""
    result = []
    for runs in decoder(NEW).feed(data):
        packed = [encode_run(run[0], [_longer(run[0], item) for item in run[1:]]) for run in runs]
        result.append(frame(NEW, packed))
    return b"".join(result)


def _longer(kind: int, item: Any) -> Any:
    return [*item, NEW_FIELD] if kind >= FIRST_JOB_KIND and isinstance(item, list) else item
