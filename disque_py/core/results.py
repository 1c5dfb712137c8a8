"""Results of finished jobs: the bytes that a consumer sends with ACKJOB … RESULT.

Every holder that receives an ack with a result keeps the result for the `result-retention` of the job's queue. If that
is 0, it keeps the result as long as the record of the acknowledged job, so that nodes that ask again get it. Results
count in `used_memory`, and are the first to be dropped when memory is short (memory.py). In the journal, results are
separate records. Software that does not know these records skips them and loses nothing else.

A job has one result. Each result carries the version of the job at its ack, and the node of that ack. Of two results,
every node keeps the one with the lower pair of version and node. So all holders agree, regardless of the order in which
they receive the results. A result of version 0 comes from a node that does not know the job. The first holder gives it
its own pair. Such a result never replaces another one.

This module is data. acks.py decides, and journaling.py writes the records. Spec RW1, RW2, RW3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.expiring_ids import ExpiringIds
from disque_py.core.job import Collection

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

# The bytes that a result takes besides its value: id, object and entries, as measured.
RESULT_BYTES: Final = 360
# About the bytes that its record takes besides the value.
RECORD_BYTES: Final = 80
# Expired results are forgotten at most 2**SPAN_SHIFT milliseconds late.
SPAN_SHIFT: Final = 10
# At most this many are forgotten at a time.
FORGOTTEN_PER_PART: Final = 1_000
# The most bytes of a result that another node may send: the upper limit of `result-max-bytes`.
BYTES_MAX: Final = 64 * 1024 * 1024
VERSION_LIMIT: Final = 1 << 31
NODE_BYTES: Final = 20


class Result:
    """One result.

    value         the bytes
    version, node the pair that orders the results of one job
    expire_at_ms  when the result is forgotten; 0: together with its job
    place         the segment of the journal with the record; 0: there is no record
    """

    __slots__ = ("expire_at_ms", "node", "place", "value", "version")

    def __init__(self, value: bytes, version: int, node: bytes, expire_at_ms: int) -> None:
        self.value = value
        self.version = version
        self.node = node
        self.expire_at_ms = expire_at_ms
        self.place = 0


# A result in a message: id, result, version and node of the ack.
Item = tuple[bytes, bytes, int, bytes]


def read_item(item: Any) -> Item:
    """Return a result that a node sent. Newer versions may append positions. ValueError if it is malformed."""
    job_id, value, version, node, *_ = item
    if type(job_id) is not bytes or type(value) is not bytes or len(value) > BYTES_MAX:
        raise ValueError("a malformed result")
    if type(version) is not int or not 0 <= version < VERSION_LIMIT:
        raise ValueError("a result with a malformed version")
    if type(node) is not bytes or len(node) != (NODE_BYTES if version else 0):
        raise ValueError("a result with a malformed node id")
    return job_id, value, version, node


class Results:
    """All results of a node.

    by_id   job id -> result, oldest first
    bytes   the accounted bytes of all results
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
        """Keep a result for `keep_ms` (0: as long as its job), unless a lower one is known. Return whether it is kept.

        A result that equals the known one is not kept again.
        """
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
        """Return the result of a job as it is in messages; None if there is none."""
        known = self.by_id.get(job_id)
        return None if known is None else (job_id, known.value, known.version, known.node)

    def hold(self, job_id: bytes, keep_ms: int, version: int) -> None:
        """Keep a result for `keep_ms` instead of as long as its job, because this node holds a copy. Spec RW1.

        version   the version of the job at its ack, for a result of version 0
        """
        known = self.by_id.get(job_id)
        if known is None or known.expire_at_ms:
            return
        pair = (known.version, known.node) if known.version else (version, self._broker.me.id)
        self.drop(job_id)
        self.put(job_id, known.value, *pair, keep_ms)

    def job_is_over(self, job_id: bytes) -> None:
        """Forget the result of a job that has ended, if it is kept only as long as the job."""
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
        """Forget up to `count_max` results, oldest first, until memory is at `limit`. Return their number."""
        count = 0
        while count < count_max and self.by_id and self._broker.used_memory > limit:
            job_id = next(iter(self.by_id))
            self.drop(job_id)
            self._doubt(job_id)
            count += 1
        return count

    def _doubt(self, job_id: bytes) -> None:
        """Note that another node may have the result of a job that has ended here (ends.py)."""
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
        """Add a result from the journal. The last record of a job counts."""
        if 0 < expire_at_ms <= self._broker.now_ms:
            return
        if job_id in self.by_id:
            self.drop(job_id)
        result = Result(value, version, node, expire_at_ms)
        self._enter(job_id, result)
        self._place(result, place)

    def record_again(self, job_id: bytes, number: int) -> None:
        """Have the record written again, because segment `number` will be dropped, or because the journal is new: 0."""
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
        """Note that the journal's record of a result is not live any more."""
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
        """Forget those of these results that have expired."""
        now_ms = self._broker.now_ms
        for job_id in ids:
            known = self.by_id.get(job_id)
            if known is not None and 0 < known.expire_at_ms <= now_ms:
                self.drop(job_id)
