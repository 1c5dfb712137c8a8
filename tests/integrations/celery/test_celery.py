"""Celery with real workers: canvas, results, retries, control."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("celery", reason="the extra celery is not installed")

from celery import Celery, chain, chord, group
from celery.exceptions import TaskRevokedError, TimeoutError
from celery_workers import CeleryWorker

from disque_py.testing import node
from waits import eventually


def client_of(url, lease=60):
    """Return an app that sends celery_program's tasks. A dead worker's job is queued again after `lease` seconds."""
    app = Celery("tests", broker=url, backend=url)
    app.conf.broker_transport_options = {"visibility_timeout": lease}
    return app


def task(app, name):
    return app.signature(f"celery_program.{name}")


@pytest.fixture(scope="module")
def worker(shared_node, tmp_path_factory):
    made = CeleryWorker(tmp_path_factory.mktemp("celery"), shared_node.url, "-c", "2", "-E").start()
    yield made
    made.stop()


@pytest.fixture
def app(shared_node, worker):
    made = client_of(shared_node.url)
    yield made
    made.close()


def send(app, name, *words, **options):
    return task(app, name).apply_async(words, **options)


def test_a_task_returns_its_result(app):
    assert send(app, "add", 1, 2).get(timeout=60) == 3


def test_a_long_result_arrives(app):
    assert len(send(app, "big", 200_000).get(timeout=60)) == 200_000


def test_a_failure_is_raised_where_the_result_is_read(app):
    result = send(app, "fail")
    with pytest.raises(Exception, match="no"):
        result.get(timeout=60)
    assert result.state == "FAILURE"


def test_a_retried_task_ends_with_the_result_of_its_last_run(app):
    assert send(app, "third_time").get(timeout=60) == 2


def test_a_rejected_task_comes_again_marked_as_redelivered(app, worker):
    assert send(app, "reject_once").get(timeout=60) is True
    assert len(worker.lines("rejecting")) == 2


def test_a_countdown_is_kept_by_the_broker_and_ends_on_time(app, worker):
    began = time.time()
    result = send(app, "run", "late", countdown=3)
    assert eventually(app.control.inspect(["w@test"], timeout=2).scheduled) == {"w@test": []}
    result.get(timeout=60)
    assert float(worker.lines("late")[0][2]) - began >= 3


def test_an_expired_task_is_recorded_as_revoked(app, worker):
    result = send(app, "run", "expired", countdown=0.3, expires=0.1)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=60)
    assert worker.lines("expired") == []


def test_groups_chains_and_chords_work(app):
    add, total = task(app, "add"), task(app, "total")
    assert group(add.clone((n, n)) for n in range(5))().get(timeout=60) == [0, 2, 4, 6, 8]
    assert chain(add.clone((1, 1)), add.clone((3,))).delay().get(timeout=60) == 5
    assert chord([add.clone((n, n)) for n in range(5)], total.clone()).delay().get(timeout=60) == 20


def test_a_saved_group_is_restored(app):
    made = group(task(app, "add").clone((n, n)) for n in range(3))()
    made.save()
    assert app.GroupResult.restore(made.id).get(timeout=60) == [0, 2, 4]


def test_an_unknown_task_is_pending_and_a_wait_ends(app):
    result = app.AsyncResult("unknown")
    assert result.state == "PENDING"
    with pytest.raises(TimeoutError):
        result.get(timeout=0.2)


def test_workers_answer_inspect_and_obey_control(app):
    assert eventually(app.control.inspect(["w@test"]).ping) == {"w@test": {"ok": "pong"}}
    revoked = send(app, "run", "revoked", countdown=8)
    assert app.control.revoke(revoked.id, reply=True, timeout=60, destination=["w@test"])
    with pytest.raises(TaskRevokedError):
        revoked.get(timeout=60)


def test_a_new_worker_learns_from_the_others_which_tasks_are_revoked(app, shared_node, tmp_path):
    """Only workers remember it, so a rolling restart would otherwise forget it."""
    unwanted = send(app, "run", "unwanted", countdown=300)
    app.control.revoke(unwanted.id, reply=True, timeout=60, destination=["w@test"])
    new = CeleryWorker(tmp_path, shared_node.url, "-c", "1", "-Q", "none", name="new").start()
    try:
        assert unwanted.id in eventually(app.control.inspect(["new@test"]).revoked)["new@test"]
    finally:
        new.stop()


def test_events_reach_a_monitor(app):
    found = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"task-succeeded": found.append})
        with receiver.consumer_context(wakeup=False) as (own, _, _):
            time.sleep(1.1)  # Producers cache bindings for a second.
            result = send(app, "add", 1, 1)
            while not found:
                own.drain_events(timeout=60)
    assert found[0]["uuid"] == result.id


def test_a_stopped_worker_gives_back_what_it_has_not_started(tmp_path):
    with node() as broker, client_of(broker.url) as app:
        worker = CeleryWorker(tmp_path, broker.url, "-c", "1").start()
        for n in range(3):
            send(app, "run", f"stop-{n}", 5)
        eventually(lambda: worker.lines("stop-0"))
        worker.stop()
        assert worker.lines("stop-0-done")
        with broker.client() as client:
            assert client.qlen("celery") == 2


def test_the_program_of_the_page_prints_its_sum(shared_node, tmp_path):
    page = (Path(__file__).parents[3] / "docs/integrations/celery.md").read_text(encoding="utf-8")
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    environment = os.environ | {"DISQUE_URL": f"{shared_node.url}?name=shop", "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-P", "solo", "-Q", "shop", "-n", "shop@test"]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            run = "import shop; print(shop.add.apply_async((2, 3), queue='shop').get(timeout=30))"
            done = subprocess.run(
                [sys.executable, "-c", run], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
            )
        finally:
            worker.terminate()
            worker.wait(60)
    assert done.stdout == "5\n"
