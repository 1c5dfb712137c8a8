"""Heartbeats, which extend the leases of running jobs: WORKING at half of each job's RETRY.

Most handlers end within milliseconds, so a job costs nothing here until it has run for a moment. The answer to its
first WORKING gives its RETRY (spec L7), and the next ones follow at half of that. Jobs of RETRY 0 are never delivered
again and need no WORKING. WORKING only works where the job is known: at the node that delivered it, or else at the node
that made it. When both are gone, another node with a copy can do it. So the heartbeat asks all known nodes before it
gives a lease up. A node that is silent for a sixth of the lease has no more time: the others are asked, too.

A lease can't be extended if the job is unknown by now, past half of its TTL, or delivered again (STALE). Then the
handler goes on, and the worker is told once that the job may run elsewhere, too.

WORKING also tells a worker that a job was canceled. So jobs of nodes that can cancel get it at least every `check_s`,
however long their lease is.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from disque_py.client import commands
from disque_py.client.aio import AsyncDisque
from disque_py.client.dialect import Dialect
from disque_py.client.errors import (
    AuthError,
    DisqueConnectionError,
    DisqueError,
    FencedError,
    JobCanceledError,
    LoadingError,
    NoJobError,
    ReplyTimeoutError,
    StaleError,
    TooLateError,
)
from disque_py.client.feed import PREFIX
from disque_py.client.results import Job, is_at_most_once
from disque_py.client.spans import Seconds

TICK_S: Final = 0.1

# The pause after a connection error. It is short enough for the smallest RETRY that a heartbeat can serve.
AGAIN_S: Final = 0.5

# The part of a lease for which one node may be silent. A WORKING follows half a lease after the last one, so there is
# time for two more nodes.
SILENCE: Final = 1 / 6

# The id of a job, and the number of its delivery; None: the node does not send numbers.
Delivery: TypeAlias = "tuple[str, int | None]"


def delivery_of(job: Job) -> Delivery:
    """Return the key of this delivery. After a lease was lost, a worker may have two deliveries of one job."""
    return job.id, job.attempt


class Heartbeat:
    """The running jobs, and the moment of each one's next WORKING.

    first_s   seconds after which a running job gets its first WORKING; below half of the smallest RETRY in use
    lease     seconds that a WORKING asks for, or a timedelta; None: the job's RETRY
    check_s   seconds within which a cancellation is noticed; infinity: at half of the lease
    on_lost   called once with a job whose next delivery can't be postponed any more, and the reason
    on_canceled   called once with a job that was canceled
    """

    def __init__(
        self,
        client: AsyncDisque,
        first_s: float,
        on_lost: Callable[[Job, DisqueError], None],
        *,
        lease: Seconds | None = None,
        check_s: float = math.inf,
        on_canceled: Callable[[Job], None] = lambda job: None,
        dialect: Dialect | None = None,
    ) -> None:
        self._client = client
        self._first_s = first_s
        self._lease = lease
        self._check_s = check_s
        self._on_canceled = on_canceled
        self._dialect = dialect or Dialect()
        self._on_lost = on_lost
        self._due: dict[Delivery, tuple[float, Job]] = {}
        self._leases_s: dict[Delivery, float] = {}  # As the replies to WORKING say.
        self._beats: dict[Delivery, asyncio.Task[None]] = {}

    def started(self, job: Job, now: float) -> None:
        """Note that a handler took the job."""
        if not is_at_most_once(job.id):
            first_s = min(self._first_s, job.lease_ms / 2000) if job.lease_ms else self._first_s
            self._due[delivery_of(job)] = (now + first_s, job)

    def rests(self, job: Job, now: float) -> None:
        """Note that the job rests. Its lease is extended immediately, because the handler may have run for long."""
        if not is_at_most_once(job.id):
            self._due[delivery_of(job)] = (now, job)

    def ended(self, job: Job) -> None:
        """Note that the job needs no more WORKING. A WORKING that still looks for a node is given up."""
        delivery = delivery_of(job)
        self._leases_s.pop(delivery, None)
        if self._due.pop(delivery, None) is not None and (beat := self._beats.get(delivery)) is not None:
            beat.cancel()

    async def beat_for_ever(self) -> None:
        """Check all running jobs every TICK_S, until the worker cancels it. No job waits for another's answer."""
        loop = asyncio.get_running_loop()
        beats = self._beats
        try:
            while True:
                await asyncio.sleep(TICK_S)
                now = loop.time()
                for delivery, job in [(delivery, job) for delivery, (at, job) in self._due.items() if at <= now]:
                    self._due[delivery] = (math.inf, job)  # Until this WORKING is answered.
                    beats[delivery] = loop.create_task(self._beat(job, delivery))
                for delivery, beat in [(delivery, beat) for delivery, beat in beats.items() if beat.done()]:
                    del beats[delivery]
                    if not beat.cancelled():
                        beat.result()  # A hook that raised ends the worker.
        finally:
            for beat in beats.values():
                beat.cancel()

    async def _beat(self, job: Job, delivery: Delivery) -> None:
        wait_s: float | None = AGAIN_S
        try:
            retry_s = await self._working(job, self._silence_s(job))
            wait_s = self._wait_s(job, retry_s) if retry_s else None
            if delivery in self._due:
                self._leases_s[delivery] = float(retry_s)
        except (NoJobError, TooLateError, StaleError, FencedError) as error:
            wait_s = None
            if delivery in self._due:
                self._on_lost(job, error)
        except JobCanceledError:
            wait_s = None
            if delivery in self._due:
                self._on_canceled(job)
        except DisqueError:
            pass  # The connection failed, not the job. The next attempt follows soon, on a working node.
        if delivery in self._due:  # It may have ended meanwhile.
            if wait_s is None:
                del self._due[delivery]
            else:
                self._due[delivery] = (asyncio.get_running_loop().time() + wait_s, job)

    def _wait_s(self, job: Job, retry_s: int) -> float:
        """Return the seconds until the next WORKING. Whole seconds are rounded up; a lease in milliseconds is exact."""
        half_s = max((job.lease_ms / 1000 if job.lease_ms else retry_s) / 2, TICK_S)
        return half_s if self._dialect.attempt_of(job) is None else min(half_s, self._check_s)

    def _silence_s(self, job: Job) -> float | None:
        """Return the seconds for which one node may be silent; None: the client's time-out, the lease is not known."""
        lease_s = job.lease_ms / 1000 if job.lease_ms else self._leases_s.get(delivery_of(job))
        return None if lease_s is None else SILENCE * lease_s

    async def _working(self, job: Job, silence_s: float | None) -> int:
        attempt = self._dialect.attempt_of(job)
        try:
            return await self._ask(job, attempt, silence_s)
        except DisqueError as error:
            if attempt is None or not self._dialect.is_refused(job, error):
                raise
            return await self._ask(job, None, silence_s)

    async def _ask(self, job: Job, attempt: int | None, silence_s: float | None) -> int:
        """Ask the node that delivered the job. If it does not know the job, or is silent, ask all others in turn."""
        trouble: DisqueError
        try:
            async with asyncio.timeout(silence_s):
                return await self._client.working(job, self._lease, attempt=attempt)
        except NoJobError as unknown:
            trouble = unknown
        except ReplyTimeoutError:  # The client has asked others, too.
            raise
        except TimeoutError:
            trouble = ReplyTimeoutError(f"{job.node}: no answer to WORKING for {silence_s:g} s", sent=True)
        cluster, now = self._client.pool.cluster, asyncio.get_running_loop().time()
        maker = cluster.node_with_prefix(job.id[PREFIX], now)
        for node in dict.fromkeys([maker, *cluster.choices(now)]):
            if node is None or node == job.node:
                continue
            request = commands.working(job, self._lease, attempt=attempt)
            request.node = node
            request.is_pinned = True
            with suppress(NoJobError, LoadingError, AuthError, DisqueConnectionError, TimeoutError):
                async with asyncio.timeout(silence_s):
                    return await self._client.run(request)
        raise trouble
