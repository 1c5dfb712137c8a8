"""disque_py/cli/demo/link.py: batches are sent, and replies come back in order."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from demo_node import StandIn
from disque_py.cli.demo.link import Link, LinkLostError, ask, encode
from disque_py.client import ReplyError


def test_replies_belong_to_batches_in_the_order_they_were_sent():
    """Two batches are in flight at the same time. An error reply is a value like the others."""

    async def story():
        async with StandIn() as node:
            with contextlib.closing(await Link.open(node.port)) as link:
                first = link.call(encode(b"PING") + encode(b"NONSENSE"), 2)
                second = link.call(encode(b"ADDJOB", b"q", b"body", b"0"), 1)
                return await second, await first

    second, first = asyncio.run(story())
    assert second == [b"D-00000000"]
    assert first[0] == b"PONG"
    assert isinstance(first[1], ReplyError)


def test_a_broken_connection_hands_over_the_replies_that_came_before():
    """These commands were certainly executed. The outcome of the rest is unknown."""

    async def story():
        async with StandIn(breaks_after=2) as node:
            link = await Link.open(node.port)
            with pytest.raises(LinkLostError) as lost:
                await link.call(encode(b"PING") * 3, 3)
            with pytest.raises(LinkLostError):
                await link.call(encode(b"PING"), 1)
            return lost.value.replies

    assert asyncio.run(story()) == [b"PONG", b"PONG"]


def test_ask_opens_a_connection_for_one_command():
    """This is for occasional requests."""

    async def story():
        async with StandIn() as node:
            return await ask(node.port, b"PING")

    assert asyncio.run(story()) == b"PONG"
