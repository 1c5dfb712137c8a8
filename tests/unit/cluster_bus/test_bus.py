"""cluster_bus/bus.py: nodes on real sockets in one process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bus_exchange import is_whole
from bus_node import BusNode, until
from certificates import self_signed
from cluster_bus import bus as bus_module
from cluster_bus import listening
from cluster_bus.bus import bind_addresses, is_loopback, source_address
from cluster_bus.codec import PROTOCOL_MAX, Decoder, FrameError, Run, encode_run, frame
from cluster_bus.handshake import DIALER, Handshake, Hello
from cluster_bus.messages import GOTJOB, PING
from cluster_bus.node import Node

JOB = frame(PROTOCOL_MAX, [encode_run(GOTJOB, [b"j"])])


def run(story: Callable[[list[BusNode]], Awaitable[None]], *options: dict[str, Any], loop: Any = None) -> None:
    """Run a story with one started node per set of options."""

    async def main() -> None:
        nodes = [await BusNode(**each).start() for each in options]
        try:
            await story(nodes)
        finally:
            for node in nodes:
                await node.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def join(nodes: list[BusNode]) -> None:
    for node in nodes[1:]:
        node.meet(nodes[0])
    await until(lambda: is_whole([node.membership for node in nodes]))
    await until(lambda: all(len(node.bus._incoming) == len(nodes) - 1 for node in nodes))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_three_nodes_join_and_job_messages_arrive_with_their_sender(loop: Any):
    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        first, second, _ = nodes
        first.bus.send(first.known(second), JOB)
        first.bus.send(
            first.known(second), frame(PROTOCOL_MAX, [encode_run(GOTJOB, [b"k"]), encode_run(GOTJOB, [b"l"])])
        )
        await until(lambda: len(second.heard) == 2)
        assert second.heard == [
            (second.known(first), [[GOTJOB, b"j"]]),
            (second.known(first), [[GOTJOB, b"k"], [GOTJOB, b"l"]]),
        ]

    run(story, {"secret": b"s"}, {"secret": b"s"}, {"secret": b"s"}, loop=loop)


def test_a_killed_node_that_comes_back_is_linked_again():
    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        first, second = nodes
        port = second.bus.port
        await second.bus.close()
        await until(lambda: not first.membership.table.linked)
        await until(lambda: first.lost == [first.known(second)])
        await second.bus.listen(["127.0.0.1"], port)
        await until(lambda: first.membership.table.linked)

    run(story, {}, {})


def test_messages_of_a_former_process_are_not_read_once_the_next_one_is_reached():
    """Hand-overs are numbered per process. The new process must not get answers to hand-overs of the old one."""

    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        first, second = nodes
        node = first.known(second)
        old = first.bus._incoming[node.id]
        second.membership.table.me.run = b"another."
        first.bus.dial(node)
        await until(lambda: first.lost == [node] and not old.is_open)
        await until(lambda: node.id in first.bus._incoming)
        assert first.bus._incoming[node.id].peer.run == b"another."

    run(story, {}, {})


@pytest.mark.parametrize("secrets", [(b"one", b"two"), (b"one", b""), (b"", b"two")])
def test_nodes_with_different_secrets_stay_apart_and_say_why(secrets: tuple[bytes, bytes]):
    async def story(nodes: list[BusNode]) -> None:
        nodes[0].meet(nodes[1])
        await until(lambda: any(node.bus.rejected["wrong secret"] for node in nodes))
        assert all(node.membership.table.size == 1 for node in nodes)
        assert any("secret" in line for node in nodes for line in node.log)
        assert not any("<" in line for node in nodes for line in node.log)

    run(story, {"secret": secrets[0]}, {"secret": secrets[1]})


@pytest.mark.parametrize("secrets", [(b"one", b"two"), (b"one", b""), (b"", b"two")])
def test_a_handshake_that_fails_for_its_secret_does_not_say_that_no_node_answers(secrets: tuple[bytes, bytes]):
    async def story(nodes: list[BusNode]) -> None:
        nodes[0].meet(nodes[1])
        table = nodes[0].membership.table
        [met] = [node for node in table.nodes.values() if node is not table.me]
        await until(lambda: "secret" in met.dial_error)

    run(story, {"secret": secrets[0]}, {"secret": secrets[1]})


def test_garbage_is_counted_each_time_and_logged_once():
    async def story(nodes: list[BusNode]) -> None:
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", nodes[0].bus.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
            writer.close()
        await until(lambda: nodes[0].bus.rejected["bad length"] == 3)
        assert len(nodes[0].log) == 1

    run(story, {})


def test_a_meeting_of_a_node_with_itself_leaves_nothing():
    async def story(nodes: list[BusNode]) -> None:
        nodes[0].meet(nodes[0])
        await until(lambda: len(nodes[0].membership.table.nodes) == 1)

    run(story, {})


def test_a_forgotten_node_may_not_send_jobs():
    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        first, second = nodes
        first._begin().forget(first.known(second))
        await until(lambda: not second.known(first).is_linked)
        await until(lambda: second.known(first).is_linked)  # It dials again, as a stranger now.
        second.bus.send(second.known(first), JOB)
        await until(lambda: first.bus.rejected["stranger"])
        assert first.heard == []

    run(story, {}, {})


def test_membership_and_job_messages_in_one_frame_keep_their_order():
    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        first, second = nodes
        told: list[int] = []
        second.on_membership = lambda *heard: told.append(len(second.heard))  # type: ignore[method-assign]  # spy
        ping, job = encode_run(PING, [0]), encode_run(GOTJOB, [b"j"])
        first.bus.send(first.known(second), frame(PROTOCOL_MAX, [job, ping, job, job]))
        await until(lambda: len(second.heard) == 2)
        assert [len(runs) for _, runs in second.heard] == [1, 2]
        assert 1 in told

    run(story, {}, {})


def test_a_malformed_item_closes_the_link():
    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        first, second = nodes

        def refuse(sender: Node, runs: list[Run]) -> None:
            raise FrameError("bad item", "an id too short")

        second.on_runs = refuse  # type: ignore[method-assign]  # the core's part
        first.bus.send(first.known(second), JOB)
        await until(lambda: second.bus.rejected["bad item"])
        await until(lambda: first.known(second).is_linked)

    run(story, {}, {})


def test_a_frame_larger_than_the_node_takes_is_not_sent_others_with_it_are():
    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        first, second = nodes
        small, large = (
            frame(PROTOCOL_MAX, [encode_run(GOTJOB, [bytes(8_000)])]),
            frame(PROTOCOL_MAX, [encode_run(GOTJOB, [bytes(20_000)])]),
        )
        first.bus.send(first.known(second), small + large + small + JOB)
        await until(lambda: len(second.heard) == 3)
        assert first.bus.rejected["frame too large for the node"] == 1

    run(story, {}, {"frame_bytes_max": 10_000})


def test_a_stalled_node_is_cut_off_when_too_much_is_unsent():
    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        first, second = nodes
        incoming = second.bus._incoming[first.membership.table.me.id]
        assert incoming._transport is not None
        incoming._transport.pause_reading()
        for _ in range(64):
            first.bus.send(first.known(second), frame(PROTOCOL_MAX, [encode_run(GOTJOB, [bytes(1 << 20)])]))
        await until(lambda: first.bus.rejected["too much unsent"])
        await until(lambda: first.known(second).is_linked)

    run(story, {"unsent_bytes_max": 1 << 20}, {})


def test_connections_that_prove_nothing_are_few(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bus_module, "UNPROVED_LINKS_MAX", 2)

    async def story(nodes: list[BusNode]) -> None:
        writers = [(await asyncio.open_connection("127.0.0.1", nodes[0].bus.port))[1] for _ in range(3)]
        await until(lambda: nodes[0].bus.rejected["too many handshakes"] == 1)
        for writer in writers:
            writer.close()

    run(story, {})


def test_of_too_many_unproved_connections_the_oldest_is_closed(monkeypatch: pytest.MonkeyPatch):
    """A peer that only holds connections open must not keep nodes out. A node proves itself within milliseconds."""
    monkeypatch.setattr(bus_module, "UNPROVED_LINKS_MAX", 2)

    async def story(nodes: list[BusNode]) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", nodes[0].bus.port) for _ in range(2)]
        await join(nodes)
        assert len(await idle[0][0].read()) < 1000  # The node's HELLO, then the end.
        for _, writer in idle:
            writer.close()

    run(story, {}, {})


async def stranger(node: BusNode) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection that passed the handshake under a new id and has sent nothing else."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.bus.port)
    shake = Handshake(DIALER, Hello(os.urandom(20), b"run-one-", "", 1, 1), os.urandom(16), b"")
    decoder = Decoder(versions=(0, 0))
    writer.write(shake.first_frame())
    while not shake.is_done:
        for runs in decoder.feed(await reader.read(4096)):
            writer.write(shake.receive(runs))
    await writer.drain()
    return reader, writer


def test_of_too_many_strangers_the_oldest_is_closed(monkeypatch: pytest.MonkeyPatch):
    """Any peer can connect under any number of ids. Descriptors are reserved for nodes and clients."""
    monkeypatch.setattr(bus_module, "STRANGER_LINKS_MAX", 2)

    async def story(nodes: list[BusNode]) -> None:
        links = [await stranger(nodes[0]) for _ in range(3)]
        assert await links[0][0].read() == b""
        await until(lambda: nodes[0].bus.rejected["too many strangers"] == 1)
        assert len(nodes[0].bus._incoming) == len(nodes[0].bus._strangers) == 2
        for _, writer in links:
            writer.close()
        await until(lambda: not nodes[0].bus._incoming and not nodes[0].bus._strangers)

    run(story, {})


def test_a_stranger_that_leaves_without_a_word_is_reported():
    """It expected another node at this address."""

    async def story(nodes: list[BusNode]) -> None:
        _, writer = await stranger(nodes[0])
        await until(lambda: nodes[0].bus._strangers)
        writer.close()
        await until(lambda: "expected-another" in [name for name, _ in nodes[0].membership.tray.notices])

    run(story, {})


def test_a_node_that_was_not_reached_may_not_begin_a_long_frame():
    """Otherwise a thousand unfinished frames could take a thousand times 65 MiB."""

    async def story(nodes: list[BusNode]) -> None:
        reader, writer = await stranger(nodes[0])
        writer.write((1 << 20).to_bytes(4, "big") + b"\1")
        assert await reader.read() == b""
        assert nodes[0].bus.rejected["bad length"] == 1
        writer.close()

    run(story, {})


def test_a_node_that_was_reached_may_send_long_frames():
    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        first, second = nodes
        first.bus.send(first.known(second), frame(PROTOCOL_MAX, [encode_run(GOTJOB, [bytes(3 << 20)])]))
        await until(lambda: second.heard)
        assert not second.bus.rejected

    run(story, {}, {})


def test_hanging_up_while_dialing_reports_nothing():
    async def story(nodes: list[BusNode]) -> None:
        bus, reports = nodes[0].bus, []
        nodes[0].on_link_down = reports.append  # type: ignore[method-assign]  # spy
        target = Node(b"x" * 20, "127.0.0.1", 1, nodes[0].bus.port)
        bus.dial(target)
        bus.hang_up(target)
        bus.dial(target)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        bus.hang_up(target)
        await asyncio.sleep(0.1)
        assert reports == []
        assert (bus._attempts, bus._outgoing) == ({}, {})

    run(story, {})


def test_an_address_that_refuses_and_an_unknown_host_name_are_reported():
    async def story(nodes: list[BusNode]) -> None:
        bus, reports = nodes[0].bus, []
        nodes[0].on_link_down = reports.append  # type: ignore[method-assign]  # spy
        refusing, nameless = Node(b"x" * 20, "127.0.0.1", 1, 1), Node(b"y" * 20, "x" * 70 + ".invalid", 1, 1)
        bus.dial(refusing)
        bus.dial(nameless)
        await until(lambda: len(reports) == 2)
        assert {node.id for node in reports} == {refusing.id, nameless.id}
        assert refusing.dial_error == os.strerror(errno.ECONNREFUSED)
        assert nameless.dial_error

    run(story, {})


def test_a_second_link_of_a_node_replaces_its_first():
    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        first, second = nodes
        older = second.bus._incoming[first.membership.table.me.id]
        first.bus.dial(first.known(second))
        assert first.known(second) not in first.bus._ready
        await until(lambda: first.known(second) in first.bus._ready)
        await until(lambda: not older.is_open)
        first.bus.send(first.known(second), JOB)
        await until(lambda: second.heard)

    run(story, {}, {})


def test_links_may_be_encrypted(tmp_path: Path):
    cert, key = self_signed(tmp_path, names="IP:127.0.0.1")
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(cert, key)
    client_tls = ssl.create_default_context(cafile=str(cert))

    async def story(nodes: list[BusNode]) -> None:
        await join(nodes)
        nodes[0].bus.send(nodes[0].known(nodes[1]), JOB)
        await until(lambda: nodes[1].heard)

    options = {"server_tls": server_tls, "client_tls": client_tls, "secret": b"s"}
    run(story, options, options)


def test_silent_connections_with_tls_are_limited(monkeypatch):
    """A link is counted only when its handshake is over. Unfinished handshakes once used up the node's descriptors."""
    monkeypatch.setattr(listening, "HANDSHAKES_MAX", 2)

    async def story(nodes: list[BusNode]) -> None:
        talks = []
        for _ in range(4):
            talks.append(await asyncio.open_connection("127.0.0.1", nodes[0].bus.port))
            await asyncio.sleep(0.02)
        for reader, _ in talks[:2]:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert not talks[3][0].at_eof()
        for _, writer in talks:
            writer.close()

    run(story, {"server_tls": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, loop=uvloop.new_event_loop)


def test_a_port_in_use_is_an_error_that_leaves_nothing_behind():
    async def story(nodes: list[BusNode]) -> None:
        second = BusNode()
        with pytest.raises(OSError, match="in use"):
            await second.bus.listen(["127.0.0.1"], nodes[0].bus.port)
        assert second.bus._servers == []

    run(story, {})


@pytest.mark.parametrize(
    ("bind", "has_secret", "protected", "expected"),
    [
        ([], False, True, ["127.0.0.1", "::1"]),
        ([], True, True, ["0.0.0.0", "::"]),
        ([], False, False, ["0.0.0.0", "::"]),
        (["10.0.0.1"], False, True, ["127.0.0.1", "::1"]),
        (["10.0.0.1", "127.0.0.2"], False, True, ["127.0.0.2"]),
        (["10.0.0.1"], True, True, ["10.0.0.1"]),
        (["10.0.0.1"], False, False, ["10.0.0.1"]),
    ],
)
def test_without_a_secret_the_bus_stays_on_loopback(
    bind: list[str], has_secret: bool, protected: bool, expected: list[str]
):
    """Spec S2."""
    assert bind_addresses(bind, has_secret=has_secret, protected_mode=protected) == expected


def test_loopback_is_known_by_number_and_by_name():
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("10.0.0.1", "::", "example.org"))


@pytest.mark.parametrize(
    ("binds", "target", "source"),
    [
        ([], "10.0.0.9", None),
        (["0.0.0.0"], "10.0.0.9", None),
        (["10.0.0.1"], "10.0.0.9", "10.0.0.1"),
        (["127.0.0.1", "10.0.0.1"], "10.0.0.9", "10.0.0.1"),
        (["127.0.0.2"], "127.0.0.1", "127.0.0.2"),
        (["127.0.0.1"], "10.0.0.9", None),
        (["name", "fd00::1"], "10.0.0.9", None),
    ],
)
def test_a_node_dials_from_the_address_others_shall_reach_it_at(binds: list[str], target: str, source: str | None):
    assert source_address(binds, target) == source
