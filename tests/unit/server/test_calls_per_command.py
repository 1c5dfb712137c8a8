"""The cost, in function calls, of a command from a client that waits for each reply.

A busy machine does not change the number of calls. The bounds are the figures measured when they were last lowered,
plus a small margin. A change that needs more calls has to give a reason. Counters of jobs are properties, because
narrow fields save memory in the compiled build. That costs some calls.

`docs/performance.md` has the instruction counts of both builds.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from random import Random

import pytest

from disque_py.server.connection import ClientConnection
from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from disque_py.storage.event_log_service import EventLogService
from loopback import encode, serve

ROUNDS = 40
CLIENTS = 10
MOST = {"ping": 34, "add": 57, "get": 64, "ack": 53}


class Taker(asyncio.Transport):
    """A client's transport that accepts all data immediately."""

    def __init__(self):
        super().__init__({"socket": socket.socket(socket.AF_UNIX)})
        self.taken = []

    def write(self, data):
        self.taken.append(data)

    def set_write_buffer_limits(self, high=None, low=None):
        """Do nothing, because this transport accepts all data."""

    def get_write_buffer_size(self):
        return 0

    def is_reading(self):
        return True

    def is_closing(self):
        return False

    def abort(self):
        self.get_extra_info("socket").close()


@pytest.mark.plain
def test_a_command_of_a_client_that_waits_for_replies_takes_few_calls():
    """Ten clients share a turn. The calls of the turn itself are spread over their commands."""

    async def story(server):
        disk = InlineDisk(SimFolder(Random(8)))
        log = EventLogService(server.driver, lambda: disk, lambda: None, lambda: False, lambda line: None)
        server.driver.begin()
        log.start(lambda: None)
        while disk.run_one():
            pass
        takers = [Taker() for _ in range(CLIENTS)]
        connections = [ClientConnection(server.turns) for _ in takers]
        for connection, taker in zip(connections, takers, strict=True):
            connection.connection_made(taker)
        server.driver.finish()

        def calls(*requests):
            """Return the calls per request and the replies. Each client sends one request per turn."""
            count = 0

            def note(frame, event, argument):
                nonlocal count
                count += event in ("call", "c_call")

            for taker in takers:
                taker.taken.clear()
            arrive = [(connections[at % CLIENTS].data_received, request) for at, request in enumerate(requests)]
            finish = server.driver.finish
            for at in range(0, len(requests), CLIENTS):
                sys.setprofile(note)
                for data_received, request in arrive[at : at + CLIENTS]:
                    data_received(request)
                finish()
                sys.setprofile(None)
                while disk.run_one():
                    pass  # In a real node, threads do this work.
            return count / len(requests), [reply for taker in takers for reply in taker.taken]

        many = ROUNDS * CLIENTS
        ping, pongs = calls(*[encode("PING")] * many)
        assert pongs == [b"+PONG\r\n"] * many
        add, _ = calls(*[encode("ADDJOB", "q", "x" * 100, "0")] * many)
        get, jobs = calls(*[encode("GETJOB", "FROM", "q")] * many)
        ids = [job.split(b"\r\n")[5] for job in jobs]
        ack, counts = calls(*[encode("ACKJOB", job_id) for job_id in ids])
        assert counts == [b":1\r\n"] * many
        found.update(ping=ping, add=add, get=get, ack=ack)

    found = {}
    serve(story, slowlog_log_slower_than=-1)  # A slow machine must not add slow log entries.
    assert {word: count for word, count in found.items() if count > MOST[word]} == {}
