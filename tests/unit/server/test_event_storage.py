"""The node opens the directory of events before clients connect. A failure there does not stop the start."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from disque_py.server.event_storage import EventStorage
from disque_py.storage.event_log_service import CLOSED, OFF, ON
from shells import make_shell


def run(tmp_path: Path, story: Any, **settings: Any) -> Any:
    """Run a story with an EventStorage. The folder is the working directory, as for a node with this `dir`."""

    async def inner() -> Any:
        turns = make_shell(**settings)
        place = EventStorage(turns.driver.broker.settings, turns)
        try:
            return await story(place, turns)
        finally:
            place.abandon()

    with contextlib.chdir(tmp_path):
        return asyncio.run(inner())


def test_a_log_is_available_once_open_and_closed_in_order(tmp_path):
    async def story(place, turns):
        await place.open()
        state, log_id = place.service.state, place.service.log.log_id
        place.service.started("memory lost")
        await place.close()
        return state, log_id, place.service.log.durable_seq

    state, log_id, durable_seq = run(tmp_path, story)
    assert (state, durable_seq) == (ON, 2)
    assert (tmp_path / "nodes.conf.events/open").read_text().strip() == log_id
    assert run(tmp_path, story)[1] == log_id


def test_without_events_no_directory_is_made(tmp_path):
    async def story(place, turns):
        await place.open()
        return place.service.state

    assert run(tmp_path, story, events=False) == OFF
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_opened_is_logged_and_tried_again(tmp_path):
    (tmp_path / "nodes.conf.events").write_text("no directory")

    async def story(place, turns):
        await place.open()
        before = place.service.state
        assert place.directory in place.service.trouble
        (tmp_path / "nodes.conf.events").unlink()
        turns.driver.begin()
        place.service._retry_at_ms = 0
        place.service.tick()
        for _ in range(200):
            await asyncio.sleep(0.01)
            if place.service.state == ON:
                break
        return before, place.service.state

    assert run(tmp_path, story) == (CLOSED, ON)


def test_a_directory_that_another_node_uses_is_not_touched(tmp_path):
    async def story(place, turns):
        await place.open()
        other = EventStorage(turns.driver.broker.settings, turns)
        await other.open()
        other.abandon()
        return other.service.state, other.service.trouble

    state, trouble = run(tmp_path, story)
    assert state == CLOSED
    assert "in use" in trouble


def test_nodes_that_share_a_directory_have_logs_of_their_own(tmp_path):
    """Nodes without journals share everything except the nodes file, as in conf/cluster. That file may be elsewhere."""

    async def story(place, turns):
        turns.driver.broker.settings.cluster_config_file = "/elsewhere/nodes-7712.conf"
        other = EventStorage(turns.driver.broker.settings, turns)
        await place.open()
        await other.open()
        states = place.service.state, other.service.state
        other.abandon()
        return states

    assert run(tmp_path, story) == (ON, ON)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nodes-7712.conf.events", "nodes.conf.events"]
