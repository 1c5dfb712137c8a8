"""candidates.py: words that can complete a line."""

from __future__ import annotations

import pytest

from disque_py.cli.shell.candidates import DIRECTIVES, QUEUES, keywords_for, names_for, split_typed
from disque_py.cli.shell.command_docs import builtin_docs

DOCS = builtin_docs()
NAMES = {QUEUES: [b"mail", b"Mail", b"my queue", b"caf\xc3\xa9"], DIRECTIVES: [b"maxmemory", b"port"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [("QLEN a b", (["QLEN", "a"], "b")), ("5 QLEN ", (["QLEN"], "")), ("", ([], ""))],
)
def test_a_line_is_complete_words_and_the_one_being_typed(text, words):
    assert split_typed(text) == words


def test_keywords_are_in_small_letters_where_the_word_is():
    assert keywords_for(DOCS, [], "qle", local=()) == ["qlen"]
    assert keywords_for(DOCS, [], "QLE", local=()) == ["QLEN"]


def test_local_words_begin_a_line_only():
    assert keywords_for(DOCS, [], "qui", local=("quit",)) == ["quit"]
    assert keywords_for(DOCS, ["QLEN"], "qui", local=("quit",)) == []


@pytest.mark.parametrize(
    ("words", "begun", "found"),
    [
        (["QSTAT"], "m", ["mail"]),
        (["jscan", "0", "queue"], "Ma", ["Mail"]),
        (["QUEUE", "SET"], "m", ["mail"]),
        (["QUEUE"], "m", []),
        (["CONFIG", "GET"], "", ["maxmemory", "port"]),
        (["CONFIG", "SET"], "p", ["port"]),
        (["CONFIG", "SET", "port"], "", []),
        (["NOPE"], "", []),
        ([], "m", []),
    ],
)
def test_names_stand_where_the_syntax_has_a_queue_or_a_directive(words, begun, found):
    assert names_for(DOCS, words, begun, NAMES.__getitem__) == found


def test_a_name_is_quoted_where_a_command_line_needs_it():
    assert names_for(DOCS, ["QLEN"], '"', NAMES.__getitem__) == ['"caf\\xc3\\xa9"', '"my queue"']
