"""The end of a worker's deliveries: acknowledgements and NACKs, collected while the last ones are in flight.

A NACK names its delivery (ATTEMPT), so it may be sent again without a second effect. An ack names its delivery, too, if
the handler took half of its lease or longer: if the lease has ended, another worker has the job, and the ack does not
affect that delivery. Within the lease there is no later delivery. So the many quick jobs share one plain ACKJOB, which
costs half as much. An ack of a job under a claim always has the fence. All these commands leave in one write to the
node that delivered the jobs. A node that does not support ATTEMPT gets the plain commands (dialect.py).

A NACK without a delay uses the job's own back-off, or else the setting `backoff` of its queue. If neither exists, the
worker's policy sets the delay, so that a handler which always fails causes no busy loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from random import Random
from typing import Any, Final, TypeVar

from disque_py.client.address import Address
from disque_py.client.aio import AsyncDisque
from disque_py.client.backoff import Backoff
from disque_py.client.dialect import Dialect, is_too_long
from disque_py.client.errors import DisqueConnectionError, DisqueError, FencedError
from disque_py.client.results import Job, JobInfo, QueueSettings
from disque_py.client.verdict import GivenBack

Item = TypeVar("Item")

# A queue's settings are asked for again after this time.
SETTINGS_S: Final = 10.0

# The most NACKs that wait for a node which takes them. Beyond this number jobs are left to the end of their lease.
GIVEN_BACK_MAX: Final = 1_000


# The reason of a job whose result the node refuses (spec RW1).
TOO_LONG: Final = "the result is longer than result-max-bytes"

# A job that is done, whether the ack names its delivery, and the result if there is one.
Done = tuple[Job, bool, "bytes | None"]


class Settler:
    """The jobs that are done or given back, until a node has confirmed it.

    policy       the wait of jobs if neither they nor their queue have a back-off; None: every job comes with its delay
    on_refused   called with a job whose node supports no delays, limits and reasons
    """

    def __init__(
        self,
        client: AsyncDisque,
        dialect: Dialect,
        policy: Backoff | None,
        on_refused: Callable[[GivenBack], None],
        rng: Random,
    ) -> None:
        # The jobs that are done, whether the ack names the delivery, and the result if there is one.
        self.done: list[Done] = []
        self.given_back: list[GivenBack] = []
        self.put_back: list[Job] = []
        self.has_done = asyncio.Event()
        self.has_given_back = asyncio.Event()
        self._client = client
        self._dialect = dialect
        self._policy = policy
        self._on_refused = on_refused
        self._rng = rng
        self._settings: dict[str, tuple[float, bool]] = {}
        self._acknowledging = asyncio.Lock()
        self._giving_back = asyncio.Lock()

    def add_done(self, job: Job, took_s: float, result: bytes | None = None) -> None:
        """Acknowledge a job soon, with its result if there is one. Its handler took `took_s` seconds."""
        is_late = 2000 * took_s >= job.lease_ms if job.lease_ms else False
        self.done.append((job, bool(job.fence) or is_late, result))
        self.has_done.set()

    def add_given_back(self, back: GivenBack) -> None:
        """Give a job back soon, with its reason and delay."""
        if len(self.given_back) < GIVEN_BACK_MAX:
            self.given_back.append(back)
            self.has_given_back.set()

    def add_put_back(self, job: Job) -> None:
        """Put a job back soon with a plain NACK, without a delay and a reason."""
        self.put_back.append(job)
        self.has_given_back.set()

    # Acks and NACKs don't wait for each other. The last call of each waits for the one in progress, which must not be
    # interrupted.

    async def acknowledge(self) -> None:
        """Acknowledge the done jobs. Acks that could not be sent are kept."""
        async with self._acknowledging:
            done, self.done = self.done, []
            kept = dict(enumerate(done))
            try:
                exact = [
                    at
                    for at, (job, is_exact, result) in kept.items()
                    if result is not None or (is_exact and self._attempt_of(job) is not None)
                ]
                plain = sorted(kept.keys() - set(exact))
                trouble: DisqueError | None = None
                for at, outcome in await self._ack_exactly(done, exact):
                    if not isinstance(outcome, DisqueError) or isinstance(outcome, FencedError):
                        del kept[at]  # A later worker has the job, or its value, so this ack is void.
                    elif is_too_long(outcome):
                        del kept[at]  # Every attempt would end like this, and a plain ack would lose the result.
                        self.add_given_back(GivenBack(done[at][0], TOO_LONG, is_final=True))
                    elif self._dialect.is_refused(done[at][0], outcome):
                        plain.append(at)
                    else:
                        trouble = outcome
                if plain:
                    await self._client.ack_jobs([done[at][0] for at in plain])
                    for at in plain:
                        del kept[at]
                if trouble is not None:
                    raise trouble
            finally:
                self.done += kept.values()

    def _attempt_of(self, job: Job) -> int | None:
        return self._dialect.attempt_of(job)

    async def _ack_exactly(self, done: list[Done], places: list[int]) -> list[tuple[int, Any]]:
        async def ack(group: list[int]) -> list[Any]:
            pipe = self._client.pipeline()
            for at in group:
                job, is_exact, result = done[at]
                pipe.ack(job, attempt=self._attempt_of(job) if is_exact else None, result=result)
            return await pipe.execute()

        return await _in_groups(places, lambda at: done[at][0], ack)

    async def give_back(self) -> None:
        """Give the failed jobs back. NACKs that could not be sent are kept, except plain ones, which may act twice."""
        async with self._giving_back:
            given_back, self.given_back = self.given_back, []
            put_back, self.put_back = self.put_back, []
            kept = {id(back): back for back in given_back}
            try:
                trouble: DisqueError | None = None
                for back, outcome in await self._nack_exactly(given_back):
                    if isinstance(outcome, FencedError):
                        del kept[id(back)]
                        continue
                    if isinstance(outcome, DisqueError) and not self._dialect.is_refused(back.job, outcome):
                        trouble = outcome
                        continue
                    del kept[id(back)]
                    if isinstance(outcome, DisqueError):
                        self._on_refused(back)
                if put_back:
                    await self._client.nack(*put_back)
                if trouble is not None:
                    raise trouble
            finally:
                self.given_back = [*kept.values(), *self.given_back][:GIVEN_BACK_MAX]

    async def _nack_exactly(self, given_back: list[GivenBack]) -> list[tuple[GivenBack, Any]]:
        await self._set_delays([back for back in given_back if back.delay_ms is None and not back.is_final])

        async def nack(group: list[GivenBack]) -> list[Any]:
            pipe = self._client.pipeline()
            for back in group:
                pipe.nack(
                    back.job,
                    delay=None if back.delay_ms is None else timedelta(milliseconds=back.delay_ms),
                    reason=back.reason or None,
                    final=back.is_final,
                    attempt=self._attempt_of(back.job),
                )
            return await pipe.execute()

        return await _in_groups(given_back, lambda back: back.job, nack)

    # The delay of jobs without one.

    async def _set_delays(self, given_back: list[GivenBack]) -> None:
        """Set the worker's own delay where neither the job nor its queue has a back-off."""
        if not given_back or self._policy is None:
            return

        async def show(group: list[GivenBack]) -> list[Any]:
            pipe = self._client.pipeline()
            for back in group:
                pipe.show(back.job)
            return await pipe.execute()

        await self._ask_settings({back.job.queue for back in given_back})
        for back, info in await _in_groups(given_back, lambda back: back.job, show):
            shown = info if isinstance(info, JobInfo) else None
            if not (shown is not None and shown.backoff) and not self._settings[back.job.queue][1]:
                back.delay_ms = round(1000 * self._policy.wait_s(_attempts_spent(back.job, shown), self._rng))

    async def _ask_settings(self, queues: Iterable[str]) -> None:
        """Learn which queues have a back-off. A node without settings has none."""
        now = asyncio.get_running_loop().time()
        names = [name for name in queues if self._settings.get(name, (0.0, False))[0] <= now]
        pipe = self._client.pipeline()
        for name in names:
            pipe.queue_settings(name)
        for name, settings in zip(names, await pipe.execute(), strict=True):
            has_backoff = isinstance(settings, QueueSettings) and bool(settings.backoff)
            is_known = not isinstance(settings, DisqueConnectionError)
            self._settings[name] = (now + SETTINGS_S if is_known else now, has_backoff)


def _attempts_spent(job: Job, shown: JobInfo | None) -> int:
    """Return the deliveries of the current set of attempts, as far as they are known."""
    if shown is not None and shown.attempts_left is not None:
        return max(1, shown.attempts - shown.attempts_left)
    return job.delivery_count or 1


async def _in_groups(
    items: Sequence[Item], job_of: Callable[[Item], Job], ask: Callable[[list[Item]], Awaitable[list[Any]]]
) -> list[tuple[Item, Any]]:
    """Ask about items in groups, one for each node that delivered their jobs → each item with its outcome."""
    groups: dict[Address | None, list[Item]] = {}
    for item in items:
        groups.setdefault(job_of(item).node, []).append(item)
    answers = await asyncio.gather(*map(ask, groups.values()))
    pairs: list[tuple[Item, Any]] = []
    for group, outcomes in zip(groups.values(), answers, strict=True):
        pairs += zip(group, outcomes, strict=True)
    return pairs
