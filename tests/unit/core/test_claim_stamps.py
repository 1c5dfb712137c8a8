"""core/claim_stamps.py: the claims that a job needs before it may be delivered."""

from __future__ import annotations

import pytest

from brokers import make_broker
from copies import make_job
from disque_py.core import claim_stamps
from disque_py.core.claim_stamps import HAS_QUORUM, HAS_VALUE, LACKS_NAME, job_key, new_stamp, stamp_of, value_key
from disque_py.core.job_attributes import CLAIM, JobAttributes, unpack
from disque_py.core.queue_fields import QueueSettings


def rules(name=b"user", *, is_quorum=False):
    found = QueueSettings()
    found.exclusive_by = name
    found.is_quorum = is_quorum
    return found


def stamped(meta=(b"user", b"ann"), **options):
    broker = make_broker()
    job = make_job(broker)
    stamp = new_stamp(job.terms.queue, rules(**options), meta)
    claim_stamps.set_stamp(broker, job, stamp)
    return broker, job


def test_the_stamp_has_the_value_of_the_name():
    """Spec EX1."""
    _, job = stamped()
    stamp = stamp_of(job)
    assert (stamp.name, stamp.value, stamp.flags) == (b"user", b"ann", HAS_VALUE)


def test_a_job_without_the_name_is_a_value_of_its_own():
    """Spec EX2."""
    keys = set()
    for _ in range(2):
        _, job = stamped(meta=())
        job.id = job.id[:-1] + b"%d" % len(keys)
        assert stamp_of(job).flags == LACKS_NAME
        keys.add(value_key(job, stamp_of(job)))
    assert len(keys) == 2


def test_keys_of_values_jobs_and_locks_never_meet():
    _, job = stamped(is_quorum=True)
    stamp = stamp_of(job)
    assert stamp.flags == HAS_VALUE | HAS_QUORUM
    assert {value_key(job, stamp)[:1], job_key(job, stamp)[:1]} == {b"V", b"J"}


def test_values_of_several_names_or_queues_have_several_keys():
    _, job = stamped()
    stamp = stamp_of(job)
    others = [stamp._replace(queue=b"other"), stamp._replace(name=b"userann", value=b""), stamp._replace(value=b"bob")]
    assert len({value_key(job, each) for each in (stamp, *others)}) == 4


def test_a_stamp_counts_in_its_queue_only():
    """Spec EX2."""
    broker, job = stamped()
    job.terms = make_job(broker, queue=b"other").terms
    assert stamp_of(job) is None


def test_the_memory_of_a_stamp_is_counted():
    broker, job = stamped()
    assert broker.used_memory == job.attributes.size


def test_only_a_later_claim_is_kept():
    """Spec EX6."""
    broker, job = stamped()
    claim_stamps.learn(broker, job, 5, 6, b"holder")
    claim_stamps.learn(broker, job, 4, 9, b"other")
    stamp = stamp_of(job)
    assert (stamp.fence, stamp.own_fence, stamp.holder) == (5, 6, b"holder")


def test_a_stamp_travels_with_the_job():
    """Spec EX2."""
    _, job = stamped()
    assert unpack(job.attributes.pack())[0].extra(CLAIM) == job.attributes.extra(CLAIM)


@pytest.mark.parametrize(
    "stamp",
    [
        [],
        [b"q"],
        [b"q", b"n", b"v", b"1", 0, 0, b""],
        [b"q", b"n", b"v", 1, -1, 0, b""],
        [b"q", b"n", b"v", 1, 0, 0, 7],
    ],
)
def test_a_stamp_that_no_node_makes_is_refused(stamp):
    attributes = JobAttributes(None, ())
    attributes.extras = {CLAIM: stamp}
    with pytest.raises(ValueError, match="extra"):
        unpack(attributes.pack())


@pytest.mark.parametrize("words", [(1, 2), (b"1", 2, b"h"), (-1, 2, b"h"), (1, 2, b"h" * 65)])
def test_a_claim_of_a_delivery_that_no_node_tells_is_refused(words):
    broker, job = stamped()
    with pytest.raises(ValueError, match=r"claim|unpack"):
        claim_stamps.heard(broker, job, words)
