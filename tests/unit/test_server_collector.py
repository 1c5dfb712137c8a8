"""The policy of the garbage collector."""

from __future__ import annotations

import gc
import weakref

import pytest

from disque_py.server.collector import JOB_COUNT_MAX, collect_when_cheap, tune_collector


class Knot:
    """An object that only the collector can free."""

    def __init__(self):
        self.me = self


@pytest.fixture(autouse=True)
def collector():
    yield
    gc.unfreeze()
    gc.enable()


def test_automatic_collection_is_off_and_what_exists_is_put_aside():
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
