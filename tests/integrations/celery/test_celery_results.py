"""The result backend alone, without a worker."""

from __future__ import annotations

from datetime import timedelta

import pytest

pytest.importorskip("celery", reason="the extra celery is not installed")

from celery import Celery
from celery.app.task import Context

from disque_py import testing
from disque_py.integrations.celery import RESULTS, STATE
from waits import eventually


def backend_of(url, **settings):
    app = Celery("tests", broker=url, backend=url)
    app.conf.update(settings)
    return app.backend


def test_a_program_with_a_short_result_expires_does_not_shorten_that_of_others(client, shared_node, name):
    backend_of(shared_node.url, result_expires=7 * 86_400).store_result(name, 1, "SUCCESS")
    assert backend_of(shared_node.url, result_expires=60).get_result(name) == 1
    assert client.queue_settings(RESULTS).result_retention == timedelta(days=7)


def test_results_may_be_longer_than_the_nodes_allow(client, shared_node, name):
    backend = backend_of(shared_node.url)
    before = client.config_get("result-max-bytes")["result-max-bytes"]
    client.config_set("result-max-bytes", "100")
    try:
        backend.store_result(name, "x" * 1000, "SUCCESS")
    finally:
        client.config_set("result-max-bytes", before)
    assert backend.get_result(name) == "x" * 1000


def test_the_end_of_a_task_removes_states_that_another_worker_stored_on_another_node(name):
    with testing.cluster(2) as cluster, cluster[0].client() as client:
        first, second = (backend_of(node.url) for node in cluster)
        first.store_result(name, None, "RETRY")
        second.store_result(name, 5, "SUCCESS", request=Context(retries=1))
        eventually(lambda: client.qlen(f"{STATE}{name}", cluster=True) == 0)
