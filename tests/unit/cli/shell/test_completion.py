"""completion.py: TAB completion, grey hints, and a history without passwords."""

from __future__ import annotations

import pytest
from prompt_toolkit.application.current import set_app
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.processors import TransformationInput

from disque_py.cli.shell.command_docs import builtin_docs
from disque_py.cli.shell.completion import CommandCompleter, HintProcessor, PlainHistory, is_secret

DOCS = builtin_docs()


def complete(text, names=lambda kind: ()):
    found = CommandCompleter(lambda: DOCS, names).get_completions(Document(text), CompleteEvent())
    return [word.text for word in found]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ADD", ["ADDJOB"]),
        ("5 QLE", ["QLEN"]),
        ("CLUSTER ME", ["MEET"]),
        ("help QS", ["QSCAN", "QSTAT"]),
        ("help @q", ["@queues"]),
        ("help qlen x", []),
        ("He", ["HELLO", "help"]),
        ("ADDJOB q b 0 RE", ["REPLICATE", "RETRY", "REPLACE", "RETRYMS"]),
    ],
)
def test_a_partial_word_is_completed(text, words):
    assert complete(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("QLEN ma", ["mail"]),
        ("GETJOB COUNT 5 FROM mail ", ['"my queue"', "Mail", "mail"]),
        ("ADDJOB ", ['"my queue"', "Mail", "mail"]),
        ('QLEN "', ['"my queue"']),
        ("JSCAN 0 QUEUE M", ["Mail"]),
        ("CONFIG SET maxm", ["maxmemory"]),
        ("config get t", ["timeout"]),
        ("CONFIG SET maxmemory ", []),
        ("SHOW ", []),
    ],
)
def test_names_that_the_node_knows_are_completed_where_the_syntax_wants_them(text, words):
    names = {"queues": [b"mail", b"Mail", b"my queue"], "directives": [b"timeout", b"maxmemory"]}
    assert complete(text, names.__getitem__) == words


def test_the_hint_is_gone_after_enter():
    class Editor:
        is_done = True

    buffer = Document("QLEN")
    line = TransformationInput(BufferControl(), buffer, 0, lambda at: at, [("", "QLEN")], 80, 1)
    hints = HintProcessor(lambda: DOCS)
    assert len(hints.apply_transformation(line).fragments) == 2
    with set_app(Editor()):
        assert hints.apply_transformation(line).fragments == [("", "QLEN")]


def test_lower_case_is_completed_in_lower_case():
    completer = CommandCompleter(lambda: DOCS)
    (found,) = completer.get_completions(Document("qle"), CompleteEvent())
    assert (found.text, found.start_position) == ("qlen", -3)


@pytest.mark.parametrize(
    ("text", "shown"), [("ECHO", " message"), ("ECHO ", "message"), ("ECHO q", ""), ("3 ECHO ", "message"), ("", "")]
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
        "acl setuser ann on >x",
        "ACL SETUSER ann #0",
        "acl dryrun ann auth x",
    ],
)
def test_commands_with_passwords_are_known(line):
    assert is_secret(line)


def test_other_commands_are_not_secret():
    assert not is_secret("ADDJOB auth x 0")
    assert not is_secret("CONFIG GET requirepass")
    assert not is_secret("ACL SETUSER ann on ~x +@read")


def test_a_history_that_cannot_be_written_does_not_end_the_session(tmp_path):
    history = PlainHistory(tmp_path / "no" / "history")
    history.store_string("PING")
    assert list(history.load_history_strings()) == []
