"""The gateway's changes of many jobs: progress, stopping, and a limit."""

from __future__ import annotations

import asyncio

import pytest

from disque_py.client import ReplyError
from disque_py.gateway.bulk_operations import RUNNING_MAX, BulkOperations
from disque_py.gateway.problems import RefusedError


def begin(operations, change, count=3):
    return operations.begin("cancel", "q", "ann", [[str(number)] for number in range(count)], change)


def test_a_bulk_operation_counts_changed_and_skipped_jobs():
    async def change(part):
        return int(part != ["1"])

    async def run():
        operations = BulkOperations()
        bulk = begin(operations, change)
        await bulk.task
        return operations, bulk

    operations, bulk = asyncio.run(run())
    assert (bulk.state, bulk.jobs, bulk.failed, bulk.total) == ("done", 2, 1, 3)
    assert operations.find(bulk.id) is operations.known()[0]
    assert operations.stop(bulk) is False


def test_a_bulk_operation_ends_when_its_caller_loses_the_permission():
    async def change(part):
        raise ReplyError("NOPERM this user has no permissions")

    async def run():
        bulk = begin(BulkOperations(), change)
        await bulk.task
        return bulk

    assert asyncio.run(run()).state == "aborted"


def test_a_bulk_operation_can_be_stopped_and_their_number_is_limited():
    async def change(part):
        await asyncio.sleep(3600)

    async def run():
        operations = BulkOperations()
        running = [begin(operations, change) for _ in range(RUNNING_MAX)]
        with pytest.raises(RefusedError, match="too many operations"):
            begin(operations, change)
        assert operations.stop(running[0])
        await asyncio.wait([running[0].task])
        begin(operations, change)
        await operations.close()
        return running

    assert {bulk.state for bulk in asyncio.run(run())} == {"canceled"}
