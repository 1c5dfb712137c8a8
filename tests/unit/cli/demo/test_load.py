"""disque_py/cli/demo/load.py: producers and workers that lose no job when a node fails."""

from __future__ import annotations

import asyncio

from demo_node import StandIn
from disque_py.cli.demo import load as load_module
from disque_py.cli.demo.flights import Flights
from disque_py.cli.demo.load import ADD_BATCH, Load
from disque_py.cli.demo.tally import Tally


def some_flights(count):
    """Flights of two carriers."""
    return Flights([b"UA", b"B6"] * (count // 2), [b'{"row":%d,"x":1}' % row for row in range(count)])


def run_load(flights, *nodes):
    """Run producers and workers on all nodes until everything is delivered and acknowledged. Return the tally."""

    async def story():
        tally = Tally(flights, len(nodes))
        load = Load(flights, tally)
        for node in nodes:
            await node.__aenter__()
        tasks = [asyncio.ensure_future(load.produce(number, node.port)) for number, node in enumerate(nodes)]
        tasks += [asyncio.ensure_future(load.work(number, node.port, number)) for number, node in enumerate(nodes)]
        async with asyncio.timeout(10):
            while not tally.is_complete:
                await asyncio.sleep(0.01)
        load.finish()
        await asyncio.wait_for(asyncio.gather(*tasks), 5)
        for node in nodes:
            await node.__aexit__()
        return tally

    return asyncio.run(story())


def test_everything_is_added_delivered_and_acknowledged():
    """The two nodes don't know each other, so each serves its own jobs."""
    flights = some_flights(1000)
    nodes = StandIn(), StandIn()
    tally = run_load(flights, *nodes)
    assert tally.report(1.0).is_good
    assert tally.acknowledged == 1000
    assert len(nodes[0].acknowledged) + len(nodes[1].acknowledged) == 1000


def test_refused_adds_are_sent_again():
    """NOREPL, OOM and PAUSED are all temporary."""
    tally = run_load(some_flights(300), StandIn(refusals=7))
    assert tally.report(1.0).is_good
    assert tally.adds_repeated == 7


def test_adds_without_an_answer_are_sent_again_when_the_connection_breaks():
    """The first attempt may have succeeded. A second delivery is counted; a loss would be worse."""
    flights = some_flights(300)
    tally = run_load(flights, StandIn(breaks_after=150, counted=b"ADDJOB"), StandIn())
    assert tally.added == tally.delivered == 300
    assert tally.adds_repeated > 0


def test_producers_wait_while_too_many_flights_are_on_their_way(monkeypatch):
    """Otherwise the latencies would measure a queue that the demonstration itself filled."""
    monkeypatch.setattr(load_module, "ON_THE_WAY_MAX", ADD_BATCH)

    async def story():
        flights = some_flights(ADD_BATCH * 2)
        tally = Tally(flights, 1)
        load = Load(flights, tally)
        taken = await load.take_rows()
        waiting = asyncio.ensure_future(load.take_rows())
        await asyncio.sleep(0.01)
        held_back = not waiting.done()
        load.add_again(taken[:3])
        again = await waiting
        load.finish()
        return held_back, again, await load.take_rows()

    assert asyncio.run(story()) == (True, [0, 1, 2], [])
