"""client/several_nodes.py: a command for each node that delivered some of the jobs."""

from __future__ import annotations

import inspect
from functools import partial

import pytest

from disque_py.client.address import Address
from disque_py.client.job_commands import ack, fast_ack, nack
from disque_py.client.results import Job
from disque_py.client.several_nodes import ack_jobs, fast_ack_jobs, for_each_node, nack_jobs, spread
from request_words import words_of

A, B = Address("a", 1), Address("b", 1)
ONE, TWO, THREE = Job("q", "1", b"", node=A), Job("q", "2", b"", node=B), Job("q", "3", b"", node=A)


def test_each_node_gets_a_command_with_its_jobs_and_all_options():
    requests = for_each_node(partial(nack, delay=7), (ONE, TWO, THREE))
    assert [(words_of(each), each.node) for each in requests] == [("NACK 1 3 DELAY 7", A), ("NACK 2 DELAY 7", B)]


@pytest.mark.parametrize(
    ("many", "wire"), [(ack_jobs, "ACKJOB"), (fast_ack_jobs, "FASTACK"), (nack_jobs, "NACK")]
)  # fmt: skip
def test_a_collection_may_be_a_generator_or_empty(many, wire):
    assert [words_of(each) for each in many(job for job in ("1", TWO))] == [f"{wire} 1", f"{wire} 2"]
    assert [words_of(each) for each in many([])] == [wire]


@pytest.mark.parametrize("option", [{"attempt": 2}, {"fence": 7}, {"result": "r"}])
def test_options_of_one_delivery_are_refused_for_jobs_of_several_nodes(option):
    """Each node would apply the option to its own job, but the option is about one job."""
    with pytest.raises(ValueError, match="exactly one job"):
        spread(ack)(ONE, TWO, **option)


def test_a_spread_command_has_the_signature_and_documentation_of_the_command():
    assert inspect.signature(spread(fast_ack)) == inspect.signature(fast_ack)
    assert spread(fast_ack).__doc__ == fast_ack.__doc__
