"""server/connection.py: a client's requests, replies and waits, and the end of its connection."""

from __future__ import annotations

import asyncio
import socket
import ssl
from random import Random

import pytest
import uvloop

from certificates import self_signed
from cluster_bus.messages import GOTJOB
from disque_py.core.client import WAITS_FOR_COPIES
from disque_py.core.users import DEFAULT, changed
from disque_py.server import connection as connection_module
from disque_py.server.connection import ClientConnection
from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from disque_py.storage.event_log_service import EventLogService
from loopback import encode, fill, serve, until

FACTORIES = (asyncio.new_event_loop, uvloop.new_event_loop)
LOOPS = pytest.mark.parametrize("loop_factory", FACTORIES, ids=["asyncio", "uvloop"])


# -- requests and replies ---------------------------------------------------------------------------------


@LOOPS
def test_a_command_is_answered(loop_factory):
    async def story(server):
        talk = await server.connect()
        talk.send("PING hello")
        assert await talk.reply() == b"hello"

    serve(story, loop_factory=loop_factory)


@LOOPS
def test_a_pipeline_is_answered_in_order(loop_factory):
    async def story(server):
        talk = await server.connect()
        talk.send(*[f"PING {number}" for number in range(5000)])
        assert await talk.replies(5000) == [b"%d" % number for number in range(5000)]

    serve(story, loop_factory=loop_factory)


def test_a_long_pipeline_of_every_size_comes_through_whole():
    """The pipeline is parsed in pieces, which may end anywhere."""

    async def story(server):
        talk = await server.connect()
        sizes = [(number * 37) % 900 for number in range(1500)]
        talk.write(b"".join(encode("PING", b"x" * size) for size in sizes))
        assert [len(reply) for reply in await talk.replies(1500)] == sizes

    serve(story)


def test_a_request_may_come_byte_by_byte():
    async def story(server):
        talk = await server.connect()
        data = encode("PING", "a") + b"PING b\r\n" + encode("PING", "c")
        for at in range(len(data)):
            talk.write(data[at : at + 1])
            await asyncio.sleep(0.0002)
        assert await talk.replies(3) == [b"a", b"b", b"c"]

    serve(story)


def test_a_large_job_is_received_whole():
    async def story(server):
        talk = await server.connect()
        body = bytes(range(256)) * 20_000
        talk.write(encode("ADDJOB", "q", body, "0") + encode("GETJOB", "FROM", "q"))
        job_id, found = await talk.replies(2)
        assert found == [[b"q", job_id, body]]

    serve(story)


def test_bytes_are_counted_both_ways():
    async def story(server):
        talk = await server.connect()
        talk.send("PING hello")
        await talk.reply()
        stats = server.broker.stats
        assert stats.net_input_bytes == len(encode("PING", "hello"))
        assert stats.net_output_bytes == len(b"$5\r\nhello\r\n")

    serve(story)


def test_the_address_is_what_client_list_shows():
    async def story(server):
        talk = await server.connect()
        talk.send("CLIENT LIST")
        host, port = talk.writer.get_extra_info("sockname")[:2]
        assert f"addr={host}:{port} ".encode() in await talk.reply()

    serve(story)


def test_a_client_of_the_unix_socket_is_served(tmp_path):
    path = str(tmp_path / "disque.sock")

    async def story(server):
        await server.open_unix(path)
        talk = await server.connect(path)
        talk.send("CLIENT LIST")
        line = (await talk.reply()).decode()
        assert f"addr={path}:0 " in line
        assert "flags=U " in line

    serve(story, unixsocket=path)


# -- the end ------------------------------------------------------------------------------------------------


def test_a_client_that_wants_no_replies_gets_no_protocol_error():
    async def story(server):
        talk = await server.connect()
        talk.send("PING", "CLIENT REPLY OFF")
        talk.write(b"*x\r\n")
        assert await talk.rest() == b"+PONG\r\n"

    serve(story)


@LOOPS
def test_a_protocol_error_is_sent_after_all_earlier_replies_and_ends_the_connection(loop_factory):
    async def story(server):
        talk = await server.connect()
        talk.write(encode("PING", "a") + encode("PING", "b") + b"*1\r\n:1\r\n" + encode("ADDJOB", "q", "body", "0"))
        assert await talk.rest() == b"$1\r\na\r\n$1\r\nb\r\n-ERR Protocol error: expected '$', got ':'\r\n"
        assert server.broker.job_count == 0
        talk.hang_up()
        await until(lambda: not server.broker.clients)

    serve(story, loop_factory=loop_factory)


def test_a_protocol_error_behind_a_waiting_addjob_is_sent_after_its_reply():
    async def story(server):
        node = server.link()
        talk = await server.connect()
        talk.write(encode("ADDJOB", "q", "body", "0") + b"*x\r\n")
        await until(lambda: server.broker.copies.waiting_repl)
        (job,) = server.broker.copies.waiting_repl
        server.hear(node, GOTJOB, job.id)
        assert await talk.rest() == b"+%b\r\n-ERR Protocol error: invalid multibulk length\r\n" % job.id

    serve(story)


@pytest.mark.plain
def test_a_protocol_error_is_sent_also_when_the_slice_ended_before_it(monkeypatch):
    """The error is sent in the same slice, because no later event would send it."""
    monkeypatch.setattr("disque_py.server.connection.SLICE_NS", -1)

    async def story(server):
        talk = await server.connect()
        talk.write(encode("ECHO", "hello") + b"*x\r\n")
        assert await talk.rest() == b"$5\r\nhello\r\n-ERR Protocol error: invalid multibulk length\r\n"

    serve(story)


@LOOPS
def test_quit_is_answered_after_earlier_commands_and_later_ones_are_not_run(loop_factory):
    async def story(server):
        talk = await server.connect()
        talk.send("PING a", "QUIT", "ADDJOB q body 0")
        assert await talk.rest() == b"$1\r\na\r\n+OK\r\n"
        assert (server.broker.job_count, server.broker.clients, server.turns.connections) == (0, {}, {})

    serve(story, loop_factory=loop_factory)


def test_quit_waits_for_the_copies_of_jobs_before_it():
    async def story(server):
        node = server.link()
        talk, client = await server.connect_known()
        talk.send("ADDJOB q body 0", "ADDJOB q body 0", "QUIT", "PING")
        await until(lambda: len(server.broker.copies.waiting_repl) == 2)
        await asyncio.sleep(0.01)
        assert client.waiting == WAITS_FOR_COPIES
        jobs = list(server.broker.copies.waiting_repl)
        for job in reversed(jobs):
            server.hear(node, GOTJOB, job.id)
        assert await talk.rest() == b"".join(b"+%b\r\n" % job.id for job in jobs) + b"+OK\r\n"

    serve(story)


@pytest.mark.plain
def test_a_slice_that_ends_between_two_jobs_does_not_make_the_second_wait_for_the_copies_of_the_first(monkeypatch):
    monkeypatch.setattr(connection_module, "SLICE_NS", 0)

    async def story(server):
        server.link()
        talk, client = await server.connect_known()
        talk.send("ADDJOB q body 0", "ADDJOB q body 0", "PING")
        talk.send(*["ADDJOB q body 0"] * 3)
        await until(lambda: len(server.broker.copies.waiting_repl) == 2)
        await asyncio.sleep(0.01)
        assert client.waiting == WAITS_FOR_COPIES  # PING follows them in the pipeline, and waits.
        assert len(server.broker.copies.waiting_repl) == 2

    serve(story)


def test_a_large_reply_is_written_whole_before_quit_closes():
    async def story(server):
        await fill(server, 3_000_000)
        talk = await server.connect()
        talk.send("QPEEK big 1", "QUIT")
        data = await talk.rest()
        assert len(data) > 3_000_000
        assert data.endswith(b"+OK\r\n")

    serve(story)


@LOOPS
def test_the_commands_of_a_half_closed_client_are_answered(loop_factory):
    r"""Example: printf 'PING\r\n' | nc …"""

    async def story(server):
        talk = await server.connect()
        talk.write(b"PING\r\nPING hello\r\n")
        talk.writer.write_eof()
        assert await talk.rest() == b"+PONG\r\n$5\r\nhello\r\n"

    serve(story, loop_factory=loop_factory)


@LOOPS
def test_all_of_a_long_pipeline_is_run_although_its_client_is_half_closed(loop_factory):
    """Example: cat jobs | nc -N … The node reads the end of the stream while slices of the pipeline are left."""

    async def story(server):
        talk = await server.connect()
        talk.write(b"ADDJOB q body 0\r\n" * 2_000 + b"PING\r\n" * 20_000)
        talk.writer.write_eof()
        data = await talk.rest()
        assert (data.count(b"+D-"), data.count(b"+PONG"), server.broker.queues[b"q"].length) == (2_000, 20_000, 2_000)
        assert not server.broker.clients

    serve(story, loop_factory=loop_factory)


def test_a_half_closed_client_that_begins_to_wait_for_jobs_gets_earlier_replies():
    async def story(server):
        talk = await server.connect()
        talk.write(b"PING\r\n" * 20_000 + b"GETJOB FROM q\r\nPING\r\n")
        talk.writer.write_eof()
        assert await talk.rest() == b"+PONG\r\n" * 20_000
        await until(lambda: not server.broker.clients)
        assert server.broker.waits.blocked_count == 0

    serve(story)


def test_a_client_above_the_limit_gets_an_error_and_is_closed():
    async def story(server):
        first, second = await server.connect(), await server.connect()
        for talk in (first, second):
            talk.send("PING")
            await talk.reply()
        third = await server.connect()
        assert await third.rest() == b"-ERR max number of clients reached\r\n"
        stats = server.broker.stats
        assert (stats.connections_received, stats.connections_rejected, len(server.broker.clients)) == (2, 1, 2)
        second.hang_up()
        await until(lambda: len(server.turns.connections) == 1)
        fourth = await server.connect()
        fourth.send("PING")
        assert await fourth.reply() == b"PONG"

    serve(story, maxclients=2)


def test_a_consumer_that_hung_up_waits_no_more():
    async def story(server):
        talk = await server.connect()
        talk.send("GETJOB FROM q")
        await until(lambda: server.broker.waits.blocked_count)
        talk.hang_up()
        await until(lambda: not server.broker.clients)
        assert (server.broker.waits.blocked_count, server.broker.queues[b"q"].waiting) == (0, {})

    serve(story)


def test_a_consumer_that_hung_up_is_given_nothing_while_the_loop_closes():
    """A job that came in this pass would be leased to a client that is gone.

    The client's later requests are not run.
    """

    async def story(server):
        talk, other = await server.connect(), await server.connect()
        talk.send("GETJOB FROM q", "GETJOB FROM q")
        await until(lambda: server.broker.waits.blocked_count)
        connection = next(one for one in server.turns.connections.values() if one.client.waiting)
        assert connection.eof_received()
        other.send("ADDJOB q body 0", "QLEN q")
        assert len(await other.reply()) == 40
        assert await other.reply() == 1
        assert await talk.rest() == b""
        await until(lambda: len(server.broker.clients) == 1)

    serve(story)


def ended(sock):
    """Wait until the other end has closed the connection."""
    try:
        while sock.recv(1_000):
            pass
    except ConnectionResetError:
        pass
    return True


@LOOPS
def test_a_refused_client_of_tls_that_does_not_close_its_end_is_cut_off_soon(loop_factory, tmp_path):
    """Closing TLS waits for the answer of the other end. Meanwhile the connection would keep its descriptor."""
    cert, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    trusting = ssl.create_default_context(cafile=str(cert))
    trusting.check_hostname = False

    def talk(port):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.settimeout(15)
            raw = sock.dup()
            with trusting.wrap_socket(sock) as wrapped, raw:
                assert wrapped.recv(1_000) == b"-ERR max number of clients reached\r\n"
                return ended(raw)

    async def story(server):
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: ClientConnection(server.turns), "127.0.0.1", 0, ssl=context)
        try:
            assert await asyncio.to_thread(talk, listener.sockets[0].getsockname()[1])
        finally:
            listener.close()

    serve(story, loop_factory=loop_factory, maxclients=0)


async def with_batch(server):
    """Return a client of a node with a batch that has one job, and the job's id."""
    talk = await server.connect()
    talk.send("ADDJOB q body 0 BATCH b")
    return talk, (await talk.reply()).decode()


def test_a_client_that_hung_up_waits_for_no_batch():
    """Spec B6."""

    async def story(server):
        await with_batch(server)
        talk, client = await server.connect_known()
        talk.send("BATCH WAIT b")
        await until(lambda: client.waiting)
        talk.hang_up()
        await until(lambda: client.id not in server.broker.clients)

    serve(story)


def test_a_half_closed_client_that_begins_to_wait_for_a_batch_gets_earlier_replies():
    async def story(server):
        await with_batch(server)
        talk = await server.connect()
        talk.send("PING", "BATCH WAIT b")
        talk.writer.write_eof()
        assert await talk.rest() == b"+PONG\r\n"
        await until(lambda: len(server.broker.clients) == 1)

    serve(story)


def test_the_reply_of_the_pass_in_which_a_client_of_a_batch_hung_up_is_written():
    async def story(server):
        await with_batch(server)
        talk, client = await server.connect_known()
        client.port.data_received(b"PING\r\nBATCH WAIT b\r\n")
        assert client.port.eof_received()
        assert await talk.rest() == b"+PONG\r\n"

    serve(story)


def test_a_half_closed_client_is_told_of_a_batch_that_is_done():
    """The node asks the other nodes for their counts. That takes a moment, whatever state the batch is in."""

    async def story(server):
        other, job_id = await with_batch(server)
        other.send("BATCH CLOSE b", f"ACKJOB {job_id}")
        assert await other.replies(2) == [b"OK", 1]
        await until(lambda: server.broker.batches.by_name[b"b"].is_done)
        server.link()
        talk = await server.connect()
        talk.send("BATCH WAIT b")
        talk.writer.write_eof()
        assert b"completed" in await talk.rest()

    serve(story)


async def with_events(server):
    """Give the node a log of events, on a disk that works when a test says so. Return the service and the disk."""
    disk = InlineDisk(SimFolder(Random(1)))
    service = EventLogService(server.driver, lambda: disk, lambda: None, lambda: False, lambda line: None)
    ready = []
    server.driver.begin()
    service.start(lambda: ready.append(True))
    while not ready:
        disk.run()
        await asyncio.sleep(0.001)
    return service, disk


def test_a_reader_of_events_that_hung_up_waits_no_more():
    """Spec B6."""

    async def story(server):
        service, _ = await with_events(server)
        talk, client = await server.connect_known()
        talk.send(f"EVENTS READ {service.log.log_id} {service.log.next_seq} BLOCK 0")
        await until(lambda: client.waiting)
        talk.hang_up()
        await until(lambda: client.id not in server.broker.clients)
        assert service.event_readers.waiting == {}

    serve(story, events=True)


def test_a_half_closed_reader_gets_the_events_that_there_are():
    """To read them from the disk takes a moment."""

    async def story(server):
        service, disk = await with_events(server)
        talk = await server.connect()
        talk.send("ADDJOB q body 0")
        while service.log.durable_seq < 2:
            disk.run()
            await asyncio.sleep(0.001)
        await talk.reply()
        talk.send(f"EVENTS READ {service.log.log_id} 1 BLOCK 0")
        talk.writer.write_eof()
        await until(lambda: disk.waiting)
        await asyncio.sleep(0.01)
        disk.run()
        assert b'"event":"added"' in await talk.rest()

    serve(story, events=True)


def test_commands_of_the_pass_in_which_a_client_hung_up_are_answered():
    """The client can give back unwanted jobs if it gets the reply."""

    async def story(server):
        talk, other = await server.connect(), await server.connect()
        other.send("ADDJOB q body 0", "PING")
        await other.reply()
        talk.send("PING")
        await talk.reply()
        connection = next(iter(server.turns.connections.values()))
        connection.data_received(b"GETJOB FROM q\r\n")
        assert connection.eof_received()
        assert b"body" in await talk.rest()

    serve(story)


def test_the_job_of_a_producer_that_hung_up_is_deleted():
    async def story(server):
        server.link()
        talk = await server.connect()
        talk.send("ADDJOB q body 0")
        await until(lambda: server.broker.copies.waiting_repl)
        talk.hang_up()
        await until(lambda: not server.broker.clients)
        assert (server.broker.job_count, server.broker.waits.blocked_count) == (0, 0)

    serve(story)


def test_a_killed_client_is_closed_and_one_that_kills_itself_is_answered_first():
    async def story(server):
        victim, client = await server.connect_known()
        killer = await server.connect()
        killer.send(f"CLIENT KILL ID {client.id}")
        assert await killer.reply() == 1
        assert await victim.rest() == b""
        host, port = killer.writer.get_extra_info("sockname")[:2]
        killer.send(f"CLIENT KILL {host}:{port}", "PING")
        assert await killer.rest() == b"+OK\r\n"

    serve(story)


def test_a_consumer_that_was_killed_is_given_nothing_while_the_loop_closes():
    """A job that came in this pass would be leased to a client that is gone."""

    async def story(server):
        victim, client = await server.connect_known()
        killer = await server.connect()
        victim.send("GETJOB FROM q", "GETJOB FROM q")
        await until(lambda: server.broker.waits.blocked_count)
        killer.send(f"CLIENT KILL ID {client.id}", "ADDJOB q body 0")
        killed, job_id = await killer.replies(2)
        assert (killed, len(job_id)) == (1, 40)
        assert await victim.rest() == b""
        killer.send("QLEN q")
        assert await killer.reply() == 1

    serve(story)


# -- waiting ------------------------------------------------------------------------------------------------


def test_a_job_wakes_the_client_that_waits_for_it_and_its_pipeline_goes_on():
    async def story(server):
        consumer, producer = await server.connect(), await server.connect()
        consumer.send("GETJOB FROM q", "PING after")
        await until(lambda: server.broker.waits.blocked_count)
        producer.send("ADDJOB q body 0")
        job_id = await producer.reply()
        assert await consumer.replies(2) == [[[b"q", job_id, b"body"]], b"after"]

    serve(story)


def test_a_timeout_is_answered_in_time():
    async def story(server):
        talk = await server.connect()
        before_s = asyncio.get_running_loop().time()
        talk.send("GETJOB TIMEOUT 50 FROM q", "PING")
        assert await talk.replies(2) == [None, b"PONG"]
        assert 0.045 <= asyncio.get_running_loop().time() - before_s < 2

    serve(story)


@pytest.mark.plain
def test_waiting_addjobs_of_one_client_are_answered_as_their_copies_arrive(monkeypatch):
    monkeypatch.setattr("disque_py.node.dispatch.OVERLAP_MAX", 10)

    async def story(server):
        node = server.link()
        talk = await server.connect()
        talk.send(*["ADDJOB q body 0"] * 100)
        answered = 0
        while answered < 100:
            await until(lambda: server.broker.copies.waiting_repl)
            assert len(server.broker.copies.waiting_repl) <= 10
            job = next(iter(server.broker.copies.waiting_repl))
            server.hear(node, GOTJOB, job.id)
            assert await talk.reply() == job.id
            answered += 1

    serve(story)


def test_other_clients_are_served_during_a_long_command_and_its_pipeline_continues():
    async def story(server):
        talk, other = await server.connect(), await server.connect()
        for queue in ("a", "b"):
            talk.write(encode("ADDJOB", queue, "body", "0") * 2000)
        ids = await talk.replies(4000)
        talk.write(encode("DEQUEUE", *ids) + encode("PING", "after"))
        other.send("PING")
        assert await other.reply() == b"PONG"
        assert await talk.replies(2) == [4000, b"after"]

    serve(story)


def test_client_pause_holds_the_commands_of_all_clients_until_it_is_over():
    async def story(server):
        one, other = await server.connect(), await server.connect()
        one.send("CLIENT PAUSE 120", "PING one")
        assert await one.reply() == b"OK"
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        other.send("PING other")
        assert await one.reply() == b"one"
        assert await other.reply() == b"other"
        assert 0.09 <= loop.time() - before_s < 2

    serve(story)


def test_a_pause_that_was_extended_lasts_until_its_new_end():
    async def story(server):
        one = await server.connect()
        one.send("CLIENT PAUSE 30")
        await one.reply()
        paused_until_ms = server.broker.waits.clients_paused_until_ms = server.broker.now_ms + 150
        one.send("PING")
        await one.reply()
        assert server.driver.clock.now_ms() >= paused_until_ms

    serve(story)


def test_each_pause_of_clients_can_be_ended():
    """A client that connects during the pause and has to log in can end it. The held commands then run immediately."""

    async def story(server):
        one, other = await server.connect(), await server.connect()
        one.send("CLIENT PAUSE 9000000000000000000")
        assert await one.reply() == b"OK"
        one.send("PING one")
        admin = await server.connect()
        admin.send("HELLO 2", "CLIENT UNPAUSE", "PING admin")
        assert (await admin.reply())[0] == b"server"
        assert await admin.reply() == b"OK"
        assert await admin.reply() == b"admin"
        assert await one.reply() == b"one"
        one.send("CLIENT PAUSE 60")
        await one.reply()
        other.send("PING other")
        assert await other.reply() == b"other"

    serve(story)


def test_during_a_pause_unpause_behind_another_command_waits():
    async def story(server):
        one, other = await server.connect(), await server.connect()
        one.send("CLIENT PAUSE 100000")
        await one.reply()
        other.send("PING", "CLIENT UNPAUSE")
        await asyncio.sleep(0.05)
        assert server.broker.waits.clients_paused_until_ms
        one.send("CLIENT UNPAUSE")
        assert [await one.reply(), await other.reply(), await other.reply()] == [b"OK", b"PONG", b"OK"]

    serve(story)


def test_a_client_that_hangs_up_during_a_pause_is_gone():
    """The original kept a dangling entry (spec Q33)."""

    async def story(server):
        one, other = await server.connect(), await server.connect()
        one.send("CLIENT PAUSE 60")
        await one.reply()
        other.send("ADDJOB q body 0")
        await until(lambda: len(server.broker.clients) == 2)
        await asyncio.sleep(0.01)
        other.hang_up()
        await until(lambda: len(server.broker.clients) == 1)
        await asyncio.sleep(0.1)
        one.send("PING")
        assert await one.reply() == b"PONG"

    serve(story)


def test_a_client_that_waits_for_the_loading_may_close_its_end_and_is_answered():
    async def story(server):
        server.broker.is_loading = True
        server.broker.waits.loading_until_ms = server.broker.now_ms + 60_000
        talk = await server.connect()
        talk.send("ADDJOB q body 0", "QLEN q")
        talk.writer.write_eof()
        await until(lambda: server.broker.waits.early)
        server.driver.begin()
        server.broker.is_loading = False
        assert (await talk.rest()).endswith(b"\r\n:1\r\n")

    serve(story)


def test_a_client_that_waits_for_the_loading_may_hang_up():
    """The node can't tell a closed client from a half-closed one, so it disconnects it when the wait is over."""

    async def story(server):
        server.broker.is_loading = True
        server.broker.waits.loading_until_ms = server.broker.now_ms + 200
        talk = await server.connect()
        talk.send("QLEN q")
        await until(lambda: server.broker.waits.early)
        talk.hang_up()
        await until(lambda: not server.broker.waits.early and not server.turns.connections)

    serve(story)


# -- protected mode -------------------------------------------------------------------------------------------


class ForeignTransport(asyncio.Transport):
    """A connection from another machine. `sent` has the bytes that it got."""

    def __init__(self, host, family=socket.AF_INET):
        peer = (host, 40_000) if host else None
        super().__init__({"peername": peer, "socket": socket.socket(family)})
        self.sent = b""
        self.is_closed = False

    def write(self, data):
        self.sent += data

    def close(self):
        self.is_closed = True
        self.get_extra_info("socket").close()

    abort = close

    def is_closing(self):
        return self.is_closed

    def get_write_buffer_size(self):
        return 0

    def set_write_buffer_limits(self, high=None, low=None):
        pass


class ForeignTls(ForeignTransport):
    """A connection over TLS. Its other end does not close it."""

    def get_extra_info(self, name, default=None):
        return "a context" if name == "sslcontext" else super().get_extra_info(name, default)

    def close(self):
        pass

    def abort(self):
        self.is_closed = True
        self.get_extra_info("socket").close()


@pytest.mark.plain
def test_refused_connections_of_tls_do_not_use_up_the_descriptors(monkeypatch):
    """A few may read the reason for a moment. Beyond that, they are closed immediately."""
    monkeypatch.setattr(connection_module, "REFUSED_SECONDS", 0.05)

    async def story(server):
        for _ in range(2):
            transports = [ForeignTls("10.0.0.9") for _ in range(connection_module.REFUSED_MAX + 10)]
            for transport in transports:
                connection_module.ClientConnection(server.turns).connection_made(transport)
            is_closed = [transport.is_closed for transport in transports]
            assert is_closed == [False] * connection_module.REFUSED_MAX + [True] * 10
            await asyncio.sleep(0.2)
            assert all(transport.is_closed for transport in transports)

    serve(story)


def greeted(host, **settings):
    """Connect from this host. Return the bytes sent, whether the node closed the connection, and the rejected count."""

    async def story(server):
        transport = ForeignTransport(host)
        connection_module.ClientConnection(server.turns).connection_made(transport)
        seen.append((transport.sent, transport.is_closed, server.broker.stats.connections_rejected))
        transport.close()

    seen = []
    serve(story, **settings)
    return seen[0]


@pytest.mark.parametrize("host", ["10.0.0.9", "fd00::9", "fe80::1%eth0"])
def test_a_node_in_protected_mode_refuses_other_machines(host):
    sent, is_closed, rejected = greeted(host)
    assert sent.startswith(b"-DENIED ")
    assert (is_closed, rejected) == (True, 1)
    assert all(word in sent for word in (b"requirepass", b"bind", b"protected-mode no"))


def test_a_connection_that_was_reset_before_it_was_accepted_counts_as_foreign():
    """The system names no peer for it, but its bytes still arrive."""
    sent, is_closed, _ = greeted(None)
    assert sent.startswith(b"-DENIED ")
    assert is_closed


def test_a_node_that_serves_only_users_with_passwords_is_open():
    """Spec US1: `default` is off, so a client from elsewhere can't do anything without a login."""

    async def story(server):
        users = server.broker.users
        users.put(changed(users.by_name[DEFAULT], [b"off"], users.catalog))
        transport = ForeignTransport("10.0.0.9")
        connection_module.ClientConnection(server.turns).connection_made(transport)
        assert transport.sent == b""
        (client,) = server.broker.clients.values()
        assert client.user is users.by_name[DEFAULT]
        transport.close()

    serve(story)


def test_the_connections_of_default_are_limited():
    """Spec US11."""

    async def story(server):
        users = server.broker.users
        users.put(changed(users.by_name[DEFAULT], [b"limit:connections=1"], users.catalog))
        transports = [ForeignTransport("127.0.0.1") for _ in range(2)]
        for transport in transports:
            connection_module.ClientConnection(server.turns).connection_made(transport)
        assert [transport.sent for transport in transports] == [
            b"",
            b"-LIMIT the user may have 1 connections to this node\r\n",
        ]
        for transport in transports:
            transport.close()

    serve(story)


def test_the_fast_path_checks_permissions():
    """The fast path, for a single command that arrives in one piece, also checks permissions. Spec US4."""

    async def story(server):
        users = server.broker.users
        users.put(changed(users.by_name[DEFAULT], [b"-@read"], users.catalog))
        talk = await server.connect()
        talk.send("QLEN q")
        assert (await talk.reply()).args[0].startswith("NOPERM this user")

    serve(story)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1"])
def test_clients_of_this_machine_are_always_admitted(host):
    assert greeted(host) == (b"", False, 0)


@pytest.mark.parametrize("opened", [{"requirepass": "x"}, {"bind": ("0.0.0.0",)}, {"protected_mode": False}])
def test_each_of_the_three_settings_opens_a_node(opened):
    assert greeted("10.0.0.9", **opened) == (b"", False, 0)
