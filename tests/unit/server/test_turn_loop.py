"""server/turn_loop.py: all ready input shares a turn. One timer is set for the next due work."""

from __future__ import annotations

import asyncio
import time

import pytest

from copies import hold_queued
from disque_py.core import lifecycle
from disque_py.server import turn_loop
from disque_py.server.turn_loop import now_s
from loopback import serve, until


def test_a_turn_is_finished_after_all_input_that_is_ready():
    async def story(server):
        await asyncio.sleep(0.01)
        turns = server.driver.turns
        for _ in range(10):
            server.driver.begin()
        assert server.driver.is_open
        await asyncio.sleep(0)
        assert (server.driver.is_open, server.driver.turns) == (False, turns + 1)

    serve(story)


def test_a_thousand_commands_of_ten_clients_take_few_turns():
    async def story(server):
        talks = [await server.connect() for _ in range(10)]
        for talk in talks:
            talk.send("PING")
            await talk.reply()
        turns = server.driver.turns
        for talk in talks:
            talk.send(*["PING"] * 100)
        for talk in talks:
            await talk.replies(100)
        assert server.driver.turns - turns < 60

    serve(story)


def test_time_passes_without_input():
    async def story(server):
        await until(lambda: len(server.broker.stats.samples) >= 2)

    serve(story)


@pytest.mark.plain
def test_a_node_that_stood_still_says_for_how_long(monkeypatch):
    told = []
    monkeypatch.setattr(turn_loop, "tell", lambda name, **fields: told.append((name, fields["ms"])))
    monkeypatch.setattr(turn_loop, "STALL_MS", 500)

    async def story(server):
        await asyncio.sleep(0.02)
        told.clear()
        time.sleep(0.8)  # noqa: ASYNC251 - that is what it is about
        await until(lambda: told)
        assert told[0][0] == "stall"
        assert told[0][1] >= 500

    serve(story)


def test_work_that_is_due_sooner_moves_the_timer():
    async def story(server):
        await asyncio.sleep(0.02)
        called = []
        server.driver.begin()
        due_ms = server.broker.now_ms + 5
        server.broker.schedule.call_at(due_ms, lambda: called.append(server.broker.now_ms))
        await until(lambda: called)
        assert due_ms <= called[0] <= due_ms + 500

    serve(story)


def test_with_more_work_the_next_turn_comes_at_once_and_input_is_still_read():
    async def story(server):
        talk = await server.connect()
        server.driver.begin()
        for number in range(4000):
            job = hold_queued(server.broker, number=number, retry_s=0)
            job.expire_at_ms = server.broker.now_ms + 1
            lifecycle.arm(server.broker, job)
        talk.send("PING")
        assert await talk.reply() == b"PONG"
        await until(lambda: server.broker.job_count == 0)

    serve(story)


def test_after_the_stop_there_are_no_ticks():
    async def story(server):
        await asyncio.sleep(0.01)
        server.turns.stop()
        turns = server.driver.turns
        await asyncio.sleep(0.25)
        assert server.driver.turns == turns

    serve(story)


def test_the_clock_of_the_turn_loop_is_monotonic():
    assert now_s() <= now_s()
