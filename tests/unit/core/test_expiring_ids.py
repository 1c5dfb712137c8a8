"""core/expiring_ids.py: ids that are forgotten some time after their moment."""

from __future__ import annotations

from brokers import make_broker
from copies import advance
from disque_py.core.expiring_ids import PART_EVERY_MS, ExpiringIds

SHIFT = 4
SPAN_MS = 1 << SHIFT


def make_ids(part_max=2):
    """A broker, its ids, and the parts that were handed over."""
    broker = make_broker()
    parts = []
    return broker, ExpiringIds(broker, SHIFT, part_max, parts.append), parts


def test_an_id_is_handed_over_after_its_moment_at_the_end_of_a_span():
    broker, ids, parts = make_ids()
    ids.add(b"early", broker.now_ms)
    ids.add(b"late", broker.now_ms + 3 * SPAN_MS)
    advance(broker, SPAN_MS)
    assert parts == [[b"early"]]
    advance(broker, 2 * SPAN_MS)
    assert len(parts) == 1
    advance(broker, SPAN_MS)
    assert parts == [[b"early"], [b"late"]]


def test_the_ids_of_a_span_are_handed_over_a_part_at_a_time():
    broker, ids, parts = make_ids(part_max=2)
    for job_id in (b"1", b"2", b"3"):
        ids.add(job_id, broker.now_ms)
    advance(broker, SPAN_MS)
    assert parts == [[b"2", b"3"]]
    advance(broker, PART_EVERY_MS)
    assert parts == [[b"2", b"3"], [b"1"]]


def test_a_span_that_is_over_is_forgotten():
    broker, ids, parts = make_ids()
    ids.add(b"1", broker.now_ms)
    advance(broker, SPAN_MS)
    ids.add(b"1", broker.now_ms + SPAN_MS)
    advance(broker, 3 * SPAN_MS)
    assert parts == [[b"1"], [b"1"]]
