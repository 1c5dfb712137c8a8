"""Behaviour that Celery's own integration tests require of a broker and a result backend."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("celery", reason="the extra celery is not installed")

from celery import Celery, chain, chord, group
from celery.exceptions import ChordError, TaskRevokedError, TimeLimitExceeded
from celery.result import GroupResult
from celery_workers import CeleryWorker

from waits import eventually


@pytest.fixture(scope="module")
def worker(shared_node, tmp_path_factory):
    folder = tmp_path_factory.mktemp("contract")
    settings = {"LEASE": "3", "NATIVE_DELAY": "no", "QUEUE": "contract"}
    made = CeleryWorker(folder, shared_node.url, "-c", "2", "-E", name="contract", **settings).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def app(shared_node, worker):
    made = Celery("tests", broker=shared_node.url, backend=shared_node.url)
    made.conf.task_default_queue = "contract"
    made.conf.broker_transport_options = {"visibility_timeout": 3, "native_delay": "no"}
    yield made
    made.close()


@pytest.fixture
def inspect(app):
    return app.control.inspect(["contract@test"], timeout=5)


def task(app, name, *words, **options):
    return app.signature(f"celery_program.{name}", words, **options)


def value(signature, **options):
    return signature.apply_async(**options).get(timeout=60)


# Canvas.


def test_chains_pass_results_through_groups(app):
    add, total = task(app, "add"), task(app, "total")
    header = group(add.clone((1,)), add.clone((2,)))
    assert value(chain(add.clone((1, 1)), header, total.clone())) == 7
    assert value(chain(add.clone((1, 1)), group(add.clone((n,)) for n in range(3)))) == [2, 3, 4]
    assert value(chain(*[add.clone((0, 1)), *[add.clone((1,)) for _ in range(9)]])) == 10


def test_groups_and_chords_nest(app):
    add, total = task(app, "add"), task(app, "total")
    inner = chord([add.clone((n, n)) for n in range(3)], total.clone())
    assert value(chord([inner, add.clone((1, 1))], total.clone())) == 8
    assert value(group(group(add.clone((1, 1))), add.clone((2, 2)))) == [2, 4]
    assert value(chord([add.clone((1, 1))], total.clone())) == 2


def test_a_task_replaces_itself(app):
    assert value(task(app, "replaced", 1)) == [2, 3]


def test_a_failed_header_fails_its_chord(app):
    result = chord([task(app, "add", 1, 1), task(app, "fail")], task(app, "total")).apply_async()
    with pytest.raises((ChordError, ValueError)):
        result.get(timeout=60)


def test_callbacks_follow_success_and_failure(app, worker):
    task(app, "add", 1, 1).apply_async(link=task(app, "run", "linked", immutable=True))
    task(app, "fail").apply_async(link_error=task(app, "run", "sorry", immutable=True))
    eventually(lambda: worker.lines("linked") and worker.lines("sorry"))


def test_a_groups_results_are_iterated_and_counted(app):
    result = group(task(app, "add", n, n) for n in range(4)).apply_async()
    assert isinstance(result, GroupResult)
    assert sorted(found["result"] for _, found in result.iter_native(timeout=60)) == [0, 2, 4, 6]
    assert (result.completed_count(), result.successful()) == (4, True)


def test_a_chains_parents_are_found_by_the_last_result(app):
    result = chain(task(app, "add", 1, 1), task(app, "add", 2)).apply_async()
    assert result.get(timeout=60) == 4
    assert result.parent.get(timeout=60) == 2


# Results.


def test_states_follow_a_task(app):
    result = task(app, "run", "states", 1).apply_async()
    eventually(lambda: result.state == "STARTED")
    assert not result.ready()
    assert result.get(timeout=60) == "states"
    assert (result.state, result.ready(), result.successful()) == ("SUCCESS", True, True)


def test_an_ignored_result_is_none(app, worker):
    result = task(app, "silent", "quiet").apply_async()
    eventually(lambda: worker.lines("quiet"))
    assert app.AsyncResult(result.id).state == "PENDING"
    assert task(app, "add", 1, 1).apply_async(ignore_result=True).get(timeout=60) is None


def test_a_failure_has_its_traceback(app):
    result = task(app, "fail").apply_async()
    with pytest.raises(ValueError, match="no"):
        result.get(timeout=60)
    assert 'raise ValueError("no")' in result.traceback


def test_a_forgotten_result_is_no_longer_known_here(app):
    result = task(app, "add", 1, 1).apply_async()
    assert result.get(timeout=60) == 2
    result.forget()
    assert result._cache is None


def test_a_task_that_ends_twice_keeps_its_first_result(app):
    app.backend.store_result("twice", 1, "SUCCESS")
    app.backend.store_result("twice", 2, "SUCCESS")
    assert app.AsyncResult("twice").get(timeout=60) == 1


# Delivery.


def test_an_eta_and_an_expiry_are_obeyed(app, inspect):
    """Celery's worker holds tasks with a countdown in its own memory."""
    at = datetime.now(UTC) + timedelta(seconds=3)
    result = task(app, "add", 1, 1).apply_async(eta=at)
    eventually(lambda: result.id in [each["request"]["id"] for each in inspect.scheduled()["contract@test"]])
    assert result.get(timeout=60) == 2
    assert datetime.now(UTC) >= at
    with pytest.raises(TaskRevokedError):
        task(app, "add", 1, 1).apply_async(countdown=1, expires=0.5).get(timeout=60)


def test_a_task_waits_in_the_worker_beyond_its_lease(app, worker):
    """The lease is three seconds, and the countdown seven."""
    result = task(app, "run", "waits").apply_async(countdown=7)
    assert result.get(timeout=60) == "waits"
    assert len(worker.lines("waits")) == 1


def test_a_task_is_retried(app, worker):
    assert value(task(app, "third_time")) == 2
    assert value(task(app, "tries_again")) == 1


def test_a_rejected_task_is_errored(app, client):
    result = task(app, "rejected").apply_async()
    eventually(lambda: client.qlen("contract", status="errored"))
    eventually(lambda: result.state in ("FAILURE", "REJECTED", "PENDING", "STARTED"))


def test_a_task_whose_process_died_is_delivered_again(app, worker):
    """The task has the options acks_late and reject_on_worker_lost."""
    assert value(task(app, "dies_once")) == 7
    assert len(worker.lines("dying")) == 2


def test_time_limits_end_tasks(app):
    assert value(task(app, "softly")) == "in time"
    with pytest.raises(TimeLimitExceeded):
        task(app, "endless").apply_async().get(timeout=60)


# Remote control.


def test_a_running_task_is_terminated(app, worker, inspect):
    result = task(app, "run", "terminated", 300).apply_async()
    eventually(lambda: worker.lines("terminated"))
    assert [each["id"] for each in inspect.active()["contract@test"]] == [result.id]
    result.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=60)


def test_a_waiting_task_is_revoked(app, inspect):
    result = task(app, "add", 1, 1).apply_async(countdown=300)
    eventually(lambda: inspect.scheduled()["contract@test"])
    app.control.revoke(result.id, reply=True, destination=["contract@test"], timeout=60)
    assert result.id in inspect.revoked()["contract@test"]


def test_a_worker_tells_about_itself(inspect):
    assert "celery_program.add" in eventually(inspect.registered)["contract@test"]
    assert [queue["name"] for queue in inspect.active_queues()["contract@test"]] == ["contract"]
    assert inspect.stats()["contract@test"]["pool"]["max-concurrency"] == 2
    assert inspect.conf()["contract@test"]["task_track_started"] is True
    assert inspect.reserved()["contract@test"] == []


def test_a_worker_takes_and_leaves_queues(app, inspect):
    def control(command, **words):
        return app.control.broadcast(command, words, reply=True, destination=["contract@test"], timeout=60)

    assert "ok" in control("add_consumer", queue="contract-more")[0]["contract@test"]
    assert value(task(app, "add", 1, 2), queue="contract-more") == 3
    assert "ok" in control("cancel_consumer", queue="contract-more")[0]["contract@test"]
    eventually(lambda: len(inspect.active_queues()["contract@test"]) == 1)
    assert "ok" in control("rate_limit", task_name="celery_program.add", rate_limit="100/s")[0]["contract@test"]
    assert "ok" in control("pool_grow", n=1)[0]["contract@test"]


def test_purging_drops_waiting_tasks(app):
    for _ in range(3):
        task(app, "add", 1, 1).apply_async(queue="purged")
    with app.connection_for_write() as connection:
        assert app.amqp.queues["purged"](connection.default_channel).purge() == 3
