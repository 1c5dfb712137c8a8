"""Keys: the keys of ADDJOB … KEY that are used on this node, and the jobs that have them.

A job's id contains a hash of queue and key, in 18 of its 24 random characters. Nodes look a key up by those characters,
and no node stores the key itself. A key is *used* from the moment when its job is registered until the job's TTL is
over, even if the job is done earlier. A node that held the job remembers its id until then, and so does the journal.
The key is free earlier only if the job was not created, because its copies could not be made.

If nodes could not ask each other, several jobs may have the same key. They are never merged. `named` returns the one
that this node knew first.

A job with a window uses its key for a different time (windows.py). If a job replaces another one, the new one is named.

keying.py has the conversation between nodes. Spec K1, K6, TP5.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from disque_py.core import windows
from disque_py.core.expiring_ids import ExpiringIds
from disque_py.core.job import Job

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

KEY_AT: Final = 11
KEY_END: Final = 29
KEY_LENGTH: Final = 18
# The longest KEY of an ADDJOB.
KEY_BYTES_MAX: Final = 1024

# The bytes of a key whose job is over (its id and entries, as measured), and about the bytes of its record.
USED_BYTES: Final = 420
RECORD_BYTES: Final = 52
# Keys whose TTL is over are forgotten at most 2**SPAN_SHIFT milliseconds late.
SPAN_SHIFT: Final = 14
# At most this many are forgotten at a time.
FORGOTTEN_PER_PART: Final = 2_000


def key_chars(queue: bytes, key: bytes) -> bytes:
    """Return the characters of a job's id that depend on its queue and key (spec K1)."""
    return b64encode(sha256(len(queue).to_bytes(4, "big") + queue + key).digest())[:KEY_LENGTH]


class Keys:
    """All keys that are used on this node.

    jobs   characters -> ids of jobs, in the order in which this node learned of them
    over   id of a job that is no longer here -> (when its key is free, segment of the journal with its record or 0)
    """

    __slots__ = ("_broker", "_ends", "jobs", "over")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends = ExpiringIds(broker, SPAN_SHIFT, FORGOTTEN_PER_PART, self._end)
        self.jobs: dict[bytes, tuple[bytes, ...]] = {}
        self.over: dict[bytes, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self.jobs)

    def named(self, chars: bytes) -> bytes:
        """Return the id of the job that has this key; empty if this node knows none."""
        ids = self.jobs.get(chars, ())
        broker = self._broker
        found = b""
        for job_id in ids:
            known = self.over.get(job_id)
            if known is not None:
                if known[0] > broker.now_ms and not found:
                    found = job_id
                continue
            job = broker.find(job_id)
            if job is not None and not windows.is_used(job, broker.now_ms):
                continue
            if len(ids) == 1:
                return job_id
            # If a job replaces another one, the new one is named.
            if not found or (job is not None and found in windows.replaced_ids(job)):
                found = job_id
        return found

    def enter(self, job: Job) -> None:
        """Add the key of a job that is registered."""
        job_id = job.id
        if job_id in self.over:
            self._forget_over(job_id)
        chars = job_id[KEY_AT:KEY_END]
        known = self.jobs.get(chars, ())
        if job_id not in known:
            self.jobs[chars] = (*known, job_id)

    def leave(self, job_id: bytes) -> None:
        """Free the key of a job that was not created, or whose TTL is over."""
        chars = job_id[KEY_AT:KEY_END]
        left = tuple(known for known in self.jobs.get(chars, ()) if known != job_id)
        if left:
            self.jobs[chars] = left
        else:
            self.jobs.pop(chars, None)

    def finish(self, job: Job) -> None:
        """Keep the key of a job that is no longer here until its TTL is over."""
        broker = self._broker
        until_ms = windows.until_ms(job, broker.now_ms)
        if until_ms <= broker.now_ms or windows.is_replaced(job) or windows.number(job) == windows.WHILE_IT_LIVES:
            self.leave(job.id)
            return
        self._remember(job.id, until_ms, 0)
        if broker.is_journaling:
            broker.outbox.keys[job.id] = None

    def restored(self, job_id: bytes, expire_at_ms: int, place: int) -> None:
        """Add a key from the journal, whose job is over."""
        broker = self._broker
        if expire_at_ms <= broker.now_ms or job_id in self.over or broker.find(job_id) is not None:
            return
        chars = job_id[KEY_AT:KEY_END]
        self.jobs[chars] = (*self.jobs.get(chars, ()), job_id)
        self._remember(job_id, expire_at_ms, place)
        broker.journal.add_live(place, RECORD_BYTES)

    def record_again(self, job_id: bytes, number: int) -> None:
        """Have the record written again, because segment `number` will be dropped, or because the journal is new: 0."""
        known = self.over.get(job_id)
        if known is not None and (not number or known[1] == number):
            self._broker.journal.drop_live(known[1], RECORD_BYTES)
            self.over[job_id] = (known[0], 0)
            self._broker.outbox.keys[job_id] = None

    def take_records(self) -> list[tuple[bytes, int]]:
        """Return the records for the journal: (id, milliseconds left)."""
        broker = self._broker
        ids, broker.outbox.keys = broker.outbox.keys, {}
        journal = broker.journal
        records = []
        for job_id in ids:
            known = self.over.get(job_id)
            if known is not None and known[0] > broker.now_ms:
                journal.drop_live(known[1], RECORD_BYTES)
                self.over[job_id] = (known[0], journal.place)
                journal.add_live(journal.place, RECORD_BYTES)
                records.append((job_id, known[0] - broker.now_ms))
        return records

    def clear(self) -> None:
        """Forget all keys, because all jobs are gone (reset.py)."""
        self.jobs.clear()
        self.over.clear()
        self._broker.outbox.keys.clear()

    def _remember(self, job_id: bytes, expire_at_ms: int, place: int) -> None:
        assert job_id not in self.over
        assert job_id in self.jobs.get(job_id[KEY_AT:KEY_END], ())
        self.over[job_id] = (expire_at_ms, place)
        self._broker.used_memory += USED_BYTES
        self._ends.add(job_id, expire_at_ms)

    def _end(self, ids: list[bytes]) -> None:
        """Forget those of these keys whose TTL is over."""
        now_ms = self._broker.now_ms
        for job_id in ids:
            known = self.over.get(job_id)
            if known is not None and known[0] <= now_ms:
                self._forget_over(job_id)
                self.leave(job_id)

    def _forget_over(self, job_id: bytes) -> None:
        self._broker.journal.drop_live(self.over.pop(job_id)[1], RECORD_BYTES)
        self._broker.used_memory -= USED_BYTES
