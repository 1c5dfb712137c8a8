"""query/command.py: disque-query, as people type it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("duckdb", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.query.command import main, parser
from index_events import batch, event, index


@pytest.fixture
def path(tmp_path):
    index(tmp_path, batch(event(1, "a"), event(2, "a", 2, to_state="errored", from_state="pending", error="why")))
    return str(tmp_path)


def test_every_question_has_an_answer(path, capsys):
    for words in (["depth"], ["depth", "--over-time"], ["latency", "--by", "k"], ["errors"], ["trace", "a"]):
        assert main([path, *words]) == 0
        assert capsys.readouterr().out


def test_a_trace_that_ends_pending_says_that_the_node_may_be_down(path, tmp_path, capsys):
    """The killed node wrote the last event. No other node writes one until it queues the job again."""
    assert main([path, "trace", "a"]) == 0
    assert capsys.readouterr().err == ""
    index(tmp_path, batch(event(3, "b")))
    assert main([path, "trace", "b"]) == 0
    assert "pending means that node n1 put the job into its queue" in capsys.readouterr().err


def test_depth_by_node_separates_the_jobs_of_a_dead_node(path, capsys):
    assert main([path, "--format", "json", "depth", "--by-node"]) == 0
    assert json.loads(capsys.readouterr().out)["node"] == "n1"


def test_a_question_loads_no_library_that_its_answer_does_not_need(path):
    """Loading libraries is most of the time of a short answer."""
    code = (
        "import sys, duckdb, deltalake; duckdb.sql('SELECT now()').fetchall(); theirs = set(sys.modules)\n"
        "from disque_py.spark.query.command import main; main(sys.argv[1:]); print(*set(sys.modules) - theirs)"
    )
    done = subprocess.run([sys.executable, "-c", code, path, "trace", "a"], capture_output=True, text=True, check=True)
    ours = done.stdout.splitlines()[-1].split()
    assert "disque_py.spark.query.questions" in ours
    assert not {"pyarrow", "numpy", "disque_py.client", "pyspark"} & set(ours)


def test_rows_come_as_json_and_csv_too(path, capsys):
    assert main([path, "--format", "json", "depth"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 1
    assert main([path, "--format", "csv", "sql", "SELECT 1 AS one"]) == 0
    assert capsys.readouterr().out.split() == ["one", "1"]
    assert main([path, "--timing", "sql", "SELECT 1 AS one", "--format", "csv"]) == 0
    told = capsys.readouterr()
    assert (told.out.split(), told.err.endswith(" ms\n")) == (["one", "1"], True)


def test_settings_of_the_store_may_stand_on_both_sides_of_the_question():
    words = parser().parse_args(["p", "--storage", "a=1", "depth", "--storage", "b=2", "--timing"])
    assert (words.storage, words.storage_behind, words.timing, words.format) == (["a=1"], ["b=2"], True, "table")


def test_a_report_is_a_file(path, tmp_path, capsys):
    assert main([path, "report", "--out", str(tmp_path / "r.html")]) == 0
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_errors_are_one_sentence_and_status_1(path, tmp_path, capsys):
    assert main([str(tmp_path / "nothing"), "depth"]) == 1
    assert "run the index pipeline first" in capsys.readouterr().err
    assert main([path, "trace", "D-unknown"]) == 1
    assert "the index has no event of D-unknown" in capsys.readouterr().err
    assert main([path, "sql", "selec"]) == 1
    assert "syntax error" in capsys.readouterr().err
    assert main([path, "report", "--out", str(tmp_path / "nowhere" / "r.html")]) == 1
    assert capsys.readouterr().err.startswith("disque-query: [Errno 2]")


def test_characters_that_the_locale_can_not_show_are_escaped(path):
    program = "import sys; from disque_py.spark.query.command import main; sys.exit(main())"
    result = subprocess.run(
        [sys.executable, "-c", program, path, "depth"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert r"\u2500" in result.stdout


def test_timing_prints_the_time_of_the_query(path, capsys):
    assert main([path, "--timing", "depth"]) == 0
    assert capsys.readouterr().err.endswith(" ms\n")
