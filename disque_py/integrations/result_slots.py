"""Results under a name that the program chooses, with plain commands.

Task libraries name a result by the id of their task, and read it long after its job is over. A *slot* is a job with
this name as its KEY. The worker with a result makes it, or the program that waits for the result; KEY gives both the
same job. Its delay is as long as its TTL, so no consumer ever gets it.

* A program stores a result by acknowledging the slot with RESULT. The first result counts.
* A program waits with WAITJOB. Any number of programs may wait, on any node, without polling.
* A result that is too long for RESULT (`result-max-bytes`) becomes the body of a job, and the slot's result names it.

A stored result begins with its expiry time, because the nodes keep all results of a queue for the same time. The
setting `result-retention` of the queue is raised to the longest time that a program asks for.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from disque_py.client import AsyncDisque, Disque, ReplyError, UnreachableError
from disque_py.integrations.patience import apersist, persist

# The time for which nodes keep results without a setting.
RETENTION_S: Final = 3600
# The TTL of a slot that a reader made. It is long, because the result may come late.
READERS_SLOT_S: Final = 7 * 86_400
# Results up to this size are sent with the acknowledgement. It is below the default of `result-max-bytes`.
INLINE_BYTES: Final = 60_000

INLINE: Final = b"="
ELSEWHERE: Final = b"@"


def pack(kind: bytes, data: bytes, until_ms: int) -> bytes:
    """Return a result in the format of a slot."""
    return kind + b"%d:" % until_ms + data


def unpack(packed: bytes, now_ms: int) -> tuple[bytes, bytes] | None:
    """Return the kind and the data of a slot's result; None if it has expired."""
    until, _, data = packed[1:].partition(b":")
    return (packed[:1], data) if int(until) > now_ms else None


def _now_ms() -> int:
    return int(1000 * time.time())


def _seconds(ttl_ms: int) -> int:
    """Return a time to live in whole seconds, at least two, because the delay is a second shorter."""
    return max(2, -(-ttl_ms // 1000))


class ResultSlots:
    """The slots of one queue, for programs with threads.

    client   the client
    queue    name of the queue; nothing else may use it
    """

    def __init__(self, client: Disque, queue: str) -> None:
        self.client = client
        self._queue = queue
        self._retention_s = RETENTION_S

    def put(self, key: str, data: bytes, ttl_ms: int) -> None:
        """Store the result of this name for `ttl_ms` milliseconds. An earlier result stays."""
        seconds = _seconds(ttl_ms)
        if seconds > self._retention_s:
            settings = self.client.queue_settings(self._queue)
            kept = settings.result_retention if settings is not None else None
            if kept is None or kept < timedelta(seconds=seconds):
                self.client.set_queue(self._queue, result_retention=seconds)
            self._retention_s = seconds
        slot = self._slot(key, seconds)
        until_ms = _now_ms() + ttl_ms
        if len(data) <= INLINE_BYTES:
            try:
                self.client.ack(slot, result=pack(INLINE, data, until_ms))
                return
            except ReplyError as error:
                if error.code != "ERR":
                    raise
        queue = f"{self._queue}.long"
        job_id = persist(lambda: self.client.add_job(queue, data, ttl=seconds, delay=seconds - 1, retry_unsafe=True))
        self.client.ack(slot, result=pack(ELSEWHERE, job_id.encode(), until_ms))

    def get(self, key: str) -> bytes | None:
        """Return the result of this name; None without one."""
        slot = persist(lambda: self._found(key))
        return None if slot is None else self._read(slot, 0.001)

    def wait(self, key: str, timeout_s: float | None) -> bytes | None:
        """Return the result of this name as soon as there is one; None after `timeout_s` seconds."""
        return self._read(self._slot(key, READERS_SLOT_S), timeout_s)

    def _found(self, key: str) -> str | None:
        """Return the slot of this name. A slot that only unreachable nodes know counts as none: callers ask again."""
        try:
            return self.client.job_ids(self._queue, [key])[0]
        except UnreachableError:
            return None

    def _slot(self, key: str, seconds: int) -> str:
        return persist(lambda: self.client.add_job(self._queue, b"", key=key, ttl=seconds, delay=seconds - 1))

    def _read(self, slot: str, timeout_s: float | None) -> bytes | None:
        packed = self.client.wait_jobs(slot, timeout=timeout_s)[0].result
        found = None if packed is None else unpack(packed, _now_ms())
        if found is None or found[0] == INLINE:
            return None if found is None else found[1]
        info = self.client.show(found[1], cluster=True)
        return None if info is None else info.body


class AsyncResultSlots:
    """The slots of one queue, for asyncio. ResultSlots explains the methods."""

    def __init__(self, client: AsyncDisque, queue: str) -> None:
        self._client = client
        self._queue = queue
        self._retention_s = RETENTION_S

    async def put(self, key: str, data: bytes, ttl_ms: int) -> None:
        """Store the result of this name for `ttl_ms` milliseconds. An earlier result stays."""
        seconds = _seconds(ttl_ms)
        if seconds > self._retention_s:
            settings = await self._client.queue_settings(self._queue)
            kept = settings.result_retention if settings is not None else None
            if kept is None or kept < timedelta(seconds=seconds):
                await self._client.set_queue(self._queue, result_retention=seconds)
            self._retention_s = seconds
        slot = await self._slot(key, seconds)
        until_ms = _now_ms() + ttl_ms
        if len(data) <= INLINE_BYTES:
            try:
                await self._client.ack(slot, result=pack(INLINE, data, until_ms))
                return
            except ReplyError as error:
                if error.code != "ERR":
                    raise
        queue = f"{self._queue}.long"
        job_id = await apersist(
            lambda: self._client.add_job(queue, data, ttl=seconds, delay=seconds - 1, retry_unsafe=True)
        )
        await self._client.ack(slot, result=pack(ELSEWHERE, job_id.encode(), until_ms))

    async def get(self, key: str) -> bytes | None:
        """Return the result of this name; None without one."""
        slot = await apersist(lambda: self._found(key))
        return None if slot is None else await self._read(slot, 0.001)

    async def wait(self, key: str, timeout_s: float | None) -> bytes | None:
        """Return the result of this name as soon as there is one; None after `timeout_s` seconds."""
        return await self._read(await self._slot(key, READERS_SLOT_S), timeout_s)

    async def _found(self, key: str) -> str | None:
        try:
            return (await self._client.job_ids(self._queue, [key]))[0]
        except UnreachableError:
            return None

    async def _slot(self, key: str, seconds: int) -> str:
        return await apersist(lambda: self._client.add_job(self._queue, b"", key=key, ttl=seconds, delay=seconds - 1))

    async def _read(self, slot: str, timeout_s: float | None) -> bytes | None:
        packed = (await self._client.wait_jobs(slot, timeout=timeout_s))[0].result
        found = None if packed is None else unpack(packed, _now_ms())
        if found is None or found[0] == INLINE:
            return None if found is None else found[1]
        info = await self._client.show(found[1], cluster=True)
        return None if info is None else info.body
