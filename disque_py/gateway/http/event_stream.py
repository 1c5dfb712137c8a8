"""Server-sent events: the event feed as a stream of text.

The id of each event is the place after it. A browser that connects again sends this id as Last-Event-ID, and misses
nothing. The stream begins with an id, so this works even before the first event. Comments keep the connection open. If
a reader takes nothing for too long, the stream is closed; the reader still has its place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from disque_py.gateway.event_feed import EventFeed, EventFilter

CONTENT_TYPE: Final = "text/event-stream; charset=utf-8"
KEEP_ALIVE_S: Final = 15.0
RETRY: Final = b"retry: 1000\n\n"


async def event_stream(feed: EventFeed, wanted: EventFilter) -> AsyncIterator[bytes]:
    """Yield the bytes of the stream, without end."""
    is_first = True
    async for part in feed.parts(wanted, KEEP_ALIVE_S):
        place = part.place.encode()
        if is_first:
            is_first = False
            yield RETRY
        if part.notice:
            details = msgspec.json.encode(part.details)
            yield b"id: %b\nevent: %b\ndata: %b\n\n" % (place, part.notice.encode(), details)
        elif part.events:
            yield b"".join(
                b"id: %b\nevent: %b\ndata: %b\n\n"
                % (at.encode(), str(event["event"]).encode(), msgspec.json.encode(event))
                for at, event in part.events
            )
        elif place:
            # An id without an event moves the reader's place past events that the filter leaves out.
            yield b"id: %b\n: no news\n\n" % place
