"""Results of finished jobs: the bytes that a consumer gave with ACKJOB … RESULT.

Every holder that hears an ack with a result keeps the result for the `result-retention` of the job's queue. With a
retention of 0 it keeps the result as long as the acknowledged job itself, so that nodes that ask again get it. A
result counts in `used_memory`, and goes first when memory is short (memory.py). The journal keeps results as records of
their own. A reader that does not know them skips them, and loses nothing else.

A job has one result. The ack that counts decides: each result carries the version of the job at its ack, and the node
of that ack. Of two results the one with the lower pair stays, on every node. So all holders agree, in whatever order
they hear. A result of version 0 comes from a node that does not know the job. The first holder gives it its own pair.
It never takes the place of another result.

This module is data. acks.py decides, and journaling.py writes the records. Spec RW1, RW2, RW3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.expiring_ids import ExpiringIds
from disque_py.core.job import Collection

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

# The bytes of a result besides its own: id, object and entries, as measured; and about the bytes of its record.
RESULT_BYTES: Final = 360
RECORD_BYTES: Final = 80
# Results whose time is over are forgotten at most this much later …
SPAN_SHIFT: Final = 10
# … and at most this many at a time.
FORGOTTEN_PER_PART: Final = 1_000
# The most bytes of a result that another node may send; as of `result-max-bytes`.
BYTES_MAX: Final = 64 * 1024 * 1024
VERSION_LIMIT: Final = 1 << 31
NODE_BYTES: Final = 20
# A retention as of queue settings, in milliseconds.
LEFT_LIMIT: Final = 1 << 54


class Result:
    """One result.

    value         the bytes
    version, node the pair that orders it among results of the same job
    expire_at_ms  when it is forgotten; 0: with its job
    place         segment of the journal that says so; 0: none
    """

    __slots__ = ("expire_at_ms", "node", "place", "value", "version")

    def __init__(self, value: bytes, version: int, node: bytes, expire_at_ms: int) -> None:
        self.value = value
        self.version = version
        self.node = node
        self.expire_at_ms = expire_at_ms
        self.place = 0


# Id, result, version and node of the ack: a result on its way to a node.
Item = tuple[bytes, bytes, int, bytes]


def read_item(item: Any) -> Item:
    """Return a result that a node sent; later positions are for newer versions. ValueError."""
    job_id, value, version, node, *_ = item
    if type(job_id) is not bytes or type(value) is not bytes or len(value) > BYTES_MAX:
        raise ValueError("a result that is none")
    if type(version) is not int or not 0 <= version < VERSION_LIMIT:
        raise ValueError("a result with a version that is none")
    if type(node) is not bytes or len(node) != (NODE_BYTES if version else 0):
        raise ValueError("a result of a node that is none")
    return job_id, value, version, node


class Results:
    """All results of a node.

    by_id   job id -> result, oldest first
    bytes   accounted bytes of all
    """

    __slots__ = ("_broker", "_ends", "by_id", "bytes")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends = ExpiringIds(broker, SPAN_SHIFT, FORGOTTEN_PER_PART, self._end)
        self.by_id: dict[bytes, Result] = {}
        self.bytes = 0

    def get(self, job_id: bytes) -> bytes | None:
        """Return the result of a job; None if there is none."""
        known = self.by_id.get(job_id)
        if known is None or 0 < known.expire_at_ms <= self._broker.now_ms:
            return None
        return known.value

    def put(self, job_id: bytes, value: bytes, version: int, node: bytes, keep_ms: int) -> bool:
        """Keep a result for so long (0: as long as its job), unless an earlier one is known. Return whether it is."""
        known = self.by_id.get(job_id)
        if known is not None:
            if not version or (known.version and (known.version, known.node, known.value) <= (version, node, value)):
                return False
            self.drop(job_id)
        self._enter(job_id, Result(value, version, node, self._broker.now_ms + keep_ms if keep_ms else 0))
        if self._broker.is_journaling:
            self._broker.outbox.results[job_id] = None
        return True

    def item(self, job_id: bytes) -> Item | None:
        """Return the result of a job as it travels; None if there is none."""
        known = self.by_id.get(job_id)
        return None if known is None else (job_id, known.value, known.version, known.node)

    def hold(self, job_id: bytes, keep_ms: int, version: int) -> None:
        """Keep a result that was to stay only as long as its job, because this node holds a copy. Spec RW1.

        version   that of the job at its ack, for a result of version 0
        """
        known = self.by_id.get(job_id)
        if known is None or known.expire_at_ms:
            return
        pair = (known.version, known.node) if known.version else (version, self._broker.me.id)
        self.drop(job_id)
        self.put(job_id, known.value, *pair, keep_ms)

    def job_is_over(self, job_id: bytes) -> None:
        """Forget a result that stays only as long as its job."""
        known = self.by_id.get(job_id)
        if known is not None and not known.expire_at_ms:
            self.drop(job_id)

    def drop(self, job_id: bytes) -> None:
        """Forget a result."""
        known = self.by_id.pop(job_id)
        size = RESULT_BYTES + len(known.value)
        self.bytes -= size
        self._broker.used_memory -= size
        self._unplace(known)

    def drop_oldest(self, limit: int, count_max: int) -> int:
        """Forget results, the oldest first, until memory is at `limit`. Return how many were forgotten."""
        count = 0
        while count < count_max and self.by_id and self._broker.used_memory > limit:
            job_id = next(iter(self.by_id))
            self.drop(job_id)
            self._doubt(job_id)
            count += 1
        return count

    def _doubt(self, job_id: bytes) -> None:
        """Note that another node may have the result of a job that is over here (ends.py)."""
        job = self._broker.find(job_id)
        if job is None:
            self._broker.ends.doubts[job_id] = None
        elif isinstance(job.work, Collection):
            job.work.is_doubted = True

    def clear(self) -> None:
        """Forget all results, because all jobs are gone (reset.py)."""
        self.by_id.clear()
        self.bytes = 0
        self._broker.outbox.results.clear()

    # -- journal -----------------------------------------------------------------------------------

    def restored(self, job_id: bytes, value: bytes, version: int, node: bytes, expire_at_ms: int, place: int) -> None:
        """Enter a result from the journal; the last record of a job counts."""
        if 0 < expire_at_ms <= self._broker.now_ms:
            return
        if job_id in self.by_id:
            self.drop(job_id)
        result = Result(value, version, node, expire_at_ms)
        self._enter(job_id, result)
        self._place(result, place)

    def record_again(self, job_id: bytes, number: int) -> None:
        """Write the record anew, because its segment is to go. 0: the journal is new."""
        known = self.by_id.get(job_id)
        if known is not None and (not number or known.place == number):
            self._unplace(known)
            self._broker.outbox.results[job_id] = None

    def take_records(self) -> list[tuple[bytes, bytes, int, int, bytes]]:
        """Return the results that the journal must record: (id, result, ms left, version, node)."""
        broker = self._broker
        ids, broker.outbox.results = broker.outbox.results, {}
        records = []
        for job_id in ids:
            known = self.by_id.get(job_id)
            if known is None or 0 < known.expire_at_ms <= broker.now_ms:
                continue
            self._unplace(known)
            self._place(known, broker.journal.place)
            left_ms = known.expire_at_ms - broker.now_ms if known.expire_at_ms else 0
            records.append((job_id, known.value, left_ms, known.version, known.node))
        return records

    def _place(self, result: Result, place: int) -> None:
        result.place = place
        self._broker.journal.add_live(place, RECORD_BYTES + len(result.value))

    def _unplace(self, result: Result) -> None:
        """Note that the record of a result counts no more."""
        self._broker.journal.drop_live(result.place, RECORD_BYTES + len(result.value))
        result.place = 0

    # -- time --------------------------------------------------------------------------------------

    def _enter(self, job_id: bytes, result: Result) -> None:
        self.by_id[job_id] = result
        size = RESULT_BYTES + len(result.value)
        self.bytes += size
        self._broker.used_memory += size
        if result.expire_at_ms:
            self._ends.add(job_id, result.expire_at_ms)

    def _end(self, ids: list[bytes]) -> None:
        """Forget results whose time is over."""
        now_ms = self._broker.now_ms
        for job_id in ids:
            known = self.by_id.get(job_id)
            if known is not None and 0 < known.expire_at_ms <= now_ms:
                self.drop(job_id)
