"""Iterators over queues and jobs."""

from __future__ import annotations

import asyncio

import pytest

from client_node import HANG_UP, JOB_A, JOB_B, Node, bulk, in_turn
from disque_py.client import AsyncDisque
from disque_py.client.errors import ConnectionLostError


def page(cursor, *items):
    """A reply of QSCAN or JSCAN."""
    return b"*2\r\n" + bulk(str(cursor)) + b"*%d\r\n" % len(items) + b"".join(items)


def collect(node, scan):
    """All items of an iterator of a client."""

    async def run():
        async with AsyncDisque(node.address, patience=0.1) as client:
            return [item async for item in scan(client)]

    return asyncio.run(run())


def test_a_scan_follows_cursors_to_the_end():
    """The cursor of each leads to the next, 0 ends; empty pages are no end."""
    with Node(answers={"QSCAN": in_turn(page(7, bulk("a")), page(3), page(0, bulk("b")))}) as node:
        assert collect(node, lambda client: client.qscan(minlen=1)) == ["a", "b"]
        assert [words[1] for words in node.named("QSCAN")] == [b"0", b"7", b"3"]
        assert node.named("QSCAN")[1][2:] == [b"MINLEN", b"1"]


def test_jobs_are_scanned_by_state_and_queue():
    """Ids are simple strings on the wire."""
    with Node(answers={"JSCAN": page(0, f"+{JOB_A}\r\n".encode(), f"+{JOB_B}\r\n".encode())}) as node:
        assert collect(node, lambda client: client.jscan(queue="q", states=["queued"])) == [JOB_A, JOB_B]
        assert node.named("JSCAN") == [[b"JSCAN", b"0", b"QUEUE", b"q", b"STATE", b"queued"]]


def test_a_scan_can_return_whole_jobs():
    """Each job has the fields of SHOW."""
    entry = b"*4\r\n" + bulk("id") + bulk(JOB_A) + bulk("state") + bulk("active")
    with Node(answers={"JSCAN": page(0, entry)}) as node:
        (info,) = collect(node, lambda client: client.jscan_info())
        assert (info.id, info.state) == (JOB_A, "active")


def test_a_lost_node_ends_the_scan():
    """Its cursor means nothing to another node."""
    with Node("a", {"QSCAN": in_turn(page(7, bulk("a")), HANG_UP)}) as node, Node("b") as other:
        node.peers = [other]
        with pytest.raises(ConnectionLostError):
            collect(node, lambda client: client.qscan())
        assert other.named("QSCAN") == []
