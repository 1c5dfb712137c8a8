"""disque_py/cli/demo_spark/work.py: workers that record their jobs."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace

from rich.console import Console

from demo_node import StandIn
from disque_py.cli.demo.flights import Flights
from disque_py.cli.demo.load import Load
from disque_py.cli.demo.tally import Tally
from disque_py.cli.demo_spark.work import SparkDisplay, Work

FLIGHTS = Flights([b"UA", b"B6"] * 50, [b'{"row":%d,"x":1}' % row for row in range(100)])


def test_workers_know_the_flight_of_each_job_and_which_they_have_finished():
    async def story():
        tally = Tally(FLIGHTS, 1)
        work = Work(FLIGHTS, tally)
        async with StandIn() as node:
            producers = Load(FLIGHTS, Tally(FLIGHTS, 1))
            tasks = [
                asyncio.ensure_future(producers.produce(0, node.port)),
                asyncio.ensure_future(work.work(0, node.port, 0)),
            ]
            async with asyncio.timeout(10):
                while tally.acknowledged < 100:
                    await asyncio.sleep(0.01)
            tally.all_were_added()
            producers.finish()
            work.finish()
            await asyncio.wait_for(asyncio.gather(*tasks), 5)
        return tally, work

    tally, work = asyncio.run(story())
    assert tally.report(1.0).is_good
    assert work.finished == set(work.row_of_job)
    assert sorted(work.row_of_job.values()) == list(range(100))


def test_the_display_says_how_much_is_indexed():
    work = Work(FLIGHTS, Tally(FLIGHTS, 1))
    spark = SimpleNamespace(indexed=1234)
    display = SparkDisplay(Console(file=io.StringIO()), work, [], spark)
    assert "indexed 1,234" in display.line()


def test_the_display_says_that_spark_starts_until_the_first_flight_is_there():
    """No rate is shown: a rate of zero would look as if something were stuck."""
    work = Work(FLIGHTS, Tally(FLIGHTS, 1))
    display = SparkDisplay(Console(file=io.StringIO()), work, [], SimpleNamespace(indexed=0))
    assert "rate waiting for Spark" in display.line()
    work.tally.delivered = 1
    assert "/s" in display.line()
