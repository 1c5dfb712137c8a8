"""core/job_waits_state.py: who waits for which jobs."""

from __future__ import annotations

from brokers import add_node, make_broker, make_client
from copies import make_id
from disque_py.core.ends import Ends
from disque_py.core.job_waits_state import UNKNOWN_JOB, JobWaits, Wait


def test_a_wait_is_done_when_all_its_jobs_are_over_or_one_with_any():
    """Spec RW5."""
    client = make_client(make_broker())
    for is_any, count in ((True, 1), (False, 2)):
        wait = Wait(client, [make_id(1), make_id(2)], is_any=is_any)
        for number in (1, 2):
            assert wait.is_done == (number > count)
            del wait.open[make_id(number)]
            wait.outcomes[make_id(number)] = UNKNOWN_JOB
        assert wait.is_done


def test_a_node_registers_a_bounded_number_of_ids():
    """Spec RW7."""
    node = add_node(make_broker())
    state = JobWaits()
    for number in range(3):
        assert state.may_register(node, make_id(number), 3)
        state.elsewhere[make_id(number)] = {node: 0}
    assert state.may_register(node, make_id(1), 3)
    assert not state.may_register(node, make_id(9), 3)


def test_a_node_that_is_forgotten_waits_for_nothing():
    """Spec RW7."""
    broker = make_broker()
    one, other = add_node(broker, 2), add_node(broker, 3)
    state, ends = JobWaits(), Ends(1_000)
    for number in (1, 2):
        ends.watched[make_id(number)] = None
        for node in (one, other)[:number]:
            assert state.may_register(node, make_id(number), 9)
            state.elsewhere.setdefault(make_id(number), {})[node] = 0
    state.forget_node(ends, one)
    assert state.elsewhere == {make_id(2): {other: 0}}
    assert (state.counts, list(ends.watched)) == ({other: 1}, [make_id(2)])
