"""query/command.py: disque-query, as people type it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("duckdb", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.query.command import PROGRAM, main
from index_events import batch, event, index


@pytest.fixture
def path(tmp_path):
    index(tmp_path, batch(event(1, "a"), event(2, "a", 2, to_state="errored", from_state="pending", error="why")))
    return str(tmp_path)


def run(*words):
    """Ask a question and return the exit status."""
    with pytest.raises(SystemExit) as ended:
        main(words, prog_name=PROGRAM)
    return ended.value.code


def test_every_question_has_an_answer(path, capsys):
    for words in (["depth"], ["depth", "--over-time"], ["latency", "--by", "k"], ["errors"], ["trace", "a"]):
        assert run(path, *words) == 0
        assert capsys.readouterr().out


def test_help_names_the_options_once_and_says_where_they_may_stand(capsys):
    assert run("--help") == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "Usage: disque-query [OPTIONS] PATH QUESTION [ARGS]... Query" in output
    assert "--storage, --format and --timing may also follow PATH or QUESTION." in output


def test_a_trace_that_ends_pending_says_that_the_node_may_be_down(path, tmp_path, capsys):
    """The killed node wrote the last event. No other node writes one until it queues the job again."""
    assert run(path, "trace", "a") == 0
    assert capsys.readouterr().err == ""
    index(tmp_path, batch(event(3, "b")))
    assert run(path, "trace", "b") == 0
    assert "pending means that node n1 put the job into its queue" in capsys.readouterr().err


def test_depth_by_node_separates_the_jobs_of_a_dead_node(path, capsys):
    assert run(path, "--format", "json", "depth", "--by-node") == 0
    assert json.loads(capsys.readouterr().out)["node"] == "n1"


def test_depth_of_one_queue_leaves_out_the_others(path, tmp_path, capsys):
    index(tmp_path, batch(event(3, "b", queue="other")))
    assert run(path, "--format", "csv", "depth", "--queue", "other") == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["queue", "other"]


def test_depth_over_time_refuses_groups_that_it_does_not_show(path, capsys):
    assert run(path, "depth", "--over-time", "--by", "k") == 2
    assert "leave out --by and --by-node" in capsys.readouterr().err


def test_a_question_loads_no_library_that_its_answer_does_not_need(path):
    """Loading libraries is most of the time of a short answer."""
    code = (
        "import sys, duckdb, deltalake; duckdb.sql('SELECT now()').fetchall(); theirs = set(sys.modules)\n"
        "from disque_py.spark.query.command import main; main(standalone_mode=False); print(*set(sys.modules) - theirs)"
    )
    done = subprocess.run([sys.executable, "-c", code, path, "trace", "a"], capture_output=True, text=True, check=True)
    ours = done.stdout.splitlines()[-1].split()
    assert "disque_py.spark.query.questions" in ours
    unneeded = {"pyarrow", "numpy", "disque_py.client", "pyspark", "argparse", "click.shell_completion"}
    assert not unneeded & set(ours)
    assert not {"disque_py.spark.java", "subprocess", "lzma"} & set(ours)


def test_rows_come_as_json_and_csv_too(path, capsys):
    assert run(path, "--format", "json", "depth") == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 1
    assert run(path, "--format", "csv", "sql", "SELECT 1 AS one") == 0
    assert capsys.readouterr().out.split() == ["one", "1"]
    assert run(path, "--timing", "sql", "SELECT 1 AS one", "--format", "csv") == 0
    told = capsys.readouterr()
    assert (told.out.split(), told.err.endswith(" ms\n")) == (["one", "1"], True)


def test_json_has_only_what_json_knows(path, capsys):
    values = "SELECT 'nan'::DOUBLE AS n, ['inf'::DOUBLE] AS i, '\\x00\\xFF'::BLOB AS b, MAP {1: 'x'} AS m"
    assert run(path, "--format", "json", "sql", values) == 0
    assert json.loads(capsys.readouterr().out) == {"n": None, "i": [None], "b": "\0\\xff", "m": {"1": "x"}}


def test_maps_and_lists_are_json_in_csv(path, capsys):
    assert run(path, "--format", "csv", "sql", "SELECT MAP {'k': 'v'} AS m, [1, 2] AS l") == 0
    assert capsys.readouterr().out == 'm,l\n"{""k"": ""v""}","[1, 2]"\n'


def test_times_over_time_have_their_zone(path, capsys):
    assert run(path, "--format", "json", "depth", "--over-time") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["moment"].endswith("+00:00")


def test_lines_of_csv_end_like_other_lines_so_that_a_shell_can_use_the_last_column(path, capsys):
    assert run(path, "--format", "csv", "sql", "SELECT 1 AS one") == 0
    assert capsys.readouterr().out == "one\n1\n"


def test_options_may_stand_before_the_path_between_and_behind_the_question(path, capsys):
    options = ["--format", "csv"]
    for words in ([*options, path, "depth"], [path, *options, "depth"], [path, "depth", *options]):
        assert run(*words) == 0
        assert capsys.readouterr().out.startswith("queue,state,jobs")
    assert run("--format", "csv", path, "--timing", "--format", "json", "depth") == 0
    told = capsys.readouterr()
    assert (json.loads(told.out)["jobs"], told.err.endswith(" ms\n")) == (1, True)


def test_settings_of_the_store_add_up():
    context = main.make_context(PROGRAM, ["--storage", "a=1", "p", "--storage", "b=2", "depth"])
    main.commands["depth"].make_context("depth", ["--storage", "c=3"], parent=context)
    assert context.obj.storage == {"a": "1", "b": "2", "c": "3"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Missing argument 'PATH'"),
        (["index", "sql", " "], "'STATEMENT': is empty"),
        (["p"], "Missing command"),
        (["p", "--timing"], "Missing command"),
        (["p", "nonsense"], "No such command 'nonsense'"),
        (["p", "trace"], "Missing argument 'JOB_ID'"),
        (["p", "depth", "--overtime"], "--over-time"),
        (["p", "depth", "--storage", "AWS_REGION"], "'AWS_REGION' is not NAME=VALUE"),
        (["p", "sql", "--fromat"], "--fromat"),
    ],
)
def test_wrong_arguments_give_status_2(words, told, capsys):
    assert run(*words) == 2
    assert told in capsys.readouterr().err


def test_a_statement_may_begin_with_a_comment(path, capsys):
    assert run(path, "--format", "csv", "sql", "-- all of it\nSELECT 1 AS one") == 0
    assert capsys.readouterr().out.split() == ["one", "1"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script(shell, capsys):
    assert run("--completion", shell) == 0
    assert "_DISQUE_QUERY_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("disque-query /da", {"/da"}),
        ("disque-query /data/index d", {"depth"}),
        ("disque-query /data/index --format j", {"json"}),
        ("disque-query /data/index --timing l", {"latency"}),
        ("disque-query /data/index latency --h", {"--hourly", "--help"}),
    ],
)
def test_tab_completes_folders_questions_and_options(line, expected):
    words = line.split()
    found = ShellComplete(main, {}, PROGRAM, "_").get_completions(words[1:-1], words[-1])
    assert {item.value for item in found} == expected


def test_a_report_is_a_file(path, tmp_path, capsys):
    assert run(path, "report", "--out", str(tmp_path / "r.html")) == 0
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_errors_are_one_sentence_and_status_1(path, tmp_path, capsys):
    assert run(str(tmp_path / "nothing"), "depth") == 1
    assert "run the index pipeline first" in capsys.readouterr().err
    assert run(path, "trace", "D-unknown") == 1
    assert "the index has no event of D-unknown" in capsys.readouterr().err
    assert run(path, "sql", "selec") == 1
    assert "syntax error" in capsys.readouterr().err
    assert run(path, "report", "--out", str(tmp_path / "nowhere" / "r.html")) == 1
    assert capsys.readouterr().err.startswith("disque-query: [Errno 2]")


def test_characters_that_the_locale_cannot_show_are_escaped(path):
    program = "import sys; from disque_py.spark.query.command import main; main()"
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
    assert run(path, "--timing", "depth") == 0
    assert capsys.readouterr().err.endswith(" ms\n")
