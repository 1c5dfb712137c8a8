"""Server-sent events: ids, notices and comments."""

from __future__ import annotations

import asyncio

from disque_py.gateway.event_feed import Part
from disque_py.gateway.http.event_stream import event_stream


class Parts:
    """A feed that yields the given parts."""

    def __init__(self, *parts):
        self._parts = parts

    async def parts(self, wanted, idle_s):
        for part in self._parts:
            yield part


def text_of(*parts):
    async def read():
        return b"".join([text async for text in event_stream(Parts(*parts), None)]).decode()

    return asyncio.run(read())


def test_each_event_has_the_place_behind_it_as_its_id():
    text = text_of(Part("a:3", [("a:2", {"event": "added"}), ("a:3", {"event": "acked"})]))
    assert 'id: a:2\nevent: added\ndata: {"event":"added"}\n\nid: a:3\nevent: acked\n' in text


def test_a_quiet_stream_moves_the_place_and_stays_open():
    assert "id: a:9\n: no news\n\n" in text_of(Part("a:9", []))


def test_lost_events_are_reported():
    assert 'event: trimmed\ndata: {"first":7}\n\n' in text_of(Part("a:7", [], "trimmed", {"first": 7}))


def test_a_stream_begins_with_a_place():
    assert text_of(Part("a:9", [])) == "retry: 1000\n\nid: a:9\n: no news\n\n"
    assert text_of(Part("", [])) == "retry: 1000\n\n"
