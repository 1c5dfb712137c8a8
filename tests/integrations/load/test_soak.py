"""Real workers of each framework on a real cluster: no task is lost, and none runs twice without a reason."""

from __future__ import annotations

import importlib.util
import time

import pytest

import soak
from disque_py import testing

MODULES = {"celery": "celery", "dramatiq": "dramatiq", "taskiq": "taskiq", "django": "django"}
LEASE_S = 2.0


@pytest.fixture(params=sorted(soak.FRAMEWORKS))
def framework(request):
    """The name of each framework that is installed."""
    if importlib.util.find_spec(MODULES[request.param]) is None:
        pytest.skip(f"the extra [{request.param}] is not installed")
    return request.param


@pytest.mark.timeout(180)
def test_each_of_a_thousand_tasks_runs_once(framework, tmp_path):
    assert soak.soak(framework, tmp_path, 1_000, ()) == ([], [], [])


@pytest.mark.timeout(180)
def test_no_task_is_lost_when_workers_and_nodes_are_killed(framework, tmp_path):
    lost, _, without_reason = soak.soak(framework, tmp_path, 400, ("worker", "node", "stop"), seconds=0.02)
    assert (lost, without_reason) == ([], [])


@pytest.mark.timeout(180)
def test_tasks_and_delays_beyond_a_lease_run_once(framework, tmp_path):
    """The worker extends the leases of tasks that run. The node keeps tasks that are delayed."""
    with testing.node() as node:
        story = soak.Soak(framework, tmp_path, node.url, LEASE_S)
        try:
            story.worker(), story.worker()
            sent_at = time.time()
            story.send(2, 2 * LEASE_S, 2 * LEASE_S).wait(30)
            story.wait(lambda: story.ended() == 2, "the end of the tasks")
            queue = soak.FRAMEWORKS[framework].queue
            story.wait(lambda: soak.waiting_jobs(node.url, queue) == 0, "the end of all jobs")
            assert story.verdict(2) == ([], [], [])
            assert all(run.begin - sent_at >= 2 * LEASE_S for runs in story.runs().values() for run in runs)
        finally:
            story.close()


@pytest.mark.timeout(180)
def test_tasks_that_end_while_no_node_runs_are_acknowledged_later(framework, tmp_path):
    with testing.node(appendonly=True) as node:
        story = soak.Soak(framework, tmp_path, f"{node.url}?patience=0.5", lease_s=60)
        try:
            story.worker()
            story.send(2, 2).wait(30)
            story.wait(lambda: len(story.runs()) == 2, "the begin of the tasks")
            node.kill()
            story.wait(lambda: story.ended() == 2, "the end of the tasks")
            node.start()
            queue = soak.FRAMEWORKS[framework].queue
            story.wait(lambda: soak.waiting_jobs(node.url, queue) == 0, "the acknowledgements")
            story.send(1).wait(30)
            story.wait(lambda: len(story.runs()[0]) == 2, "a task after the outage")
        finally:
            story.close()


@pytest.mark.timeout(180)
def test_tasks_of_a_killed_worker_run_again_after_their_lease(framework, tmp_path):
    with testing.node() as node:
        story = soak.Soak(framework, tmp_path, node.url, LEASE_S)
        try:
            first = story.worker()
            story.send(2, LEASE_S).wait(30)
            story.wait(lambda: len(story.runs()) == 2, "the begin of the tasks")
            story.kill(first)
            story.worker()
            story.wait(lambda: story.ended() == 2, "the second run")
            assert [len(runs) for runs in story.runs().values()] == [2, 2]
            assert story.verdict(2)[2] == []
        finally:
            story.close()
