"""server/connection.py: limits of memory and time for one client, and when the node closes its connection."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Coroutine
from random import Random
from typing import Any

import hiredis
import pytest

from disque_py.config.kinds import OutputLimit, OutputLimits
from disque_py.core.access_log import FAILURES_MAX
from disque_py.core.client import RUNNING, WAITS_FOR_JOBS, Client
from disque_py.server import connection as connection_module
from disque_py.server.connection import BACKLOG_BYTES_MAX, PAUSE_BYTES
from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from disque_py.storage.journal_service import JournalService
from loopback import Loopback, Talk, encode, fill, serve, until


async def stuffed(server: Loopback) -> tuple[Talk, Client]:
    """Return a client that requested 300 replies of 200,000 bytes and reads none, and its object in the broker."""
    await fill(server, 200_000)
    talk, client = await server.connect_known()
    talk.reader._transport.pause_reading()
    talk.send(*["QPEEK big 1"] * 300)
    await until(lambda: client.port.output_bytes() > PAUSE_BYTES)
    return talk, client


def test_a_client_that_does_not_read_is_not_served_any_further():
    """The buffered replies stop growing at about a megabyte, and continue when the client reads (spec B1).

    Twenty such clients used 3 GB of the original's memory (spec Q41).
    """

    async def story(server):
        talk, client = await stuffed(server)
        await asyncio.sleep(0.1)
        # If only time ended a slice, one slice of a pipeline would produce 4 to 10 MB of replies.
        assert client.port.output_bytes() < 2 * PAUSE_BYTES
        calls = server.broker.commands[b"qpeek"].calls
        assert calls < 150
        await asyncio.sleep(0.05)
        assert server.broker.commands[b"qpeek"].calls == calls
        talk.reader._transport.resume_reading()
        replies = await talk.replies(300)
        assert all(len(reply[0][2]) == 200_000 for reply in replies)

    serve(story)


def test_a_client_that_does_not_read_delays_no_other_client():
    async def story(server):
        await stuffed(server)
        other = await server.connect()
        other.send(*["PING"] * 100)
        assert len(await other.replies(100)) == 100

    serve(story)


TOO_LONG = b"-ERR Protocol error: invalid bulk length, at most %d bytes (proto-max-bulk-len)\r\n"
JOURNAL = {"appendonly": True, "appendfsync": "always"}


async def journaled(server: Loopback) -> InlineDisk:
    """Give the node a journal, on a disk that works when a test says so, and a job of 200,000 bytes in queue `big`."""
    disk = InlineDisk(SimFolder(Random(1)))
    ready: list[bool] = []
    service = JournalService(server.driver, lambda: disk, disk.folder.close, lambda line: None, reserve_bytes=0)
    server.driver.begin()
    service.start(lambda: ready.append(True), ready.extend)
    while not ready:
        disk.run()
        await asyncio.sleep(0.001)
    await with_disk(disk, fill(server, 200_000))
    return disk


async def with_disk(disk: InlineDisk, story: Coroutine[Any, Any, Any]) -> Any:
    """Let the disk work until the story is over, and return its result."""
    task = asyncio.ensure_future(story)
    while not task.done():
        disk.run()
        await asyncio.sleep(0.001)
    return task.result()


def test_replies_behind_a_disk_that_hangs_are_bounded():
    """The pipeline stops at about a megabyte, uses no time meanwhile, and goes on when the disk does (spec B1)."""

    async def story(server):
        disk = await journaled(server)
        talk, client = await server.connect_known()
        talk.send("ADDJOB q x 0", *["QPEEK big 1"] * 300)
        await until(lambda: client.held_bytes > PAUSE_BYTES)
        turns = server.driver.turns
        await asyncio.sleep(0.1)
        assert server.driver.turns < turns + 50
        assert client.held_bytes < 2 * PAUSE_BYTES
        replies = await with_disk(disk, talk.replies(301))
        assert all(len(reply[0][2]) == 200_000 for reply in replies[1:])

    serve(story, **JOURNAL)


def test_replies_behind_a_disk_that_hangs_are_bounded_for_single_commands_too():
    async def story(server):
        disk = await journaled(server)
        talk, client = await server.connect_known()
        talk.send("ADDJOB q x 0")
        for _ in range(30):
            talk.send("QPEEK big 1")
            await asyncio.sleep(0.005)
        assert client.held_bytes < 2 * PAUSE_BYTES
        assert len(await with_disk(disk, talk.replies(31))) == 31
        talk.send("PING")
        assert await talk.reply() == b"PONG"

    serve(story, **JOURNAL)


def test_a_client_that_a_failing_disk_has_paused_goes_on_when_the_disk_is_well_again():
    async def story(server):
        disk = await journaled(server)
        talk, client = await server.connect_known()
        talk.send("ADDJOB q x 0", *["QPEEK big 1"] * 30)
        await until(lambda: client.held_bytes > PAUSE_BYTES)
        disk.folder.fail("write create", errno.EIO, times=2)
        disk.run()
        assert server.driver.journal.error
        replies = await with_disk(disk, talk.replies(31))
        assert isinstance(replies[0], bytes)
        assert not server.driver.journal.error

    serve(story, **JOURNAL)


def test_a_client_that_closed_its_end_gets_all_replies_that_waited_for_the_disk():
    async def story(server):
        disk = await journaled(server)
        talk, client = await server.connect_known()
        talk.send("ADDJOB q x 0", *["QPEEK big 1"] * 30)
        talk.writer.write_eof()
        await until(lambda: client.held_bytes > PAUSE_BYTES)
        rest = await with_disk(disk, talk.rest())
        assert len(rest) > 30 * 200_000

    serve(story, **JOURNAL)


def test_lines_of_monitor_that_wait_for_the_disk_count_for_the_limit_of_its_class():
    """They are behind the reply to an ADDJOB of the same connection (spec B2, P3)."""

    async def story(server):
        await journaled(server)
        monitor, client = await server.connect_known()
        monitor.send("ADDJOB q x 0", "MONITOR")
        await until(lambda: client.is_monitor)
        talk = await server.connect()
        for _ in range(400):
            talk.write(encode("PING", b"x" * 15_000))
            await talk.reply()
            if client.id not in server.broker.clients:
                break
        await until(lambda: client.id not in server.broker.clients)
        assert (client.held, client.held_bytes) == (None, 0)

    serve(story, client_output_buffer_limit=limits(stream=(2 << 20, 0, 0)), **JOURNAL)


def test_replies_that_wait_for_the_disk_are_dropped_with_their_connection():
    """Otherwise clients that are cut off and come again would fill the memory while a disk hangs."""

    async def story(server):
        await journaled(server)
        talk, client = await server.connect_known()
        talk.send("ADDJOB q x 0", "QPEEK big 1")
        await until(lambda: client.held_bytes > 200_000)
        client.port.close(after_replies=False)
        await until(lambda: client.id not in server.broker.clients)
        assert (client.held, client.held_bytes) == (None, 0)

    serve(story, **JOURNAL)


def limits(stream=(0, 0, 0), normal=(0, 0, 0)):
    return OutputLimits(normal=OutputLimit(*normal), stream=OutputLimit(*stream))


def test_a_monitor_that_does_not_read_is_cut_off_at_the_limit_of_its_class():
    """MONITOR output has no back-pressure (spec B2)."""

    async def story(server):
        monitor, client = await server.connect_known()
        monitor.send("MONITOR")
        await monitor.reply()
        monitor.reader._transport.pause_reading()
        talk = await server.connect()
        for _ in range(800):
            talk.write(encode("PING", b"x" * 15_000))
            if client.id not in server.broker.clients:
                break
            await talk.reply()
        await until(lambda: client.id not in server.broker.clients)
        assert server.broker.monitors == {}

    serve(story, client_output_buffer_limit=limits(stream=(2 << 20, 0, 0)))


@pytest.mark.plain
def test_a_client_above_the_soft_limit_for_too_long_is_cut_off(monkeypatch):
    async def story(server):
        _, client = await stuffed(server)
        port = client.port
        started_s = connection_module.now_s()
        port.look_after(server.broker.now_ms, 0)
        await asyncio.sleep(0)
        assert client.id in server.broker.clients
        monkeypatch.setattr(connection_module, "now_s", lambda: started_s + 61)
        port.look_after(server.broker.now_ms, 0)
        await until(lambda: client.id not in server.broker.clients)

    serve(story, client_output_buffer_limit=limits(normal=(0, 1 << 20, 60)))


def test_a_limit_below_the_bytes_that_pause_a_client_counts_too():
    async def story(server):
        await fill(server, 100_000)
        talk, client = await server.connect_known()
        talk.reader._transport.pause_reading()
        while not client.port.output_bytes():
            talk.send("QPEEK big 1")
            await asyncio.sleep(0.002)
        assert client.port.output_bytes() < PAUSE_BYTES
        server.broker.settings.client_output_buffer_limit = limits(normal=(client.port.output_bytes() - 1, 0, 0))
        client.port.look_after(server.broker.now_ms, 0)
        await until(lambda: client.id not in server.broker.clients)

    serve(story)


@pytest.mark.plain
def test_only_the_time_above_the_soft_limit_counts(monkeypatch):
    """A slow reader stays connected if its output exceeds the soft limit only for moments."""

    async def story(server):
        _, client = await stuffed(server)
        port, settings = client.port, server.broker.settings
        started_s = connection_module.now_s()
        for seconds, soft_bytes in ((61, 64 << 20), (62, 1 << 20), (121, 64 << 20), (130, 1 << 20), (189, 1 << 20)):
            settings.client_output_buffer_limit = limits(normal=(0, soft_bytes, 60))
            monkeypatch.setattr(connection_module, "now_s", lambda seconds=seconds: started_s + seconds)
            port.look_after(server.broker.now_ms, 0)
            await asyncio.sleep(0)
            assert client.id in server.broker.clients
        monkeypatch.setattr(connection_module, "now_s", lambda: started_s + 191)
        port.look_after(server.broker.now_ms, 0)
        await until(lambda: client.id not in server.broker.clients)

    serve(story)


def test_a_client_that_waits_is_not_read_from_without_limit():
    """The rest of its pipeline stays in the system's buffers, and runs when the wait is over."""

    async def story(server):
        talk, client = await server.connect_known()
        talk.send("GETJOB FROM q")
        await until(lambda: client.waiting == WAITS_FOR_JOBS)
        body = b"x" * 10_000
        talk.write(encode("PING", body) * 600)
        await until(lambda: client.port.input_bytes() > BACKLOG_BYTES_MAX)
        await asyncio.sleep(0.05)
        assert client.port.input_bytes() < 3 * BACKLOG_BYTES_MAX
        other = await server.connect()
        other.send("ADDJOB q job 0")
        await other.reply()
        replies = await talk.replies(601)
        assert replies[0][0][2] == b"job"
        assert replies[1:] == [body] * 600
        assert client.port.input_bytes() == 0

    serve(story)


def test_a_client_with_an_unfinished_request_above_the_query_buffer_limit_is_closed_without_a_reply():
    async def story(server):
        talk = await server.connect()
        talk.write(b"*2\r\n$4\r\nPING\r\n$3000000\r\n" + b"x" * 2_000_000)
        try:
            assert await talk.rest() == b""
        except ConnectionResetError:
            pass
        await until(lambda: not server.broker.clients)

    serve(story, client_query_buffer_limit=1 << 20)


@pytest.mark.parametrize(
    "begin", [b"*2\r\n$4\r\nPING\r\n$60000000\r\n" + b"x" * 200_000, b"*1000000\r\n" + b"$0\r\n\r\n" * 20_000]
)
def test_a_client_that_has_to_log_in_sends_no_long_request(begin):
    """Otherwise each connection without a password could take a gigabyte (spec B5)."""

    async def story(server):
        talk = await server.connect()
        talk.write(begin)
        assert isinstance(await talk.reply(), hiredis.ReplyError)
        await until(lambda: not server.broker.clients)

    serve(story, requirepass="secret")


def test_a_client_that_has_to_log_in_and_does_not_read_is_cut_off():
    """Otherwise each connection without a password could keep a megabyte of refusals (spec B1)."""

    async def story(server):
        talk = await server.connect()
        talk.reader._transport.pause_reading()
        talk.write(b"PING\r\n" * 500_000)
        await until(lambda: server.broker.clients)
        await until(lambda: not server.broker.clients)

    serve(story, requirepass="secret")


def test_a_long_request_may_follow_the_login_in_one_pipeline():
    async def story(server):
        talk = await server.connect()
        body = b"x" * 3_000_000
        talk.write(encode("AUTH", "secret") + encode("ECHO", body))
        assert await talk.replies(2) == [b"OK", body]

    serve(story, requirepass="secret")


def test_behind_a_login_that_is_delayed_a_long_request_is_not_read_until_the_client_is_known():
    """Spec B5, US9."""

    async def story(server):
        for _ in range(FAILURES_MAX):
            server.broker.access_log.failed("127.0.0.1", server.broker.now_ms)
        talk = await server.connect()
        await until(lambda: server.broker.clients)
        [client] = server.broker.clients.values()
        body = b"x" * 32_000_000
        talk.write(encode("AUTH", "secret") + encode("ECHO", body))
        await asyncio.sleep(0.5)
        assert client.waiting
        assert talk.writer.transport.get_write_buffer_size() > 1_000_000  # The rest of it is in buffers of the system.
        assert await talk.replies(2) == [b"OK", body]

    serve(story, requirepass="secret")


def test_an_argument_longer_than_allowed_is_a_protocol_error():
    async def story(server):
        talk = await server.connect()
        talk.write(encode("ADDJOB", "q", b"x" * 1025, "0"))
        assert await talk.rest() == TOO_LONG % 1024

    serve(story, proto_max_bulk_len=1024)


def test_a_client_that_sends_a_longer_argument_in_one_call_reads_the_reason():
    """Without this, its call fails with "connection reset", and it never looks for a reply (spec B5)."""

    async def story(server):
        talk = await server.connect()
        talk.write(encode("ADDJOB", "q", b"x" * 20_000_000, "0"))
        await talk.writer.drain()
        assert b"proto-max-bulk-len" in await talk.rest()
        talk.write(b"x" * 20_000_000)
        await talk.writer.drain()
        talk.writer.close()
        await until(lambda: not server.turns.connections)

    serve(story, proto_max_bulk_len=1024)


@pytest.mark.plain
def test_a_refused_client_that_does_not_hang_up_is_cut_off(monkeypatch):
    monkeypatch.setattr(connection_module, "LINGER_SECONDS", 0.05)

    async def story(server):
        talk = await server.connect()
        talk.write(b"*x\r\n")
        assert await talk.rest()
        await until(lambda: not server.turns.connections)

    serve(story)


def test_a_node_that_stops_does_not_wait_for_a_refused_client():
    async def story(server):
        talk = await server.connect()
        talk.write(b"*x\r\n")
        assert await talk.rest()
        [connection] = server.turns.connections.values()
        connection.close(after_replies=True)
        await until(lambda: not server.turns.connections)

    serve(story)


def test_the_longest_argument_may_be_changed_while_clients_are_connected():
    async def story(server):
        talk = await server.connect()
        talk.send("CONFIG SET proto-max-bulk-len 2kb")
        await talk.reply()
        talk.write(encode("PING", b"x" * 1025))
        assert len(await talk.reply()) == 1025
        talk.write(encode("PING", b"x" * 2049))
        assert await talk.rest() == TOO_LONG % 2048

    serve(story, proto_max_bulk_len=1024)


def test_one_clients_pipeline_leaves_room_for_the_others():
    """No client gets more than a millisecond per turn. Spec B3."""

    async def story(server):
        greedy, client = await server.connect_known()
        modest = await server.connect()
        modest.send("PING")
        await modest.reply()
        greedy.write(encode("QPEEK", "q", "10") * 60_000)
        modest.send("PING")
        assert await modest.reply() == b"PONG"
        assert server.broker.commands[b"qpeek"].calls < 60_000
        await greedy.replies(60_000)
        assert client.waiting == RUNNING

    serve(story)


def test_an_idle_client_is_closed_unless_it_waits_or_watches():
    async def story(server):
        idle, one = await server.connect_known()
        waiting, two = await server.connect_known()
        watching, three = await server.connect_known()
        waiting.send("GETJOB FROM q")
        watching.send("MONITOR")
        await watching.reply()
        await until(lambda: two.waiting)
        now_ms = server.broker.now_ms + 5_100
        for client in (one, two, three):
            client.port.look_after(now_ms, 5_000)
        assert await idle.rest() == b""
        await until(lambda: one.id not in server.broker.clients)
        assert {two.id, three.id} == set(server.broker.clients)

    serve(story)


def test_a_client_that_was_active_lately_is_not_idle():
    async def story(server):
        talk, client = await server.connect_known()
        client.port.look_after(client.active_ms + 5_000, 5_000)
        client.port.look_after(client.active_ms + 500_000, 0)
        talk.send("PING")
        assert await talk.reply() == b"PONG"

    serve(story)


def test_a_client_that_got_what_it_waited_for_is_not_idle_yet():
    """Otherwise a worker that waited longer than `timeout` would be disconnected before it acknowledges its job."""

    async def story(server):
        worker, client = await server.connect_known()
        worker.send("GETJOB FROM q")
        await until(lambda: client.waiting == WAITS_FOR_JOBS)
        client.active_ms -= 10_000
        talk = await server.connect()
        talk.send("ADDJOB q body 0")
        await talk.reply()
        await worker.reply()
        client.port.look_after(server.broker.now_ms + 1_000, 5_000)
        worker.send("PING")
        assert await worker.reply() == b"PONG"
        client.port.look_after(server.broker.now_ms + 5_100, 5_000)
        await until(lambda: client.id not in server.broker.clients)

    serve(story)


def test_a_client_whose_bytes_come_or_go_slowly_is_not_idle():
    async def story(server):
        await fill(server, 3_000_000)
        sender, one = await server.connect_known()
        reader, two = await server.connect_known()
        reader.reader._transport.pause_reading()
        reader.send(*["QPEEK big 1"] * 6)
        await until(lambda: two.port.output_bytes() > PAUSE_BYTES)
        sender.write(b"*2\r\n$4\r\nPING\r\n$100\r\n")
        await until(lambda: one.port.input_bytes())
        now_ms = server.broker.now_ms
        for client in (one, two):
            client.active_ms -= 10_000
            client.port.look_after(now_ms, 5_000)
        reader.reader._transport.resume_reading()
        await reader.replies(2)
        reader.reader._transport.pause_reading()
        two.port.look_after(now_ms + 5_100, 5_000)
        await asyncio.sleep(0)
        assert {one.id, two.id} <= set(server.broker.clients)
        later_ms = itertools.count(now_ms + 10_300, 6_000)

        def are_gone():
            """Wait until they are closed: the system's buffers may accept replies for another moment."""
            for port in (one.port, two.port):
                port.look_after(next(later_ms), 5_000)
            return not {one.id, two.id} & set(server.broker.clients)

        await until(are_gone)

    serve(story)


def test_no_client_is_idle_in_a_pause_of_all_clients():
    async def story(server):
        talk, client = await server.connect_known()
        talk.send("CLIENT PAUSE 60000")
        await talk.reply()
        talk.send("PING")
        await asyncio.sleep(0.02)
        client.port.look_after(server.broker.now_ms + 50_000, 5_000)
        other = await server.connect()
        other.send("CLIENT UNPAUSE")
        await other.reply()
        assert await talk.reply() == b"PONG"

    serve(story)


def test_errors_of_commands_leave_the_connection_open():
    async def story(server):
        talk = await server.connect()
        talk.send("NOSUCH", "SHOW", "SHOW x", "PING")
        errors = await talk.replies(3)
        assert all(isinstance(each, hiredis.ReplyError) for each in errors)
        assert await talk.reply() == b"PONG"

    serve(story)


def test_bytes_without_a_request_do_not_delay_other_clients():
    """Empty lines get no reply. They are read in slices too."""

    async def story(server):
        flood, other = await server.connect(), await server.connect()
        flood.write(b"\n" * 1_200_000 + encode("PING", "end"))
        await asyncio.sleep(0)
        answered = 0
        ending = asyncio.ensure_future(flood.reply())
        while not ending.done():
            other.send("PING")
            await other.reply()
            answered += 1
        assert await ending == b"end"
        assert answered > 10

    serve(story)


def test_a_body_that_looks_like_a_request_is_cut_anywhere_and_arrives_whole():
    """A long pipeline is split where a request seems to begin. A false match does no harm."""
    body = b"\r\n*1\r\n$4\r\nPING\r\n" * 40

    async def story(server):
        client = await server.connect()
        client.write(encode("ECHO", body) * 100)
        assert [await client.reply() for _ in range(100)] == [body] * 100

    serve(story)
