"""The iterator over jobs, and fetched jobs that it does not hand out."""

from __future__ import annotations

import asyncio
import threading

from disque_py.client import commands
from disque_py.client.job_stream import JobStream
from disque_py.client.results import Job


class Batches:
    """Fetches batches with the given numbers of jobs, and records the jobs given back."""

    def __init__(self, *sizes):
        self.sizes = iter(sizes)
        self.returned = []

    async def fetch(self, request):
        await asyncio.sleep(0)
        return [Job("q", str(number), b"") for number in range(next(self.sizes, 0))]

    def stream(self):
        return JobStream(commands.jobs("q"), self.fetch, lambda jobs: self.returned.append([job.id for job in jobs]))


def test_a_stream_ends_with_the_first_empty_batch():
    """An iterator that has ended stays at its end."""
    batches = Batches(2, 1, 0, 5)

    async def scenario():
        stream = batches.stream()
        return [job.id async for job in stream], [job.id async for job in stream]

    assert asyncio.run(scenario()) == (["0", "1", "0"], [])
    assert batches.returned == []


def test_an_iterator_that_is_closed_during_a_fetch_hands_out_no_job():
    """For example, another task closes the client."""
    batches = Batches(2)

    async def scenario():
        stream = batches.stream()
        fetching = asyncio.ensure_future(anext(stream, None))
        await asyncio.sleep(0)
        await stream.aclose()
        return await fetching

    assert asyncio.run(scenario()) is None
    assert batches.returned == [["0", "1"]]


def test_an_iterator_may_be_dropped_by_another_thread():
    """Any thread may collect garbage. The jobs are given back in the loop."""
    batches, threads = Batches(2), []

    async def scenario():
        holder = [batches.stream()]
        holder[0]._give_back = lambda jobs: threads.append((threading.current_thread(), len(jobs)))
        await anext(holder[0])
        await asyncio.to_thread(holder.clear)
        await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert threads == [(threading.current_thread(), 1)]


def test_without_a_loop_no_job_is_put_back():
    """The jobs are delivered again after their RETRY. Dropping the iterator raises no error."""
    batches, kept = Batches(2), []

    async def scenario():
        kept.append(batches.stream())
        await anext(kept[0])

    asyncio.run(scenario())
    kept.clear()
    assert batches.returned == []
