"""commands/subcommands.py: finding the form of a command with subcommands."""

from __future__ import annotations

import pytest

from disque_py.commands.subcommands import ANY, SHOWN_BYTES_MAX, Form, form_of, run_form, syntax_error, text_of
from disque_py.core.errors import CommandError
from disque_py.resp.replies import error


def nothing(broker, client, argv):
    return None


FORMS = {b"get": Form(nothing, 3, 4), b"reset": Form(nothing, 2, ANY)}


def test_a_form_needs_its_name_in_any_case_and_its_number_of_words():
    assert form_of(FORMS, [b"X", b"GeT", b"a"]) is FORMS[b"get"]
    assert form_of(FORMS, [b"X", b"get"]) is None
    assert form_of(FORMS, [b"X", b"get", b"a", b"b", b"c"]) is None
    assert form_of(FORMS, [b"X", b"reset", *[b"a"] * 50]) is FORMS[b"reset"]


def test_a_request_without_a_subcommand_has_no_form():
    assert form_of(FORMS, [b"X"]) is None


@pytest.mark.plain
@pytest.mark.parametrize(("words", "wrong"), [(["Pop"], "Pop"), (["get"], "get"), (["get", "a", "b", "c"], "c")])
def test_a_request_is_refused_with_the_word_that_is_wrong(words, wrong):
    """An unknown subcommand, or the last word of a request with too few or too many."""
    with pytest.raises(CommandError) as refused:
        run_form(FORMS, None, None, [b"X", *[word.encode() for word in words]])
    assert refused.value.text == f"ERR syntax error: '{wrong}'"


def test_a_long_word_is_cut_in_its_error():
    assert syntax_error(b"x" * 500).text == f"ERR syntax error: '{'x' * SHOWN_BYTES_MAX}'"


def test_any_bytes_survive_an_error_text():
    assert error("ERR " + text_of(b"\xff\xc3\xa9")) == b"-ERR \xff\xc3\xa9\r\n"
