"""The policy of the garbage collector."""

from __future__ import annotations

import gc
import weakref

import pytest

from disque_py.server.collector import JOB_COUNT_MAX, collect_when_cheap, tune_collector
from evented import EventedNode
from journaled import JournaledNode
from spilled import SpillingNode

# The number of objects that may remain, whatever the number of jobs.
LEFT_MAX = 10


class Knot:
    """A reference cycle, which only the garbage collector can free."""

    def __init__(self):
        self.me = self


@pytest.fixture(autouse=True)
def collector():
    yield
    gc.unfreeze()
    gc.enable()


def test_automatic_collection_is_off_and_existing_objects_are_excluded():
    tune_collector()
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_cycles_are_freed_only_while_few_jobs_make_it_cheap():
    tune_collector()
    knot = weakref.ref(Knot())
    assert not collect_when_cheap(JOB_COUNT_MAX)
    assert knot() is not None
    assert collect_when_cheap(JOB_COUNT_MAX - 1)
    assert knot() is None


def a_day(node):
    """Add, show, fetch, give back and acknowledge jobs. Some are deleted, and some expire."""
    for _ in range(30):
        node.answer("ADDJOB", "q", b"x" * 400, 0, "RETRY", 60)
        node.answer("ADDJOB", "others", b"y" * 400, 0, "TTL", 2, "MAXLEN", 1_000)
        node.settle()
    ids = [node.answer("GETJOB", "FROM", "q")[0][1] for _ in range(30)]
    for job_id in ids[:10]:
        node.answer("SHOW", job_id)
        node.answer("NACK", job_id)
    node.answer("WORKING", ids[10])
    node.answer("QSCAN", "IMPORTRATE", 1)
    node.answer("JSCAN", "REPLY", "all")
    node.answer("QPEEK", "others", 5)
    node.answer("GETJOB", "NOSUCH")
    node.answer("ACKJOB", *ids[:20])
    node.answer("DELJOB", *ids[20:])
    for _ in range(6):
        node.pass_ms(1_000)
        node.tick()
        node.settle()


@pytest.mark.parametrize(
    "make",
    [
        lambda: JournaledNode(appendonly=True, appendfsync="always"),
        lambda: SpillingNode(appendonly=True, appendfsync="everysec", maxmemory=50_000),
        lambda: SpillingNode(maxmemory=50_000),
        EventedNode,
    ],
)
def test_jobs_leave_nothing_for_the_collector(make):
    """This includes the compiled build, where nested functions may create reference cycles."""
    node = make()
    node.settle()
    a_day(node)
    gc.collect()
    gc.disable()
    for _ in range(3):
        a_day(node)
    assert gc.collect() <= LEFT_MAX
