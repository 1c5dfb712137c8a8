"""hints.py: the parts of a command that can come next."""

from __future__ import annotations

import pytest

from disque_py.cli.shell.command_docs import builtin_docs
from disque_py.cli.shell.hints import hint, next_words, parts_of, remaining_parts

DOCS = builtin_docs()
# These commands get more options over time, so the tests read their forms from the documentation.
ADDJOB_OPTIONS = DOCS["ADDJOB"].forms[0].partition("ms-timeout ")[2]
GETJOB_OPTIONS = DOCS["GETJOB"].forms[0].partition("[NOHANG] ")[2]


def test_a_bracket_is_one_part():
    assert parts_of("GETJOB [COUNT count] FROM queue [queue ...]") == ["[COUNT count]", "FROM", "queue", "[queue ...]"]


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("ADDJOB", f"queue body ms-timeout {ADDJOB_OPTIONS}"),
        ("addjob q", f"body ms-timeout {ADDJOB_OPTIONS}"),
        ("ADDJOB q b 0", ADDJOB_OPTIONS),
        ("ADDJOB q b 0 retry", "sec " + ADDJOB_OPTIONS.replace("[RETRY sec] ", "")),
        ("ADDJOB q b 0 RETRY 5 ASYNC", ADDJOB_OPTIONS.replace("[RETRY sec] ", "").replace("[ASYNC] ", "")),
        ("ADDJOB q b 0 META a b", ADDJOB_OPTIONS),
        ("GETJOB", f"[NOHANG] {GETJOB_OPTIONS}"),
        ("GETJOB NOHANG", GETJOB_OPTIONS),
        ("GETJOB COUNT 5 FROM", "queue [queue ...]"),
        ("GETJOB FROM a", "[queue ...]"),
        ("GETJOB COUNT 5 FROMMATCH", "pattern [pattern ...]"),
        ("GETJOB FROMMATCH a*", "[pattern ...]"),
        ("GETJOB FROM a b c", "[queue ...]"),
        ("QSCAN 0", "[COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]"),
        ("CLUSTER MEET", "host port [bus-port]"),
        ("CLUSTER MEET h 1", "[bus-port]"),
        ("CLUSTER LEAVING", "[yes|no]"),
        ("SLOWLOG", "GET|LEN|RESET"),
        ("PING", "[message]"),
        ("TIME", ""),
        ("NOPE", ""),
        ("ECHO a b", ""),
    ],
)
def test_the_hint_is_the_rest_of_the_syntax(typed, text):
    assert hint(DOCS, typed.split(), is_word_over=True) == text


def test_no_hint_stands_in_the_middle_of_a_word():
    assert hint(DOCS, ["ADDJOB", "q"], is_word_over=False) == ""
    assert hint(DOCS, [], is_word_over=True) == ""


def test_too_many_words_fit_no_form():
    assert remaining_parts("QLEN queue", ["a", "b"]) is None


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("QSCAN 0", ["COUNT", "BUSYLOOP", "MINLEN", "MAXLEN", "IMPORTRATE"]),
        ("ADDJOB q b 0 RETRY", []),
        ("GETJOB COUNT 1 FROM", []),
        ("CLUSTER", ["MEET", "NODES", "MYID", "INFO", "SAVECONFIG", "FORGET", "RESET", "LEAVING", "VOTERS"]),
        ("CLUSTER RESET", ["SOFT", "HARD"]),
        ("CLUSTER VOTERS", ["INIT", "ADD", "REMOVE", "LEASEMAX", "RESET"]),
        ("CLUSTER VOTERS RESET", ["FORCE"]),
        ("JSCAN 0 REPLY", ["id", "all"]),
        ("ADDJOB", []),
        ("NOPE", []),
    ],
)
def test_words_that_may_follow(typed, words):
    assert next_words(DOCS, typed.split()) == words


def test_a_line_begins_with_any_command():
    assert next_words(DOCS, []) == sorted(DOCS)
