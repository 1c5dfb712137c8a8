"""completion.py: TAB, grey hints, and a history without passwords."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from disque_py.cli.shell.command_docs import builtin_docs
from disque_py.cli.shell.completion import CommandCompleter, HintProcessor, PlainHistory, completions, is_secret

DOCS = builtin_docs()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("add", ["ADDJOB"]),
        ("5 qle", ["QLEN"]),
        ("cluster me", ["MEET"]),
        ("help qs", ["QSCAN", "QSTAT"]),
        ("help @q", ["@queues"]),
        ("help qlen x", []),
        ("he", ["HELLO", "help"]),
        ("ADDJOB q b 0 RE", ["REPLICATE", "RETRY"]),
    ],
)
def test_a_begun_word_is_completed(text, words):
    assert completions(DOCS, text)[0] == words


def test_small_letters_are_completed_in_small_letters():
    completer = CommandCompleter(lambda: DOCS)
    (found,) = completer.get_completions(Document("qle"), CompleteEvent())
    assert (found.text, found.start_position) == ("qlen", -3)


@pytest.mark.parametrize(
    ("text", "shown"), [("QLEN", " queue"), ("QLEN ", "queue"), ("QLEN q", ""), ("3 QLEN ", "queue"), ("", "")]
)
def test_the_hint_follows_the_cursor(text, shown):
    assert HintProcessor(lambda: DOCS)._hint(text) == shown


def test_the_history_is_a_line_per_command_newest_last(tmp_path):
    history = PlainHistory(tmp_path / "history")
    for line in ("PING", "QLEN q"):
        history.store_string(line)
    assert (tmp_path / "history").read_text() == "PING\nQLEN q\n"
    assert list(history.load_history_strings()) == ["QLEN q", "PING"]
    assert (tmp_path / "history").stat().st_mode & 0o077 == 0


def test_passwords_stay_out_of_the_history(tmp_path):
    history = PlainHistory(tmp_path / "history")
    history.store_string("AUTH secret")
    assert not (tmp_path / "history").exists()


@pytest.mark.parametrize(
    "line",
    [
        "auth x",
        "2 AUTH x",
        "HELLO 3 AUTH default x",
        "config set requirepass x",
        '"AUTH" x',
        "hello 3 'auth' default x",
        'CONFIG SET maxmemory 1gb "requirepass" x',
        'auth "x',
    ],
)
def test_commands_with_passwords_are_known(line):
    assert is_secret(line)


def test_other_commands_are_no_secret():
    assert not is_secret("ADDJOB auth x 0")
    assert not is_secret("CONFIG GET requirepass")


def test_a_history_that_can_not_be_written_is_no_trouble(tmp_path):
    history = PlainHistory(tmp_path / "no" / "history")
    history.store_string("PING")
    assert list(history.load_history_strings()) == []
