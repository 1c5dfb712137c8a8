"""Many ADDJOBs encoded cheaply."""

from __future__ import annotations

import pytest

from disque_py.client.commands import add_job, add_options
from disque_py.client.errors import BatchError, from_reply
from disque_py.client.templates import SLAB, AddTemplate, slabs


def template(**options):
    return AddTemplate("q", timeout_ms=100, options=add_options(**options), retry_unsafe=None)


@pytest.mark.parametrize("body", [b"", b"x" * 1000, "ü", bytearray(b"b")])
def test_a_template_makes_the_same_bytes_as_the_command(body):
    """Only cheaper."""
    options = {"replicate": 1, "retry": 5, "async_": True}
    assert template(**options).payload(body) == add_job("q", body, timeout_ms=100, **options).payload()


def test_ids_come_in_the_order_of_the_bodies():
    """As text."""
    assert template().ids([b"D-1", b"D-2"]) == ["D-1", "D-2"]


def test_one_failure_raises_and_the_other_ids_are_not_lost():
    """BatchError has a result for each."""
    failure = from_reply("MAXLEN full")
    with pytest.raises(BatchError) as caught:
        template().ids([b"D-1", failure])
    assert caught.value.results == ["D-1", failure]


def test_bodies_are_taken_in_parts():
    """A generator of millions must not be in memory as a whole."""
    assert [len(part) for part in slabs(b"x" for _ in range(SLAB + 1))] == [SLAB, 1]
    assert list(slabs([])) == []
