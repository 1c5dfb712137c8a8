"""The parts of the disque-server command line that need no process.

See tests/integration/test_start.py for the rest.
"""

from __future__ import annotations

import pytest

from disque_py import __version__
from disque_py.config.directives import BY_NAME
from disque_py.server.main import USAGE, main


@pytest.mark.parametrize("word", ["-v", "--version"])
def test_the_version_begins_as_the_originals(word, capsys):
    assert main([word]) == 0
    assert capsys.readouterr().out.startswith(f"Disque server v={__version__} build=")


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_goes_to_standard_output(word, capsys):
    assert main([word]) == 0
    assert capsys.readouterr() == (USAGE, "")


def test_help_names_directives_that_exist():
    words = {word.removeprefix("--") for word in USAGE.split() if word.startswith("--")}
    assert words - {"help", "version", "test-config", "completion"} <= set(BY_NAME)


def test_these_options_count_as_the_first_word_only(capsys):
    assert main(["--port", "1", "--version"]) == 1
    assert "Bad directive" in capsys.readouterr().err


def test_a_config_file_that_is_missing_is_named(capsys, tmp_path):
    assert main([str(tmp_path / "nothing.conf")]) == 1
    assert "nothing.conf': No such file or directory" in capsys.readouterr().err


def test_a_log_that_cannot_be_opened_is_reported_in_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--logfile", "/no/such/log"]) == 1
    assert capsys.readouterr().err == (
        "disque-server: can't open the log /no/such/log: No such file or directory."
        " Create the missing directory or file, or change logfile\n"
    )
