"""Many calls that are added together."""

from __future__ import annotations

import asyncio
import time

import pytest

from client_node import Node, closed_port
from disque_py.client import BatchError, NotConnectedError
from disque_py.tasks import App
from disque_py.tasks.many import MANY

COUNT = 2 * MANY + 100


def answer(words):
    return b"-MAXLEN full\r\n" if b"[700]" in words[2] else b"+D-" + words[2][-10:-2] + b"\r\n"


@pytest.fixture
def app():
    """An app with a node that refuses call number 700."""
    with Node(answers={"ADDJOB": answer, "CLIENT": b"+OK\r\n"}) as node:
        app = App(f"disque://{node.address}")

        @app.task
        def double(x):
            return 2 * x

        yield app
        app.close()


def calls_of(app):
    return [app.tasks["double"].call(x) for x in range(COUNT)]


async def with_asyncio(app, adding):
    async with app:
        await adding


@pytest.mark.parametrize("is_async", [False, True])
def test_the_error_has_the_outcome_of_each_call(app, is_async):
    """The calls of earlier and later pipelines, too. Otherwise a program could not tell which ones to add again."""
    with pytest.raises(BatchError, match=f"1 of {COUNT} commands") as caught:
        asyncio.run(with_asyncio(app, app.add_many_async(calls_of(app)))) if is_async else app.add_many(calls_of(app))
    assert [place for place, outcome in enumerate(caught.value.results) if isinstance(outcome, Exception)] == [700]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_group_has_the_handles_of_the_calls_that_were_added(app, is_async):
    group = app.group()
    with pytest.raises(BatchError):
        asyncio.run(with_asyncio(app, group.add_many_async(calls_of(app)))) if is_async else group.add_many(
            calls_of(app)
        )
    assert len(group.handles) == COUNT - 1


def test_without_a_node_one_pipeline_is_tried():
    """Each of them would wait for the patience of the client."""
    app = App(f"disque://127.0.0.1:{closed_port()}/?patience=0.3")
    calls = [app.task(abs).call(-1)] * 20 * MANY
    began = time.monotonic()
    with pytest.raises(BatchError) as caught:
        app.add_many(calls)
    assert time.monotonic() - began < 3
    assert [type(outcome) for outcome in caught.value.results] == [NotConnectedError] * 20 * MANY
