"""The gateway's changes of many jobs: progress, stopping, and a limit."""

from __future__ import annotations

import asyncio

import pytest

from disque_py.client import ReplyError
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.works import RUNNING_MAX, Works


def begin(works, change, count=3):
    return works.begin("cancel", "q", "ann", [[str(number)] for number in range(count)], change)


def test_a_long_operation_counts_changed_and_skipped_jobs():
    async def change(part):
        return int(part != ["1"])

    async def run():
        works = Works()
        work = begin(works, change)
        await work.task
        return works, work

    works, work = asyncio.run(run())
    assert (work.state, work.jobs, work.failed, work.total) == ("done", 2, 1, 3)
    assert works.find(work.id) is works.known()[0]
    assert works.stop(work) is False


def test_a_long_operation_ends_when_its_caller_loses_the_permission():
    async def change(part):
        raise ReplyError("NOPERM this user has no permissions")

    async def run():
        work = begin(Works(), change)
        await work.task
        return work

    assert asyncio.run(run()).state == "aborted"


def test_a_long_operation_can_be_stopped_and_their_number_is_limited():
    async def change(part):
        await asyncio.sleep(3600)

    async def run():
        works = Works()
        running = [begin(works, change) for _ in range(RUNNING_MAX)]
        with pytest.raises(RefusedError, match="too many operations"):
            begin(works, change)
        assert works.stop(running[0])
        await asyncio.wait([running[0].task])
        begin(works, change)
        await works.close()
        return running

    assert {work.state for work in asyncio.run(run())} == {"canceled"}
