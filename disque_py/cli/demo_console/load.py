"""The load: a small shop with different kinds of queues, so that the console has something to show.

Orders are handled immediately. Mails fail now and then, and come again with a back-off. Some thumbnails end as dead
letters. Reports are slow and delayed, the newsletter has no worker, and one worker holds a lock.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from disque_py.client import AsyncDisque, DisqueError

REASONS: Final = ("SMTP 451: try again later", "timeout after 30 s", "no such mailbox")
TENANTS: Final = ("acme", "globex", "initech")
AGAIN_S: Final = 0.5
BACKLOG_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Line:
    """One queue: jobs per second, seconds per job, the share that fails, and the share that is delayed."""

    queue: str
    rate: float
    work_s: float
    fails: float = 0.0
    delayed: float = 0.0
    workers: int = 1


LINES: Final = (
    Line("orders", 20, 0.01, workers=2),
    Line("mail", 8, 0.05, fails=0.15, workers=2),
    Line("thumbnails", 4, 0.1, fails=0.3, workers=1),
    Line("reports", 1, 0.8, delayed=0.5, workers=1),
    Line("newsletter", 0.5, 0.0, workers=0),
)


class Shop:
    """Producers and workers on one client, until they are cancelled."""

    def __init__(self, client: AsyncDisque, rng: random.Random) -> None:
        self._client = client
        self._rng = rng

    async def prepare(self) -> None:
        """Set the queues' settings, and make a schedule."""
        client = self._client
        await client.set_queue("mail", attempts=4, backoff="exponential:500:5000:20", dead_letter="mail-dead")
        await client.set_queue("thumbnails", attempts=2, backoff="fixed:1000:1000")
        await client.set_queue("orders", lease=30, maxlen=100_000)
        await client.execute(
            "SCHEDULE", "SET", "heartbeat", "EVERY", "10s", "QUEUE", "health", "BODY", "ping", "TTL", "60"
        )
        await client.execute(
            "SCHEDULE",
            "SET",
            "nightly-report",
            "CRON",
            "30 2 * * *",
            "TZ",
            "Europe/Berlin",
            "QUEUE",
            "reports",
            "BODY",
            "{}",
        )

    async def run(self) -> None:
        """Work until cancelled."""
        chores: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self._hold_lock,
            lambda: self._work(Line("health", 0, 0.01)),
        ]
        for line in LINES:
            chores.append(lambda line=line: self._produce(line))  # type: ignore[misc]  # A default binds the loop's line.
            chores += [lambda line=line: self._work(line)] * line.workers  # type: ignore[misc]  # As above.
        await asyncio.gather(*(self._again(chore) for chore in chores))

    async def _again(self, chore: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Repeat a chore: a node that is killed must not end the load."""
        while True:
            try:
                await chore()
            except DisqueError:
                await asyncio.sleep(AGAIN_S)

    async def _produce(self, line: Line) -> None:
        client, rng, number = self._client, self._rng, 0
        while True:
            await asyncio.sleep(rng.expovariate(line.rate))
            number += 1
            if number % 50 == 0 and await client.qlen(line.queue, cluster=True) > BACKLOG_MAX:
                await asyncio.sleep(10)
            tenant = rng.choice(TENANTS)
            body = json.dumps({"number": number, "tenant": tenant, "amount": round(rng.uniform(5, 500), 2)})
            delay = timedelta(seconds=rng.randrange(5, 90)) if rng.random() < line.delayed else None
            await client.add_job(line.queue, body, meta={"tenant": tenant}, delay=delay, ttl=3600, retry=30)

    async def _work(self, line: Line) -> None:
        client, rng = self._client, self._rng
        while True:
            found = await client.get_job(line.queue, timeout_ms=5000, withlease=True)
            if found is None:
                continue
            await asyncio.sleep(line.work_s)
            if rng.random() < line.fails:
                await client.nack(found, reason=rng.choice(REASONS))
            else:
                await client.ack(found)

    async def _hold_lock(self) -> None:
        async with self._client.lock("invoice-run", lease=20, owner="worker-1"):
            await asyncio.sleep(60)
