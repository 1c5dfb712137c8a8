"""Keeping running jobs invisible: WORKING at half of each job's RETRY.

Most handlers are done in milliseconds, so a job costs nothing here until it has run for a moment.
Then the first WORKING tells its RETRY (spec L7), and further ones follow at half of
it. RETRY 0 jobs are never delivered again and need none. WORKING only works where the job is known:
at the node that delivered it, or else at the one that made it.

A job whose lease can't be prolonged (unknown by now, or past half of its TTL) goes on running; the
worker is told, once, that it may run elsewhere too.
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

# After trouble on the way: soon enough for the smallest RETRY that a heartbeat can serve.
AGAIN_S: Final = 0.5


class Heartbeat:
    """Which jobs run, and when each needs its next WORKING.

    first_s   a job that runs longer than this gets its first WORKING; below half of the smallest RETRY in use
    lease     seconds that a WORKING asks for; None: the job's RETRY
    on_lost   called once with a job whose next delivery can't be put off any more, and the reason
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

    def started(self, job: Job, now: float) -> None:
        """A handler took the job."""
        if not is_at_most_once(job.id):
            self._due[job.id] = (now + self._first_s, job)

    def rests(self, job: Job, now: float) -> None:
        """The job waits for its next attempt: its lease is prolonged at once, for it may have run for long."""
        if not is_at_most_once(job.id):
            self._due[job.id] = (now, job)

    def ended(self, job: Job) -> None:
        """The job is over for now: WORKING is no longer needed."""
        self._due.pop(job.id, None)

    async def beat_for_ever(self) -> None:
        """Look at all running jobs every TICK_S; cancelled by the worker. No job waits for another's answer."""
        loop = asyncio.get_running_loop()
        beats: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                now = loop.time()
                for job in [job for due_at, job in self._due.values() if due_at <= now]:
                    self._due[job.id] = (math.inf, job)  # Until this one is answered.
                    beats.add(loop.create_task(self._beat(job)))
                for beat in [beat for beat in beats if beat.done()]:
                    beats.remove(beat)
                    beat.result()  # A hook that raised ends the worker.
        finally:
            for beat in beats:
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
            pass  # The way was broken, not the job: again soon, on a node that works.
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
