"""progress.py: the progress of a query, as Spark reports it."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("prometheus_client", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.delta_store import Store
from disque_py.spark.progress import ProgressListener
from disque_py.spark.progress_file import note_batch

PROGRESS = {"name": "index", "batchId": 1, "numInputRows": 10, "durationMs": {"triggerExecution": 5}, "sources": []}


def heard(listener: ProgressListener, *batches: dict) -> None:
    for batch in batches:
        listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=json.dumps(batch))))


def test_a_batch_is_a_line_and_a_file(tmp_path, capsys):
    note_batch(Store(str(tmp_path)), 1, {"merge_ms": 3, "jobs": 4})
    heard(ProgressListener(str(tmp_path), metrics_file=str(tmp_path / "m.prom")), PROGRESS, PROGRESS)
    assert capsys.readouterr().err.count("index: batch 1, 10 rows in 5 ms, 2000/s, 4 jobs merged in 3 ms\n") == 2
    assert 'disque_pipeline_rows_total{query="index"} 20.0\n' in (tmp_path / "m.prom").read_text()


def test_figures_that_spark_does_not_report_stand_beside_its_own(tmp_path):
    listener = ProgressListener(metrics_file=str(tmp_path / "m.prom"), quiet=True)
    listener.note("index", "disque_pipeline_nodes_away", 1)
    assert 'disque_pipeline_nodes_away{query="index"} 1.0\n' in (tmp_path / "m.prom").read_text()
    heard(listener, PROGRESS)
    assert listener.text().count("# TYPE") > 3
    assert 'disque_pipeline_nodes_away{query="index"} 1.0\n' in listener.text()


def test_two_threads_may_report_at_the_same_time(tmp_path):
    listener = ProgressListener(metrics_file=str(tmp_path / "m.prom"), quiet=True)
    with ThreadPoolExecutor(2) as pool:
        for one in [pool.submit(listener.note, "index", "disque_pipeline_nodes_away", n) for n in range(200)]:
            one.result()
    assert [path.name for path in tmp_path.iterdir()] == ["m.prom"]


def test_a_file_of_metrics_that_cannot_be_written_is_reported_once_and_the_query_goes_on(tmp_path, capsys):
    listener = ProgressListener(metrics_file=str(tmp_path / "gone" / "m.prom"), quiet=True)
    heard(listener, PROGRESS, PROGRESS)
    assert capsys.readouterr().err.count("warning: the file of metrics is out of date") == 1


def test_metrics_are_served_when_asked_for():
    listener = ProgressListener(metrics_port=0, quiet=True)
    try:
        heard(listener, PROGRESS)
        with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics", timeout=5) as answer:
            assert b"disque_pipeline_batch_ms" in answer.read()
    finally:
        listener.close()
