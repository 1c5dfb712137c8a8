"""The options that the nodes of a worker's cluster understand."""

from __future__ import annotations

from disque_py.client import Address, Job
from disque_py.client.dialect import Dialect, is_too_long
from disque_py.client.errors import from_reply

NODE, OTHER = Address("a", 1), Address("b", 1)


def job_of(node):
    return Job("q", "id", b"", attempt=3, node=node)


def test_a_node_that_refused_the_number_of_a_delivery_gets_it_no_more():
    """Other nodes still get the number."""
    dialect = Dialect()
    assert dialect.is_refused(job_of(NODE), from_reply("BADID Invalid Job ID format."))
    assert (dialect.attempt_of(job_of(NODE)), dialect.attempt_of(job_of(OTHER))) == (None, 3)


def test_a_cluster_that_is_being_upgraded_is_asked_again():
    """Spec Y1: the node refuses only during the upgrade."""
    dialect = Dialect()
    assert dialect.is_refused(job_of(NODE), from_reply("ERR not while node abc runs an older version"))
    assert dialect.attempt_of(job_of(NODE)) == 3


def test_another_error_is_not_taken_for_a_refused_word():
    assert not Dialect().is_refused(job_of(NODE), from_reply("OOM command not allowed"))


def test_a_getjob_is_asked_without_the_number_once_it_was_refused():
    """A second refusal must have another reason."""
    dialect = Dialect()
    error = from_reply("ERR syntax error")
    assert [dialect.fetch_is_refused(error), dialect.fetches_attempts] == [True, False]
    assert not dialect.fetch_is_refused(error)


def test_a_node_that_refuses_a_long_result_knows_the_word():
    """Spec RW1. The refusal does not concern the number of the delivery."""
    assert is_too_long(from_reply("ERR RESULT is longer than result-max-bytes"))
    assert not is_too_long(from_reply("ERR syntax error"))
