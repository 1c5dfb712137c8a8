"""A stand-in for a node, for tests of the demonstration's connections and load.

It speaks RESP on a loopback port and keeps jobs in lists. It does only as much as the tests need. Tests with real nodes
are in tests/integration.
"""

from __future__ import annotations

import asyncio
import itertools

import hiredis


class StandIn:
    """A stand-in that serves until `close`. It refuses the first `refusals` adds, and hangs up once after
    `breaks_after` commands: those named `counted`, or all but HELLO.
    """

    def __init__(self, refusals=0, breaks_after=None, counted=None):
        self.jobs = []
        self.acknowledged = []
        self.refusals = refusals
        self.breaks_after = breaks_after
        self.counted = counted
        self.port = 0
        self._numbers = itertools.count()
        self._server = None

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        parser = hiredis.Reader()
        try:
            while data := await reader.read(65536):
                parser.feed(data)
                while (words := parser.gets()) is not False:
                    is_counted = words[0] == self.counted if self.counted else words[0] != b"HELLO"
                    if is_counted and self.breaks_after is not None:
                        if self.breaks_after == 0:
                            self.breaks_after = None
                            return
                        self.breaks_after -= 1
                    writer.write(await self._answer(words))
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _answer(self, words):
        name, *rest = words
        if name == b"HELLO":
            return b"*2\r\n:1\r\n$40\r\n" + b"a" * 40 + b"\r\n"
        if name == b"ADDJOB":
            if self.refusals:
                self.refusals -= 1
                return b"-NOREPL Not enough reachable nodes\r\n"
            job_id = b"D-%08d" % next(self._numbers)
            self.jobs.append((rest[0], job_id, rest[1]))
            return b"+%b\r\n" % job_id
        if name == b"GETJOB":
            if not self.jobs:
                await asyncio.sleep(0.01)
                return b"*-1\r\n"
            jobs, self.jobs = self.jobs[:50], self.jobs[50:]
            return b"*%d\r\n" % len(jobs) + b"".join(hiredis.pack_command(job) for job in jobs)
        if name == b"ACKJOB":
            self.acknowledged += rest
            return b":%d\r\n" % len(rest)
        if name == b"PING":
            return b"+PONG\r\n"
        return b"-ERR unknown command\r\n"
