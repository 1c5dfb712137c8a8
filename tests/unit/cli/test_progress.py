"""progress.py: a bar on a terminal."""

from __future__ import annotations

import sys

from disque_py.cli import progress
from disque_py.cli.progress import Bar


def test_there_is_no_bar_in_a_pipe(capsys):
    with Bar("Reading") as bar:
        bar.show(1, 2)
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_bar_for_long_work(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with Bar("Reading") as bar:
        bar.show(1, 2)
        bar.show(2, 2)
    assert "Reading" in capsys.readouterr().err


def test_short_work_shows_no_bar(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 60.0)
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: True, raising=False)
    with Bar("Reading") as bar:
        bar.show(1, 2)
    assert capsys.readouterr().err == ""
