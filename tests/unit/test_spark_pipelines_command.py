"""pipelines/command.py: the words of disque-pipeline, and what troubles say."""

from __future__ import annotations

from pathlib import Path

import pytest

from disque_py.spark.options import OptionError
from disque_py.spark.pipelines.command import main, parser, sentence_of


def test_every_pipeline_has_its_words():
    words = parser().parse_args(["index", "--nodes", "a", "--path", "p", "--once", "--source", "failOnDataLoss=false"])
    assert (words.name, words.once, words.source) == ("index", True, ["failOnDataLoss=false"])
    for name in ("depth", "latency", "errors"):
        assert parser().parse_args([name, "--path", "p", "--by", "carrier"]).by == ["carrier"]


@pytest.mark.parametrize(
    "words",
    [
        [], ["index"], ["depth"], ["nonsense", "--path", "p"],
        ["index", "--nodes", "a", "--path", "p", "--trigger", "soon"],
    ],
)  # fmt: skip
def test_wrong_words_are_status_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "disque-pipeline" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["where", "declarative"])
def test_it_says_where_its_files_are(name, capsys):
    assert main([name]) == 0
    assert Path(capsys.readouterr().out.strip()).exists()


def test_a_trouble_is_found_inside_what_spark_makes_of_it():
    wrapped = RuntimeError("Traceback\n  File x\ndisque_py.spark.nodes.ClusterError: disque: no node\n SQLSTATE: 38000")
    assert sentence_of(wrapped) == "disque: no node"
    assert sentence_of(OptionError("wrong")) == "wrong"
    assert sentence_of(RuntimeError("boom")) is None


def test_a_span_that_makes_no_sense_is_one_sentence(tmp_path, capsys):
    pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
    assert main(["upkeep", "--path", str(tmp_path), "--history-retention", "soon"]) == 1
    assert capsys.readouterr().err.startswith("disque-pipeline: upkeep: option historyRetention is a span")


def test_the_upkeep_of_no_index_is_one_sentence(tmp_path, capsys):
    pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
    assert main(["upkeep", "--path", str(tmp_path)]) == 1
    assert "has no table history; run the index pipeline first" in capsys.readouterr().err
