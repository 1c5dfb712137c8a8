"""Tokens: deliveries that a client can ask for again, and end together.

A client that uses TOKEN in a GETJOB may ask again if it missed the answer. It gets the same jobs in the same order,
except those whose leases have ended, and no others. ACKTOKEN, NACKTOKEN and EXTENDTOKEN do for all of these jobs what
ACKJOB, NACK and WORKING do for one. A token belongs to the node that answered. It is recorded with the ids of its jobs
before the reply (journaling.py), and exists until the last of its leases has ended.

A job is *held* under a token while the delivery that the token names is in force. The attempt tells whether it is that
delivery. Jobs that are done leave their token immediately (lifecycle.py). Leases that have ended are noticed when a
client asks, and by a walk over all tokens. So the number of leased jobs bounds the memory. Spec G1, G2, G3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from disque_py.core.job import ACTIVE, Job

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client

# The bytes of one job under a token (entries in two dicts, as measured), and of a token without jobs.
ENTRY_BYTES: Final = 220
TOKEN_BYTES: Final = 420
# About the bytes of a record, besides the name, and of one id in it.
RECORD_BYTES: Final = 8
RECORDED_ID_BYTES: Final = 45
# The walk for ended leases starts this often, and visits this many jobs per part.
WALK_EVERY_MS: Final = 10_000
LOOKED_PER_PART: Final = 1_000


class Token:
    """One token, and the deliveries under it.

    jobs     job -> attempt of the delivery, in the order of the answer
    fresh    the jobs that are not recorded yet
    is_new   whether the token has no record yet
    place    the segment of the journal with its first record; 0: there is none
    recorded_bytes   about the bytes that its records take there
    """

    __slots__ = ("fresh", "is_new", "jobs", "name", "place", "recorded_bytes")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.jobs: dict[Job, int] = {}
        self.fresh: list[Job] = []
        self.is_new = True
        self.place = 0
        self.recorded_bytes = 0


class Tokens:
    """All tokens of a node.

    by_name, by_job   the tokens by name and by job
    waits             token -> clients that wait for its delivery
    """

    __slots__ = ("_broker", "_walk", "_walked_ms", "by_job", "by_name", "waits")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._walk: Iterator[None] | None = None
        self._walked_ms = 0
        self.by_name: dict[bytes, Token] = {}
        self.by_job: dict[Job, Token] = {}
        self.waits: dict[bytes, dict[Client, None]] = {}

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def add(self, name: bytes, job: Job) -> None:
        """Put a job that was just delivered under this token."""
        broker = self._broker
        self.drop(job)
        token = self.by_name.get(name)
        if token is None:
            token = self.by_name[name] = Token(name)
            broker.used_memory += TOKEN_BYTES + len(name)
        token.jobs[job] = job.attempt
        self.by_job[job] = token
        broker.used_memory += ENTRY_BYTES
        if broker.is_journaling:
            token.fresh.append(job)
            broker.outbox.tokens[token] = None

    def drop(self, job: Job) -> None:
        """Remove the job from its token, if it has one. Drop the token if no job is left."""
        token = self.by_job.pop(job, None)
        if token is None:
            return
        del token.jobs[job]
        self._broker.used_memory -= ENTRY_BYTES
        if not token.jobs and self.by_name.get(token.name) is token:
            del self.by_name[token.name]
            self._broker.used_memory -= TOKEN_BYTES + len(token.name)
            self._unplace(token)

    def _unplace(self, token: Token) -> None:
        """Note that the journal's records of the token are not live any more."""
        self._broker.journal.drop_live(token.place, token.recorded_bytes)
        token.place = token.recorded_bytes = 0

    def held(self, name: bytes) -> list[Job]:
        """Return the jobs under this token whose leases run, in the order of the answer."""
        token = self.by_name.get(name)
        if token is None:
            return []
        jobs = []
        for job, attempt in list(token.jobs.items()):
            if self.is_held(job, attempt):
                jobs.append(job)
            else:
                self.drop(job)
        return jobs

    def is_held(self, job: Job, attempt: int) -> bool:
        """Return whether the delivery is still in force, so that only the client with the token has the job."""
        return (
            job.state == ACTIVE
            and job.is_leased_here
            and job.attempt == attempt
            and job.requeue_at_ms > self._broker.now_ms
        )

    def look(self) -> None:
        """Do a part of the walk over all tokens, which drops jobs whose leases have ended."""
        if self._walk is None:
            now_ms = self._broker.now_ms
            if not self.by_name or now_ms - self._walked_ms < WALK_EVERY_MS:
                return
            self._walked_ms = now_ms
            self._walk = self._look()
        if next(self._walk, self) is self:
            self._walk = None

    def _look(self) -> Iterator[None]:
        looked = 0
        for token in list(self.by_name.values()):
            for job, attempt in list(token.jobs.items()):
                if token.jobs.get(job) == attempt and not self.is_held(job, attempt):
                    self.drop(job)
            looked += 1 + len(token.jobs)
            if looked >= LOOKED_PER_PART:
                looked = 0
                yield

    def record_again(self, name: bytes) -> None:
        """Have the token recorded again, because its segment will be dropped or the journal is new."""
        token = self.by_name.get(name)
        if token is not None:
            self._unplace(token)
            token.is_new = True
            token.fresh = list(token.jobs)
            self._broker.outbox.tokens[token] = None

    def take_records(self) -> list[tuple[bytes, int, list[tuple[bytes, int]]]]:
        """Return the records for the journal: (name, 1 if it extends an earlier record, [(id, attempt) …])."""
        broker = self._broker
        records = []
        for token in broker.outbox.tokens:
            fresh, token.fresh = token.fresh, []
            ids = [(job.id, token.jobs[job]) for job in fresh if job in token.jobs]
            if not ids:
                continue
            records.append((token.name, 0 if token.is_new else 1, ids))
            if token.is_new:
                token.is_new = False
                token.place = broker.journal.place
                broker.journal.live_records[token.place] = broker.journal.live_records.get(token.place, 0) + 1
            size = RECORD_BYTES + len(token.name) + RECORDED_ID_BYTES * len(ids)
            token.recorded_bytes += size
            broker.journal.live_bytes[token.place] = broker.journal.live_bytes.get(token.place, 0) + size
        broker.outbox.tokens = {}
        return records

    def restored(self, name: bytes, ids: list[tuple[bytes, int]], place: int) -> None:
        """Add a token from the journal, with the jobs that are still leased under it."""
        broker = self._broker
        for job_id, attempt in ids:
            job = broker.find(job_id)
            if job is not None and self.is_held(job, attempt):
                self.add(name, job)
        token = self.by_name.get(name)
        if token is not None:
            broker.outbox.tokens.pop(token, None)
            token.fresh = []
            token.is_new = False
            token.place = place
            token.recorded_bytes = RECORD_BYTES + len(name) + RECORDED_ID_BYTES * len(ids)
            broker.journal.add_live(place, token.recorded_bytes)

    def clear(self) -> None:
        """Forget all tokens, because all jobs are gone (reset.py)."""
        self.by_name.clear()
        self.by_job.clear()
        self._broker.outbox.tokens.clear()
        self._walk = None
