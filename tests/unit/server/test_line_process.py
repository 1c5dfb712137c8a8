"""server/line_process.py: a child process encodes events as lines. If it fails, the node encodes them itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from array import array
from typing import Any

import msgpack
import uvloop

from disque_py.event_format import ADDED
from disque_py.server import line_process
from disque_py.server.line_process import LineProcess

JOB_ID = b"D-00010203-9bFlIkpYt5HfavHYMD5hzYbD-003d"
EVENTS = [(ADDED, JOB_ID, 1_700_000_000_123_000_007, b"q", 100)] * 300
BLOCKS = [(1, 1_700_000_000_500, msgpack.packb(EVENTS)), (301, 1_700_000_000_501, msgpack.packb(EVENTS))]


def run(story: Any) -> Any:
    """Run a story with a LineProcess and its log lines."""

    async def inner() -> Any:
        logged: list[str] = []
        lines = LineProcess(asyncio.get_running_loop(), lambda _, text: logged.append(text))
        try:
            return await story(lines, logged)
        finally:
            lines.close()
            await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(inner())


async def made(lines: LineProcess) -> tuple[bytes, bytes] | None:
    """Return the answer for BLOCKS."""
    answer: asyncio.Future[tuple[bytes, bytes] | None] = asyncio.get_running_loop().create_future()
    lines.make(BLOCKS, answer.set_result)
    return await asyncio.wait_for(answer, 10)


def test_lines_and_their_ends_come_back():
    async def story(lines, logged):
        answers = await asyncio.gather(*[made(lines) for _ in range(3)])
        return answers, logged

    answers, logged = run(story)
    for text, ends in answers:
        found = array("I")
        found.frombytes(ends)
        assert len(found) == 600
        assert json.loads(text[found[299] : found[300]])["seq"] == 301
    assert logged == []


def test_a_child_that_dies_is_given_up_for_a_while():
    async def story(lines, logged):
        await made(lines)
        os.kill(lines._transport.get_pid(), signal.SIGKILL)
        while not logged:
            await asyncio.sleep(0.01)
        return await made(lines), logged

    answer, logged = run(story)
    assert answer is None
    assert "the node makes them itself" in logged[0]


def test_a_question_over_which_the_child_dies_is_answered_with_none():
    async def story(lines, logged):
        await made(lines)
        os.kill(lines._transport.get_pid(), signal.SIGSTOP)
        waiting = asyncio.ensure_future(made(lines))
        await asyncio.sleep(0.05)
        os.kill(lines._transport.get_pid(), signal.SIGKILL)
        return await waiting

    assert run(story) is None


def test_a_child_that_cannot_be_started_does_no_harm(monkeypatch):
    monkeypatch.setattr(line_process.sys, "executable", "/nonexistent/python")

    async def story(lines, logged):
        return await made(lines), logged

    answer, logged = run(story)
    assert answer is None
    assert "can't be started" in logged[0]


def test_after_the_end_nothing_is_asked():
    async def story(lines, logged):
        lines.close()
        return await made(lines)

    assert run(story) is None


def test_an_unused_child_is_ended(monkeypatch):
    monkeypatch.setattr(line_process, "IDLE_SECONDS", 0.0)

    async def story(lines, logged):
        await made(lines)
        lines._watch()
        assert lines._transport is None
        return await made(lines), logged

    answer, logged = run(story)
    assert answer is not None
    assert logged == []
