"""hints.py: what could come next."""

from __future__ import annotations

import pytest

from disque_py.cli.shell.command_docs import builtin_docs
from disque_py.cli.shell.hints import hint, next_words, parts_of, remaining_parts

DOCS = builtin_docs()
MORE = "[PRIORITY n] [META name value ...] [KEY key] [ATTEMPTS n] [BACKOFF policy] [DELAYMS ms] [RETRYMS ms] [TTLMS ms]"
ADDJOB_OPTIONS = f"[REPLICATE count] [DELAY sec] [RETRY sec] [TTL sec] [MAXLEN count] [ASYNC] {MORE}"
GETJOB_OPTIONS = "[COUNT count] [WITHCOUNTERS] [WITHMETA] [WITHLEASE] [LEASE sec] [LEASEMS ms] [TOKEN token]"


def test_a_bracket_is_one_part():
    assert parts_of("GETJOB [COUNT count] FROM queue [queue ...]") == ["[COUNT count]", "FROM", "queue", "[queue ...]"]


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("ADDJOB", f"queue body ms-timeout {ADDJOB_OPTIONS}"),
        ("addjob q", f"body ms-timeout {ADDJOB_OPTIONS}"),
        ("ADDJOB q b 0", ADDJOB_OPTIONS),
        ("ADDJOB q b 0 retry", f"sec [REPLICATE count] [DELAY sec] [TTL sec] [MAXLEN count] [ASYNC] {MORE}"),
        ("ADDJOB q b 0 RETRY 5 ASYNC", f"[REPLICATE count] [DELAY sec] [TTL sec] [MAXLEN count] {MORE}"),
        ("ADDJOB q b 0 META a b", f"[REPLICATE count] [DELAY sec] [RETRY sec] [TTL sec] [MAXLEN count] [ASYNC] {MORE}"),
        ("GETJOB", f"[NOHANG] [TIMEOUT ms] {GETJOB_OPTIONS} FROM queue [queue ...]"),
        ("GETJOB NOHANG", f"[TIMEOUT ms] {GETJOB_OPTIONS} FROM queue [queue ...]"),
        ("GETJOB COUNT 5 FROM", "queue [queue ...]"),
        ("GETJOB FROM a", "[queue ...]"),
        ("GETJOB FROM a b c", "[queue ...]"),
        ("QSCAN 0", "[COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]"),
        ("CLUSTER MEET", "host port [bus-port]"),
        ("CLUSTER MEET h 1", "[bus-port]"),
        ("CLUSTER LEAVING", "[yes|no]"),
        ("SLOWLOG", "GET|LEN|RESET"),
        ("PING", "[message]"),
        ("TIME", ""),
        ("NOPE", ""),
        ("QLEN a b", ""),
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
        (
            "ADDJOB q b 0",
            [
                "REPLICATE",
                "DELAY",
                "RETRY",
                "TTL",
                "MAXLEN",
                "ASYNC",
                "PRIORITY",
                "META",
                "KEY",
                "ATTEMPTS",
                "BACKOFF",
                "DELAYMS",
                "RETRYMS",
                "TTLMS",
            ],
        ),
        ("ADDJOB q b 0 RETRY", []),
        (
            "GETJOB",
            [
                "NOHANG",
                "TIMEOUT",
                "COUNT",
                "WITHCOUNTERS",
                "WITHMETA",
                "WITHLEASE",
                "LEASE",
                "LEASEMS",
                "TOKEN",
                "FROM",
            ],
        ),
        ("CLUSTER", ["MEET", "NODES", "MYID", "INFO", "SAVECONFIG", "FORGET", "RESET", "LEAVING"]),
        ("CLUSTER RESET", ["SOFT", "HARD"]),
        ("JSCAN 0 REPLY", ["id", "all"]),
        ("ADDJOB", []),
        ("NOPE", []),
    ],
)
def test_words_that_may_follow(typed, words):
    assert next_words(DOCS, typed.split()) == words


def test_a_line_begins_with_any_command():
    assert next_words(DOCS, []) == sorted(DOCS)
