"""Tokens: deliveries that can be had again, and ended together.

A client that gives its GETJOB a TOKEN may ask again when it didn't hear the answer: it gets the same jobs, in the same
order, as far as their leases still run, and no others. ACKTOKEN, NACKTOKEN and EXTENDTOKEN do to all of them what
ACKJOB, NACK and WORKING do to one. A token belongs to the node that answered; it is recorded with its ids before the
reply (journaling.py) and lives as long as one of its leases.

A lease is *held* under the token as long as it is the delivery that the token names: the attempt tells. Jobs that are
done leave at once (lifecycle.py); leases that merely ended are noticed when somebody asks, and by a walk over all
tokens. So memory is bounded by what is leased. Spec G1, G2, G3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from disque_py.core.job import ACTIVE, Job

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

# What one job under a token costs: entries in two dicts, as measured; and a token without any.
ENTRY_BYTES: Final = 220
TOKEN_BYTES: Final = 420
# About what a record takes, besides the name, and one id in it.
RECORD_BYTES: Final = 8
RECORDED_ID_BYTES: Final = 45
# The walk for leases that ended begins this often, and looks at so many jobs per part.
WALK_EVERY_MS: Final = 10_000
LOOKED_PER_PART: Final = 1_000


class Token:
    """One token.

    jobs     job -> attempt of the delivery, in the order of the answer
    fresh    those of them that are not recorded yet
    is_new   nothing of it is recorded yet
    place    segment of the journal that its first record is in; 0: none
    recorded_bytes   about what its records take there
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

    by_name, by_job   where to find them
    """

    __slots__ = ("_broker", "_walk", "_walked_ms", "by_job", "by_name")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._walk: Iterator[None] | None = None
        self._walked_ms = 0
        self.by_name: dict[bytes, Token] = {}
        self.by_job: dict[Job, Token] = {}

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def add(self, name: bytes, job: Job) -> None:
        """The job was delivered under this token a moment ago."""
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
        """The job is under no token any more; a token without jobs is gone."""
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
        """Its records count no more."""
        broker = self._broker
        if token.place >= broker.first_place and token.place in broker.live_bytes:
            broker.live_bytes[token.place] -= token.recorded_bytes
            broker.live_records[token.place] -= 1
        token.place = token.recorded_bytes = 0

    def held(self, name: bytes) -> list[Job]:
        """Jobs under this token whose leases run, in the order in which they were delivered."""
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
        """The delivery still stands: nobody has the job but who got it under the token."""
        return (
            job.state == ACTIVE
            and job.is_leased_here
            and job.attempt == attempt
            and job.requeue_at_ms > self._broker.now_ms
        )

    def look(self) -> None:
        """Part of a walk over all tokens, for leases that have ended."""
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
        """A segment with a record of it is to go, or the journal is new: write it anew."""
        token = self.by_name.get(name)
        if token is not None:
            self._unplace(token)
            token.is_new = True
            token.fresh = list(token.jobs)
            self._broker.outbox.tokens[token] = None

    def take_records(self) -> list[tuple[bytes, int, list[tuple[bytes, int]]]]:
        """What the journal has to know: (name, 1 if it goes on with what was recorded, [(id, attempt) …])."""
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
                token.place = broker.place
                broker.live_records[token.place] = broker.live_records.get(token.place, 0) + 1
            size = RECORD_BYTES + len(token.name) + RECORDED_ID_BYTES * len(ids)
            token.recorded_bytes += size
            broker.live_bytes[token.place] = broker.live_bytes.get(token.place, 0) + size
        broker.outbox.tokens = {}
        return records

    def restored(self, name: bytes, ids: list[tuple[bytes, int]], place: int) -> None:
        """A token as the journal has it: what is still leased under it."""
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
            broker.live_bytes[place] = broker.live_bytes.get(place, 0) + token.recorded_bytes
            broker.live_records[place] = broker.live_records.get(place, 0) + 1

    def clear(self) -> None:
        """All jobs are gone (reset.py)."""
        self.by_name.clear()
        self.by_job.clear()
        self._broker.outbox.tokens.clear()
        self._walk = None
