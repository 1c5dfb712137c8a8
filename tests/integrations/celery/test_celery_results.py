"""The result backend alone, without a worker."""

from __future__ import annotations

from datetime import timedelta

import pytest

pytest.importorskip("celery", reason="the extra celery is not installed")

from celery import Celery

from disque_py.integrations.celery import RESULTS


def backend_of(url, **settings):
    app = Celery("tests", broker=url, backend=url)
    app.conf.update(settings)
    return app.backend


def test_a_program_with_a_short_result_expires_does_not_shorten_that_of_others(client, shared_node, name):
    backend_of(shared_node.url, result_expires=7 * 86_400).store_result(name, 1, "SUCCESS")
    assert backend_of(shared_node.url, result_expires=60).get_result(name) == 1
    assert client.queue_settings(RESULTS).result_retention == timedelta(days=7)
