"""pipelines/command.py: the arguments of disque-pipeline, and its errors."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from disque_py.spark.options import OptionError
from disque_py.spark.pipelines.command import INTERRUPTED, PROGRAM, main, merge_waiting, reason_of, sentence_of
from spark_stub import StubCluster


@pytest.fixture
def started(monkeypatch):
    """The names of the pipelines that started Spark. The start is replaced by an error."""
    pytest.importorskip("pyspark", reason="the extra disque-py[spark] is not installed")
    from disque_py.spark.pipelines import session

    names = []

    def open_session(name):
        names.append(name)
        raise OptionError("as far as Spark")

    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.delenv("DISQUECLI_AUTH", raising=False)
    monkeypatch.setattr(session, "open_session", open_session)
    return names


def run(*words):
    """Run a command and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(words, prog_name=PROGRAM)
    return ended.value.code


def sentence(capsys, *words):
    """Return the error of a pipeline that can't run."""
    assert run(*words) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "Spark is starting" not in line]
    assert len(lines) == 1
    return lines[0].removeprefix("disque-pipeline: ")


def test_every_pipeline_has_its_options(capsys):
    stream = {
        "--traceback",
        "--nodes",
        "--path",
        "--trigger",
        "--once",
        "--checkpoint",
        "--metrics-port",
        "--metrics-file",
        "--quiet",
    }
    batch = {"--traceback", "--path", "--by", "--since", "--until"}
    options = {
        "index": stream | {"--source", "--sink"},
        "recency": stream | {"--source", "--limit", "--key", "--member"},
        "depth": batch | {"--bucket"},
        "latency": batch,
        "errors": batch,
        "upkeep": {"--path", "--current-retention", "--history-retention"},
        "rebuild": {"--path"},
    }
    for name, expected in options.items():
        assert run(name, "--help") == 0
        assert set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)) == expected


@pytest.mark.parametrize(
    "words",
    [
        [], ["index"], ["depth"], ["nonsense", "--path", "p"],
        ["index", "--nodes", "a", "--path", "p", "--trigger", "soon"],
        ["index", "--nodes", "a", "--path", "p", "--source", "failOnDataLoss"],
    ],
)  # fmt: skip
def test_wrong_arguments_give_status_2(words, capsys):
    assert run(*words) == 2
    told = capsys.readouterr().err
    assert told.startswith("Usage: disque-pipeline")
    assert "\nError: " in told


@pytest.mark.parametrize("name", ["where", "declarative"])
def test_the_command_prints_where_its_files_are(name, capsys):
    assert run(name) == 0
    assert Path(capsys.readouterr().out.strip()).exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script(shell, capsys):
    assert run("completion", shell) == 0
    assert "_DISQUE_PIPELINE_COMPLETE" in capsys.readouterr().out


def test_an_interrupt_gives_the_status_of_a_shell(started, tmp_path, monkeypatch):
    from disque_py.spark.pipelines import session

    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "open_session", interrupt)
    with StubCluster() as cluster:
        assert run("index", "--nodes", cluster.nodes[0].place, "--path", str(tmp_path)) == 130


def test_an_error_is_found_inside_the_error_of_spark():
    wrapped = RuntimeError("Traceback\n  File x\ndisque_py.spark.nodes.ClusterError: disque: no node\n SQLSTATE: 38000")
    assert sentence_of(wrapped) == "disque: no node"
    assert sentence_of(OptionError("wrong")) == "wrong"
    assert sentence_of(RuntimeError("boom")) is None


@pytest.mark.parametrize(
    "text",
    [
        "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",
        "java.io.IOException: No space left on device",
    ],
)
def test_a_full_disk_is_one_sentence(text):
    """Java, Arrow and delta-rs have different errors, deep inside the error of Spark."""
    sentence = sentence_of(RuntimeError(f"[STREAM_FAILED] Query failed\n{text}\n\tat org.apache.spark"))
    assert sentence.startswith("a disk is full (no space left on device): free space below --path")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[FAILED] x\nTraceback:\n  File y\nFileNotFoundError: no file a\n\tat java.io.IOError: b",
            "FileNotFoundError: no file a",
        ),
        ("[TABLE_NOT_FOUND] no table\n\tat org.apache.spark", "[TABLE_NOT_FOUND] no table"),
        ("", "RuntimeError"),
    ],
)
def test_the_reason_of_an_unexpected_failure_is_one_line(text, reason):
    assert reason_of(RuntimeError(text)) == reason


def test_a_missing_package_is_reported_with_the_extra_that_installs_it():
    missing = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
    assert sentence_of(missing) == "No module named 'pyarrow'; install it with: pip install 'disque-py[spark]'"


def test_an_invalid_span_is_one_sentence(tmp_path, capsys):
    pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
    assert run("upkeep", "--path", str(tmp_path), "--history-retention", "soon") == 1
    assert capsys.readouterr().err.startswith("disque-pipeline: upkeep: option historyRetention must be a span")


def test_upkeep_of_a_missing_index_is_one_sentence(tmp_path, capsys):
    pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
    assert run("upkeep", "--path", str(tmp_path)) == 1
    assert "has no table history; check the path, or run the index pipeline" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["index", "recency"])
def test_nodes_that_cannot_be_read_are_reported_before_spark_starts(name, started, tmp_path, capsys):
    words = (name, "--path", str(tmp_path), "--nodes")
    assert "127.0.0.1:1" in sentence(capsys, *words, "127.0.0.1:1")
    assert "option bootstrapServers" in sentence(capsys, *words, "127.0.0.1:x")
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        assert "maxOffsetsPerTrigger" in sentence(capsys, *words, node.place, "--source", "maxOffsetPerTrigger=1")
        node.log = ""
        assert "events" in sentence(capsys, *words, node.place)
    assert not started


def test_a_password_comes_from_the_environment_or_an_option(started, tmp_path, capsys, monkeypatch):
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.password = b"secret"
        words = ("recency", "--path", str(tmp_path), "--nodes", node.place)
        assert "set the option disque.password" in sentence(capsys, *words)
        monkeypatch.setenv("DISQUECLI_AUTH", "secret")
        assert sentence(capsys, *words) == "as far as Spark"
        assert "needs a valid password" in sentence(capsys, *words, "--source", "disque.Password=wrong")
        assert started == ["recency"]


def test_wrong_options_of_the_index_are_reported_before_spark_starts(started, tmp_path, capsys):
    with StubCluster() as cluster:
        words = ("index", "--nodes", cluster.nodes[0].place, "--path", str(tmp_path), "--sink")
        assert "did you mean compactEvery" in sentence(capsys, *words, "compactEvry=3")
        assert "option gaps must be one of" in sentence(capsys, *words, "gaps=some")
    assert not started


@pytest.mark.parametrize("name", ["index", "recency"])
def test_a_path_that_cannot_be_written_is_reported_before_spark_starts(name, started, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    with StubCluster() as cluster:
        words = (name, "--nodes", cluster.nodes[0].place)
        assert f"{file} is not a folder" in sentence(capsys, *words, "--path", str(file))
        assert f"{file} is not a folder" in sentence(capsys, *words, "--path", f"{file}/below/index")
        assert "/proc can't be written" in sentence(capsys, *words, "--path", "/proc/index")
        words = (*words, "--path", str(tmp_path / "index"))
        assert f"{file} is not a folder" in sentence(capsys, *words, "--checkpoint", f"{file}/checkpoint")
        assert f"{file} is not a folder" in sentence(capsys, *words, "--metrics-file", f"{file}/metrics")
    assert not started
    assert list(tmp_path.iterdir()) == [file]


def test_a_pipeline_says_that_it_waits_for_spark(started, tmp_path, capsys):
    with StubCluster() as cluster:
        words = ("index", "--nodes", cluster.nodes[0].place, "--path", str(tmp_path))
        run(*words)
        assert "index: Spark is starting" in capsys.readouterr().err
        run(*words, "--quiet")
        assert "Spark is starting" not in capsys.readouterr().err


def test_a_lost_table_is_reported_before_spark_starts_and_a_command_rebuilds_it(started, tmp_path, capsys, monkeypatch):
    from disque_py.spark import index_rebuild
    from made import make_index

    make_index(tmp_path)
    shutil.rmtree(tmp_path / "current")
    with StubCluster() as cluster:
        words = ("index", "--nodes", cluster.nodes[0].place, "--path", str(tmp_path))
        assert f"disque-pipeline rebuild --path {tmp_path}" in sentence(capsys, *words)
        with monkeypatch.context() as broken:
            broken.setattr(index_rebuild, "_merge", lambda *_: sys.exit(INTERRUPTED))
            assert run("rebuild", "--path", str(tmp_path)) == INTERRUPTED
        assert "its rebuild was interrupted" in sentence(capsys, *words)
        assert run("rebuild", "--path", str(tmp_path)) == 0
        assert capsys.readouterr().out == "current: 2 jobs from 7 events of history\n"
        assert sentence(capsys, *words) == "as far as Spark"


def test_a_log_that_the_query_would_not_see_cut_is_reported_before_spark_starts(started, tmp_path, capsys):
    """The index has the numbers of the next events, and would leave these out."""
    from index_events import batch, event
    from index_events import index as write_index

    with StubCluster(2) as cluster:
        first, second = cluster.nodes
        first.event("D-1", 1)
        seqs = [event(seq, f"D-{seq}") for seq in range(9)]
        write_index(tmp_path, batch(*seqs, node=first.id, log=first.log))
        words = ("index", "--nodes", cluster.servers, "--path", str(tmp_path))
        told = sentence(capsys, *words)
        assert f"node {first.id}, log {first.log}, up to 8, and the log ends before 1: either the node runs" in told
        loose = ("--source", "failOnDataLoss=false")
        assert sentence(capsys, *words, *loose) == told
        offsets = re.search(r"startingOffsets=(\{.*\}) and -2 for every other", told)[1]
        assert json.loads(offsets) == {first.id: {"log": f"{first.log}.1", "next": 1}}
        more = offsets.replace("}}", f'}}, "{second.id}": -2}}')
        assert sentence(capsys, *words, "--source", f"startingOffsets={more}") == "as far as Spark"
        (tmp_path / "_checkpoint" / "offsets").mkdir(parents=True)
        assert sentence(capsys, *words) == told
        assert sentence(capsys, *words, *loose) == "as far as Spark"
        write_index(tmp_path, batch(event(0, "D-1", 2), node=first.id, log=f"{first.log}.1"))
        assert sentence(capsys, *words) == "as far as Spark"


def test_a_missing_index_and_invalid_keys_are_reported_before_spark_starts(started, tmp_path, capsys):
    for name in ("depth", "latency", "errors"):
        assert "has no table history" in sentence(capsys, name, "--path", str(tmp_path))
        assert "can't be a key" in sentence(capsys, name, "--path", str(tmp_path), "--by", "it's")
    words = ("recency", "--nodes", "127.0.0.1:1", "--path", str(tmp_path))
    assert "can't be a key" in sentence(capsys, *words, "--member", "a'b")
    assert not started


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """The function that counts the changes that wait in an index; in the beginning there is one."""
    pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
    from disque_py.spark import index_changes, index_merge
    from index_events import batch, event, index, rows

    monkeypatch.setattr(index_merge, "SMALL_ROWS", 3)
    monkeypatch.setattr(index_changes, "AT_ONCE_ROWS", 0)
    monkeypatch.setattr(index_changes, "ROWS_PER_CHANGE", 1)
    index(tmp_path, batch(*(event(1 + at, f"D-{at}", ctime=at) for at in range(10))))
    index(tmp_path, batch(event(11, "D-3", 2, ctime=3, to_state="completed")), merge_every_s=3_600)
    return lambda: len(rows(tmp_path, "current_changes"))


def test_changes_are_merged_between_batches_when_they_are_due_and_at_the_end(tmp_path, waiting):
    merge_waiting(str(tmp_path), {"mergeEvery": "1h"}, has_ended=False)
    assert waiting() == 1
    merge_waiting(str(tmp_path), {"mergeEvery": "1h"}, has_ended=True)
    assert waiting() == 0


def test_upkeep_merges_all_changes_that_wait(tmp_path, waiting, capsys):
    assert run("upkeep", "--path", str(tmp_path)) == 0
    assert waiting() == 0


@pytest.mark.parametrize("name", ["upkeep", "rebuild"])
def test_a_command_that_writes_an_index_waits_for_a_batch_on_the_same_machine(tmp_path, waiting, name):
    from disque_py.spark.index_lock import write_lock
    from disque_py.spark.store import Store

    with ThreadPoolExecutor(1) as beside:
        with write_lock(Store(str(tmp_path))):
            command = beside.submit(run, name, "--path", str(tmp_path))
            time.sleep(0.3)
            assert waiting() == 1
        assert command.result() == 0
    assert waiting() == 0


def test_days_in_the_wrong_order_are_refused_before_spark_starts(started, capsys, tmp_path):
    assert run("depth", "--since", "2026-02-01", "--until", "2026-01-31", "--path", str(tmp_path)) == 1
    assert "depth: since is 2026-02-01, which is after until, 2026-01-31" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("depth", "--bucket", "0"), "--bucket"),
        (("latency", "--since", "yesterday"), "'yesterday' is not a day such as 2026-01-31"),
        (("errors", "--until", "2026-02-30"), "'2026-02-30' is not a day"),
        (("recency", "--nodes", "a", "--limit", "0"), "--limit"),
        (("index", "--nodes", "a", "--metrics-port", "99999"), "--metrics-port"),
    ],
)
def test_a_number_or_a_day_that_can_not_be_is_refused_before_spark_starts(started, capsys, tmp_path, words, text):
    assert run(*words, "--path", str(tmp_path)) == 2
    assert text in capsys.readouterr().err
    assert started == []
