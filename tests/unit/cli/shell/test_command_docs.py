"""command_docs.py: help from the server, or from the file next to the module."""

from __future__ import annotations

import contextlib

import pytest

from disque_py.cli.address import Target
from disque_py.cli.connection import Connection
from disque_py.cli.shell.command_docs import GROUPS, NoHelpError, builtin_docs, docs_of, help_text
from disque_py.client import Address

PAIRS = (
    b"*2\r\n$4\r\nqlen\r\n*8\r\n$7\r\nsummary\r\n$5\r\nCount\r\n$5\r\nsince\r\n$3\r\n1.0\r\n"
    b"$5\r\ngroup\r\n$6\r\nqueues\r\n$6\r\nsyntax\r\n$10\r\nQLEN queue\r\n"
)
MAP = PAIRS.replace(b"*2\r\n", b"%1\r\n").replace(b"*8\r\n", b"%4\r\n")
PLAIN = b"*2\r\n$4\r\nqlen\r\n*4\r\n$5\r\nCount\r\n$3\r\n1.0\r\n$6\r\nqueues\r\n$5\r\nqueue\r\n"


def docs_told_by(node):
    with contextlib.closing(Connection.open(Target(Address("127.0.0.1", node.port)))) as connection:
        return docs_of(connection)


def refusal(word):
    """Return the text for a word without help."""
    with pytest.raises(NoHelpError) as refused:
        help_text(builtin_docs(), [word], with_colour=False)
    return str(refused.value)


def test_help_suggests_the_most_similar_command_or_group():
    assert refusal("addjb").startswith("No help for 'addjb'. Did you mean 'ADDJOB'?")
    assert "Did you mean '@queues'?" in refusal("@queue")
    assert "Did you mean" not in refusal("xyzzy")


@pytest.mark.parametrize("reply", [PAIRS, MAP, PLAIN])
def test_the_server_describes_its_commands(scripted, reply):
    doc = docs_told_by(scripted({"COMMAND DOCS": reply}))["QLEN"]
    assert (doc.summary, doc.since, doc.group, doc.forms) == ("Count", "1.0", "queues", ("QLEN queue",))


def test_several_forms_come_as_an_array(scripted):
    reply = PAIRS.replace(b"$10\r\nQLEN queue\r\n", b"*2\r\n$4\r\nQLEN\r\n$10\r\nQLEN queue\r\n")
    assert docs_told_by(scripted({"COMMAND DOCS": reply}))["QLEN"].forms == ("QLEN", "QLEN queue")


def test_forms_may_stand_in_one_text_with_bars_between(scripted):
    reply = PAIRS.replace(b"$10\r\nQLEN queue\r\n", b"$19\r\nGET [n] | a|b | LEN\r\n")
    assert docs_told_by(scripted({"COMMAND DOCS": reply}))["QLEN"].forms == ("QLEN GET [n]", "QLEN a|b", "QLEN LEN")


def test_for_a_server_without_docs_the_builtin_ones_are_used(scripted):
    assert docs_told_by(scripted({})) == builtin_docs()


def test_the_builtin_docs_are_whole():
    for name, doc in builtin_docs().items():
        assert doc.summary
        assert doc.since
        assert doc.group in GROUPS
        assert all(form.split()[0] == name for form in doc.forms)


def test_help_of_a_command_shows_its_forms_and_facts():
    text = help_text(builtin_docs(), ["hello"], with_colour=False)
    assert "  HELLO\n" in text
    assert "  HELLO 2|3 [AUTH username password] [SETNAME name]\n" in text
    assert "  group: cluster" in text


def test_help_of_a_subcommand_shows_its_forms_only():
    text = help_text(builtin_docs(), ["cluster", "meet"], with_colour=False)
    assert "CLUSTER MEET host port [bus-port]" in text
    assert "FORGET" not in text


def test_help_of_a_group_lists_it():
    text = help_text(builtin_docs(), ["@queues"], with_colour=False)
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("  Q")]
    assert {"QLEN", "QPEEK", "QSCAN", "QSTAT"} <= set(listed)
    assert listed == sorted(listed)
    assert "ADDJOB" not in listed


def test_help_without_words_is_an_overview():
    assert "help <command>" in help_text(builtin_docs(), [], with_colour=False)


def test_colours_are_for_terminals():
    assert "\x1b[" in help_text(builtin_docs(), ["ping"], with_colour=True)
    assert "\x1b[" not in help_text(builtin_docs(), ["ping"], with_colour=False)
