"""Heartbeats, which extend the leases of running jobs: WORKING at half of each job's RETRY.

Most handlers end within milliseconds, so a job costs nothing here until it has run for a moment. Then the answer to the
first WORKING tells its RETRY (spec L7), and further ones follow at half of it. Jobs of RETRY 0 are never delivered
again and need no WORKING. WORKING only works where the job is known: at the node that delivered it, or else at the node
that made it.

A lease can't be extended if the job is unknown by now, or past half of its TTL. Then the job goes on running, and the
worker is told once that it may run elsewhere too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from disque_py.client import commands
from disque_py.client.aio import AsyncDisque
from disque_py.client.errors import DisqueError, NoJobError, TooLateError
from disque_py.client.feed import PREFIX
from disque_py.client.results import Job, is_at_most_once

TICK_S: Final = 0.1

# The pause after a connection error. It is short enough for the smallest RETRY that a heartbeat can serve.
AGAIN_S: Final = 0.5


class Heartbeat:
    """The running jobs, and the moment of each one's next WORKING.

    first_s   seconds after which a running job gets its first WORKING; below half of the smallest RETRY in use
    lease     seconds that a WORKING asks for; None: the job's RETRY
    on_lost   called once with a job whose next delivery can't be postponed any more, and the reason
    """

    def __init__(
        self,
        client: AsyncDisque,
        first_s: float,
        on_lost: Callable[[Job, DisqueError], None],
        *,
        lease: int | None = None,
    ) -> None:
        self._client = client
        self._first_s = first_s
        self._lease = lease
        self._on_lost = on_lost
        self._due: dict[str, tuple[float, Job]] = {}
        self._beats: dict[str, asyncio.Task[None]] = {}

    def started(self, job: Job, now: float) -> None:
        """Note that a handler took the job."""
        if not is_at_most_once(job.id):
            self._due[job.id] = (now + self._first_s, job)

    def rests(self, job: Job, now: float) -> None:
        """Note that the job rests. Its lease is extended at once, because the handler may have run for long."""
        if not is_at_most_once(job.id):
            self._due[job.id] = (now, job)

    def ended(self, job: Job) -> None:
        """Note that the job needs no more WORKING. One that still looks for a node is given up."""
        if self._due.pop(job.id, None) is not None and (beat := self._beats.get(job.id)) is not None:
            beat.cancel()

    async def beat_for_ever(self) -> None:
        """Check all running jobs every TICK_S, until the worker cancels it. No job waits for another's answer."""
        loop = asyncio.get_running_loop()
        beats = self._beats
        try:
            while True:
                await asyncio.sleep(TICK_S)
                now = loop.time()
                for job in [job for due_at, job in self._due.values() if due_at <= now]:
                    self._due[job.id] = (math.inf, job)  # Until this WORKING is answered.
                    beats[job.id] = loop.create_task(self._beat(job))
                for job_id, beat in [(job_id, beat) for job_id, beat in beats.items() if beat.done()]:
                    del beats[job_id]
                    if not beat.cancelled():
                        beat.result()  # A hook that raised ends the worker.
        finally:
            for beat in beats.values():
                beat.cancel()

    async def _beat(self, job: Job) -> None:
        wait_s: float | None = AGAIN_S
        try:
            retry_s = await self._working(job)
            wait_s = max(retry_s / 2, TICK_S) if retry_s else None
        except (NoJobError, TooLateError) as error:
            wait_s = None
            if job.id in self._due:
                self._on_lost(job, error)
        except DisqueError:
            pass  # The connection failed, not the job. The next attempt follows soon, on a working node.
        if job.id in self._due:  # It may have ended meanwhile.
            if wait_s is None:
                del self._due[job.id]
            else:
                self._due[job.id] = (asyncio.get_running_loop().time() + wait_s, job)

    async def _working(self, job: Job) -> int:
        try:
            return await self._client.working(job, self._lease)
        except NoJobError:
            now = asyncio.get_running_loop().time()
            maker = self._client.pool.cluster.node_with_prefix(job.id[PREFIX], now)
            if maker is None or maker == job.node:
                raise
            request = commands.working(job, self._lease)
            request.node = maker
            return await self._client.run(request)
