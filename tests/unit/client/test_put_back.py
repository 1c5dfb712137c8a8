"""client/put_back.py: jobs go back immediately, and with a reason if the node understands it."""

from __future__ import annotations

from client_node import AT_ONCE, JOB_A, JOB_B
from disque_py.client.address import Address
from disque_py.client.errors import BadIdError, PausedError, ReplyError
from disque_py.client.put_back import PutBack
from disque_py.client.results import Job

NODE = Address("a", 1)
ONCE = JOB_A[:-1] + "0"


def job(job_id, attempt=None):
    made = Job("q", job_id, b"", attempt=attempt)
    made.node = NODE
    return made


def words(steps):
    return [step[0].argv for step in steps[NODE]]


def test_jobs_of_one_node_go_back_in_one_command():
    """The queue's back-off does not apply."""
    steps = PutBack().steps([job(JOB_A), job(JOB_B)])
    assert words(steps) == [(b"NACK", JOB_A.encode(), JOB_B.encode(), *AT_ONCE)]


def test_a_delivery_is_named_where_it_is_known():
    """This does not disturb a later delivery to another worker."""
    steps = PutBack().steps([job(JOB_A, attempt=3), job(JOB_B)])
    first = (b"NACK", JOB_A.encode(), *AT_ONCE, b"ATTEMPT", b"3")
    assert words(steps) == [first, (b"NACK", JOB_B.encode(), *AT_ONCE)]


def test_a_job_that_is_delivered_once_has_no_delay():
    """NACK has no effect on it, whatever its options."""
    assert words(PutBack().steps([job(ONCE, attempt=1)])) == [(b"NACK", ONCE.encode())]


def test_an_older_node_is_asked_once():
    """From then on it gets plain NACKs."""
    rules = PutBack()
    (step,) = rules.steps([job(JOB_A)])[NODE]
    assert rules.plain_after(step, PausedError("PAUSED")) is None
    plain = rules.plain_after(step, BadIdError("BADID"))
    assert plain[0].argv == (b"NACK", JOB_A.encode())
    assert words(rules.steps([job(JOB_B, attempt=1)])) == [(b"NACK", JOB_B.encode())]


def test_a_refusal_during_an_upgrade_is_forgotten():
    """The node itself knows the options, so the client uses them again."""
    rules = PutBack()
    (step,) = rules.steps([job(JOB_A)])[NODE]
    assert rules.plain_after(step, ReplyError("ERR not while node x runs an older version")) is not None
    assert words(rules.steps([job(JOB_B)])) == [(b"NACK", JOB_B.encode(), *AT_ONCE)]
