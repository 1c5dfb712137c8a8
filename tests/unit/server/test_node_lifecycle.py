"""The life of a node in this process, from start to end. See tests/integration/test_start.py for real processes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket

import pytest

from disque_py.config.settings import Settings
from disque_py.server.host import Ending
from disque_py.server.node_lifecycle import NodeLifecycle
from disque_py.server.settings_file import Configuration
from disque_py.server.start_error import StartError


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Settings of a node on free loopback ports. Afterwards the state of the process is restored."""
    monkeypatch.chdir(tmp_path)
    settings = Settings()
    with socket.create_server(("127.0.0.1", 0)) as client, socket.create_server(("127.0.0.1", 0)) as bus:
        settings.port = client.getsockname()[1]
        settings.cluster_port = bus.getsockname()[1]
    settings.bind = ("127.0.0.1",)
    hangup = signal.getsignal(signal.SIGHUP)
    yield settings
    signal.signal(signal.SIGHUP, hangup)
    gc.enable()
    gc.unfreeze()


def live(settings, visit):
    """Run a node, and `await visit(node)` while it serves. Return how it ended."""

    async def main():
        ready = asyncio.Event()
        node = NodeLifecycle(Configuration(settings), may_restart=True, on_ready=ready.set)
        life = asyncio.create_task(node.run())
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait([life, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not life.done():
            await visit(node)
            node.stop(Ending())
        waiting.cancel()
        return await life

    return asyncio.run(main())


async def ask(settings, words):
    """Send an inline command. Return the first bytes of its reply."""
    reader, writer = await asyncio.open_connection("127.0.0.1", settings.port)
    writer.write(words + b"\r\n")
    reply = await reader.read(1000)
    writer.close()
    return reply


def test_a_node_serves_until_it_is_stopped(settings):
    async def visit(node):
        assert await ask(settings, b"PING") == b"+PONG\r\n"

    assert live(settings, visit) == Ending(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", settings.port))


def test_a_command_may_end_the_node(settings):
    async def visit(node):
        assert await ask(settings, b"SHUTDOWN") == b""
        await asyncio.sleep(0.1)

    assert live(settings, visit) == Ending(0)


def test_no_watchdog_outlives_the_node(settings):
    """The watchdog's alarm once ended the program that DEBUG RESTART had started, which had no handler for it."""
    before = signal.getsignal(signal.SIGALRM)

    async def visit(node):
        assert await ask(settings, b"CONFIG SET watchdog-period 500") == b"+OK\r\n"
        assert signal.getitimer(signal.ITIMER_REAL)[1] > 0

    try:
        live(settings, visit)
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_node_with_a_journal_takes_no_job_before_it_was_read(settings):
    """Other nodes may send jobs before the journal is loaded. The node ignores these jobs."""
    settings.appendonly = True
    seen = []

    class Watched(NodeLifecycle):
        async def _open_bus(self):
            seen.append(self._broker.is_loading)
            await super()._open_bus()
            self.stop(Ending())

    assert asyncio.run(Watched(Configuration(settings), may_restart=True).run()) == Ending(0)
    assert seen == [True]


def test_the_id_of_a_node_is_on_disk_before_other_nodes_see_it_and_stays(settings, tmp_path):
    seen = []

    async def visit(node):
        reply = await ask(settings, b"CLUSTER MYID")
        seen.append(reply)
        assert reply.split()[1] in (tmp_path / "nodes.conf").read_bytes()

    live(settings, visit)
    live(settings, visit)
    assert seen[0] == seen[1]


def test_ports_and_address_may_be_announced_as_others_than_they_are(settings, tmp_path):
    settings.cluster_announce_ip = "203.0.113.7"
    settings.cluster_announce_port = 1
    settings.cluster_announce_bus_port = 2

    async def visit(node):
        pass

    live(settings, visit)
    assert "203.0.113.7:1 myself 0 0 connected bus-port=2\n" in (tmp_path / "nodes.conf").read_text()


def test_a_port_that_is_taken_is_found_before_anything_is_changed(settings, tmp_path):
    with socket.create_server(("127.0.0.1", settings.port)), pytest.raises(StartError, match="can't accept clients"):
        live(settings, None)
    assert not (tmp_path / "nodes.conf").exists()


def test_a_bus_port_that_is_taken_is_reported(settings):
    with (
        socket.create_server(("127.0.0.1", settings.cluster_port)),
        pytest.raises(StartError, match=f"can't accept other nodes on port {settings.cluster_port} of 127.0.0.1: Addr"),
    ):
        live(settings, None)


def test_a_journal_that_cannot_be_opened_is_named(settings, tmp_path):
    settings.appendonly = True
    (tmp_path / "disque.aof.d").write_text("a file")
    with pytest.raises(StartError, match=rf"can't open the journal: {tmp_path}/disque.aof.d: File exists"):
        live(settings, None)


def test_a_node_that_cannot_write_its_nodes_file_does_not_start(settings, tmp_path):
    (tmp_path / "nodes.conf.new").mkdir()
    with pytest.raises(StartError, match=r"can't write the nodes file .*: Is a directory"):
        live(settings, None)


def test_a_full_disk_does_not_keep_a_node_with_a_saved_id_from_starting(settings, tmp_path, caplog):
    async def look(node):
        assert (tmp_path / "nodes.conf").exists()

    live(settings, look)
    (tmp_path / "nodes.conf.new").symlink_to("/dev/full")
    caplog.set_level(logging.DEBUG)

    async def visit(node):
        assert await ask(settings, b"PING") == b"+PONG\r\n"
        while "can't write the nodes file" not in caplog.text:
            await asyncio.sleep(0.01)
        (tmp_path / "nodes.conf.new").unlink()

    assert live(settings, visit).status == 0


def test_an_exception_in_a_turn_stops_the_node_with_a_traceback(settings, caplog):
    """The broker's state can't be trusted after an exception. The service manager restarts the process."""

    async def visit(node):
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(0.05)

    assert live(settings, visit) == Ending(1, is_graceful=False)
    assert "a mistake in the program, the node stops" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_an_exception_for_one_connection_costs_only_that(settings, caplog):
    async def visit(node):
        context = {"message": "data_received() failed", "exception": ValueError("odd"), "protocol": object()}
        asyncio.get_running_loop().call_exception_handler(context)
        assert await ask(settings, b"PING") == b"+PONG\r\n"

    assert live(settings, visit) == Ending(0)
    assert "the connection is closed: data_received() failed" in caplog.text


def test_an_error_of_a_connection_is_not_logged_as_a_defect(settings, caplog):
    async def visit(node):
        context = {"message": "TLS", "exception": ConnectionResetError("reset")}
        asyncio.get_running_loop().call_exception_handler(context)

    with caplog.at_level(logging.INFO):
        assert live(settings, visit) == Ending(0)
    assert "mistake" not in caplog.text


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"maxmemory": 100}, "maxmemory is 100 bytes; is a unit missing?"),
        ({"bind": ()}, "only clients of this machine are served"),
        ({"bind": ()}, "other nodes are accepted on loopback addresses only"),
        ({"port": 0}, "no client can connect"),
        ({"tcp_backlog": 65_535}, "is cut to"),
    ],
)
def test_settings_that_are_probably_mistakes_get_a_warning(settings, caplog, changes, warning):
    async def visit(node):
        pass

    for name, value in changes.items():
        setattr(settings, name, value)
    live(settings, visit)
    assert warning in caplog.text


def test_a_usual_start_warns_of_nothing(settings, caplog):
    settings.tcp_backlog = 100

    async def visit(node):
        pass

    with caplog.at_level(logging.WARNING):
        live(settings, visit)
    shown = [text for text in caplog.messages if not text.startswith("this node stood still")]  # A busy machine.
    assert shown == ["the node has stopped, bye bye"]


def test_signals_end_the_node(settings):
    async def visit(node):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)

    assert live(settings, visit) == Ending(0)
