"""cluster_bus/link.py: one connection over real sockets, and its possible failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from bus_node import until
from cluster_bus import link as link_module
from cluster_bus.codec import FRAME_BYTES_MAX, PROTOCOL_MAX, FrameError, Run, encode_run, frame
from cluster_bus.handshake import ACCEPTOR, DIALER, HANDSHAKE_BYTES_MAX, Handshake, Hello
from cluster_bus.link import PUMP_BYTES, Link
from cluster_bus.messages import GOTJOB, PING
from cluster_bus.node import FORGOTTEN, UNKNOWN, Node

A = Hello(b"a" * 20, b"run-a---", "", 7711, 17711)
B = Hello(b"b" * 20, b"run-b---", "", 7712, 17712)


class Owner:
    """A LinkOwner that records its calls, in order."""

    def __init__(self, frames_max: int = 1 << 30) -> None:
        self.opened: list[Link] = []
        self.ready: list[Link] = []
        self.frames: list[list[Run]] = []
        self.jobs: list[tuple[Node, list[Run]]] = []
        self.lost: list[tuple[str, str]] = []
        self.frames_max = frames_max

    def link_opened(self, link: Link) -> None:
        self.opened.append(link)

    def link_ready(self, link: Link) -> None:
        self.ready.append(link)

    def link_frame(self, link: Link, runs: list[Run]) -> None:
        if len(self.frames) == self.frames_max:
            raise FrameError("too much")
        self.frames.append(runs)

    def link_jobs(self, sender: Node, runs: list[Run]) -> None:
        self.jobs.append((sender, runs))

    def link_lost(self, link: Link, reason: str, detail: str) -> None:
        self.lost.append((reason, detail))


def run(
    story: Callable[[Owner, Any], Awaitable[None]], secret: bytes = b"", frames_max: int = 1 << 30, **options: Any
) -> Owner:
    """Run a story about an acceptor that listens at `address`, on 127.0.0.1. Return the acceptor's owner."""

    async def main() -> Owner:
        owner = Owner(frames_max)
        server = await asyncio.get_running_loop().create_server(
            lambda: Link(owner, Handshake(ACCEPTOR, B, b"n" * 16, secret), **options), "127.0.0.1", 0
        )
        try:
            await story(owner, server.sockets[0].getsockname())
        finally:
            for link in owner.opened:
                link.drop()
            server.close()
            await asyncio.sleep(0)
        return owner

    return asyncio.run(main())


async def dial(address: Any, secret: bytes = b"", **options: Any) -> tuple[Owner, Link]:
    owner = Owner()
    _, link = await asyncio.get_running_loop().create_connection(
        lambda: Link(owner, Handshake(DIALER, A, b"m" * 16, secret), Node(B.id), **options), *address
    )
    return owner, link


@pytest.mark.parametrize("secret", [b"", b"s"])
def test_after_the_handshake_each_end_knows_the_other_and_frames_flow(secret: bytes):
    async def story(acceptor: Owner, address: Any) -> None:
        dialer, link = await dial(address, secret)
        await until(lambda: dialer.ready and acceptor.ready)
        assert (link.peer, acceptor.ready[0].peer) == (B, A)
        assert link.peer_host == acceptor.ready[0].local_host == "127.0.0.1"
        link.write(frame(PROTOCOL_MAX, [encode_run(GOTJOB, [b"j"])]))
        await until(lambda: acceptor.frames)
        link.drop()
        await until(lambda: acceptor.lost)

    owner = run(story, secret)
    assert owner.frames == [[[GOTJOB, b"j"]]]
    assert owner.lost == [("", "")]


def test_only_frames_of_job_messages_from_a_known_node_take_the_short_path():
    node = Node(A.id)

    async def story(acceptor: Owner, address: Any) -> None:
        dialer, link = await dial(address)
        await until(lambda: dialer.ready and acceptor.ready)
        for number, flags in enumerate((None, 0, FORGOTTEN, UNKNOWN)):
            acceptor.ready[0].node = None if flags is None else node
            node.flags = flags or 0
            link.write(frame(PROTOCOL_MAX, [encode_run(GOTJOB, [b"%d" % number])]))
            await until(partial(arrived, acceptor, number + 1))
        node.flags = 0
        link.write(frame(PROTOCOL_MAX, [encode_run(GOTJOB, [b"with a ping"]), encode_run(PING, [1])]))
        await until(partial(arrived, acceptor, 5))

    def arrived(acceptor: Owner, count: int) -> bool:
        return len(acceptor.frames) + len(acceptor.jobs) == count

    owner = run(story)
    assert owner.jobs == [(node, [[GOTJOB, b"1"]])]
    assert [runs[0][1] for runs in owner.frames] == [b"0", b"2", b"3", b"with a ping"]


@pytest.mark.parametrize(("mine", "theirs"), [(b"one", b"two"), (b"one", b""), (b"", b"two")])
def test_with_different_secrets_neither_end_becomes_ready(mine: bytes, theirs: bytes):
    async def story(acceptor: Owner, address: Any) -> None:
        dialer, _ = await dial(address, mine)
        await until(lambda: dialer.lost and acceptor.lost)
        assert dialer.ready == acceptor.ready == []
        assert "wrong secret" in {dialer.lost[0][0], acceptor.lost[0][0]}

    run(story, theirs)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PING\r\n", "bad length"),
        (b"\0\0\0\x40GET / HTTP", "bad version"),
        ((HANDSHAKE_BYTES_MAX + 6).to_bytes(4, "big"), "bad length"),
        (frame(PROTOCOL_MAX, [encode_run(GOTJOB, [b"j"])]), "bad version"),
        (frame(0, [encode_run(GOTJOB, [b"j"])]), "bad handshake"),
    ],
)
def test_garbage_on_the_port_closes_the_connection_and_says_why(data: bytes, reason: str):
    async def story(acceptor: Owner, address: Any) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(data)
        await reader.read()  # The acceptor's HELLO, then the end.
        writer.close()
        await until(lambda: acceptor.lost)

    owner = run(story)
    assert owner.lost[0][0] == reason
    assert owner.ready == owner.frames == []


@pytest.mark.plain
def test_a_silent_connection_is_closed_when_the_time_for_the_handshake_is_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(link_module, "HANDSHAKE_SECONDS", 0.05)

    async def story(acceptor: Owner, address: Any) -> None:
        reader, writer = await asyncio.open_connection(*address)
        await reader.read()
        writer.close()
        await until(lambda: acceptor.lost)

    assert run(story).lost == [("handshake time-out", "no proof in time")]


def test_frames_right_behind_the_proof_are_read_and_large_ones_refused():
    """The dialer does not wait after its proof, so its first frames may come in the same packet."""

    async def story(acceptor: Owner, address: Any) -> None:
        _, link = await dial(address)
        await until(lambda: link.peer)
        link.write(frame(PROTOCOL_MAX, [encode_run(GOTJOB, [bytes(900)])]))
        link.write(frame(PROTOCOL_MAX, [encode_run(GOTJOB, [bytes(2000)])]))
        await until(lambda: acceptor.lost)

    owner = run(story, frame_bytes_max=1000)
    assert len(owner.frames) == 1
    assert owner.lost[0][0] == "bad length"


def test_a_frame_error_of_the_owner_closes_the_link():
    async def story(acceptor: Owner, address: Any) -> None:
        _, link = await dial(address)
        await until(lambda: link.peer)
        link.write(frame(PROTOCOL_MAX, [encode_run(GOTJOB, [b"j"])]) * 3)
        await until(lambda: acceptor.lost)

    owner = run(story, frames_max=1)
    assert len(owner.frames) == 1
    assert owner.lost[0][0] == "too much"


def test_frames_from_an_acceptor_are_refused():
    async def story(acceptor: Owner, address: Any) -> None:
        dialer, _ = await dial(address)
        await until(lambda: acceptor.ready)
        acceptor.ready[0].write(frame(PROTOCOL_MAX, [encode_run(GOTJOB, [b"j"])]))
        await until(lambda: dialer.lost)
        assert dialer.lost[0][0] == "unexpected frame"

    run(story)


def test_a_node_that_does_not_read_is_cut_off_at_the_bound():
    async def story(acceptor: Owner, address: Any) -> None:
        dialer, link = await dial(address, unsent_bytes_max=1 << 20)
        await until(lambda: link.peer and acceptor.ready)
        transport = acceptor.ready[0]._transport
        assert transport is not None
        transport.pause_reading()
        for _ in range(64):
            link.write(frame(PROTOCOL_MAX, [encode_run(GOTJOB, [bytes(1 << 20)])]))
        await until(lambda: dialer.lost)
        assert dialer.lost[0][0] == "too much unsent"
        link.write(b"more")  # It is ignored.

    run(story)


def test_a_flood_of_frames_is_decoded_in_parts_and_in_order():
    """Other links get a turn after PUMP_BYTES. The pause loses or reorders no frame."""
    frames = [frame(PROTOCOL_MAX, [encode_run(GOTJOB, [at, bytes(5000)])]) for at in range(400)]

    async def story(acceptor: Owner, address: Any) -> None:
        _, link = await dial(address)
        await until(lambda: link.peer and acceptor.ready)
        acceptor.ready[0].data_received(b"".join(frames))
        first_slice = len(acceptor.frames)
        assert first_slice <= PUMP_BYTES // 5000 + 1
        acceptor.ready[0].data_received(frame(PROTOCOL_MAX, [encode_run(GOTJOB, [400])]))
        assert len(acceptor.frames) == first_slice
        await until(lambda: len(acceptor.frames) == 401)

    owner = run(story)
    assert [runs[0][1] for runs in owner.frames] == list(range(401))


def test_dropping_during_a_pause_ends_the_reading():
    async def story(acceptor: Owner, address: Any) -> None:
        _, link = await dial(address)
        await until(lambda: link.peer and acceptor.ready)
        acceptor.ready[0].data_received(frame(PROTOCOL_MAX, [encode_run(GOTJOB, [bytes(5000)])]) * 200)
        acceptor.ready[0].drop()
        count = len(acceptor.frames)
        await asyncio.sleep(0.05)
        assert len(acceptor.frames) == count

    assert run(story).lost == []


def test_the_default_bounds_hold_a_job_of_64_mebibytes():
    assert FRAME_BYTES_MAX > 64 << 20
