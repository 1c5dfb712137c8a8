"""commands/arguments.py: turns the syntax that people read into the tree that programs read."""

from __future__ import annotations

import pytest

from disque_py.commands.arguments import (
    BLOCK,
    DOUBLE,
    INTEGER,
    MULTIPLE,
    ONEOF,
    OPTIONAL,
    PURE_TOKEN,
    STRING,
    Argument,
    arguments_of,
    choice_of,
    subcommands_of,
)
from disque_py.commands.table import COMMANDS


def value(text, token="", *flags, kind=STRING):
    name = token.lower() if token and OPTIONAL in flags else text
    return Argument(name, kind, text, token, flags)


def word(text, *flags):
    return Argument(text.lower(), PURE_TOKEN, text, text, flags)


@pytest.mark.parametrize(
    ("form", "arguments"),
    [
        ("", ()),
        ("queue seconds", (value("queue"), value("seconds", kind=DOUBLE))),
        ("[id ...]", (value("id", "", MULTIPLE, OPTIONAL),)),
        ("FROM queue [queue ...]", (value("queue", "FROM", MULTIPLE),)),
        ("[COUNT n] [NOHANG]", (value("n", "COUNT", OPTIONAL, kind=INTEGER), word("NOHANG", OPTIONAL))),
        ("[STATE state ...]", (value("state", "STATE", MULTIPLE, OPTIONAL),)),
        ("directive|all", (Argument("directive-or-all", ONEOF, parts=(word("directive"), word("all"))),)),
        (
            "[REPLY id|all]",
            (Argument("reply", ONEOF, token="REPLY", flags=(OPTIONAL,), parts=(word("id"), word("all"))),),
        ),
        ("in|out [...]", (Argument("in-or-out", ONEOF, flags=(MULTIPLE,), parts=(word("in"), word("out"))),)),
        (
            "[AUTH name word]",
            (Argument("auth", BLOCK, token="AUTH", flags=(OPTIONAL,), parts=(value("name"), value("word"))),),
        ),
        ("[name word]", (Argument("name-word", BLOCK, flags=(OPTIONAL,), parts=(value("name"), value("word"))),)),
    ],
)
def test_arguments_of_a_form(form, arguments):
    assert arguments_of(form) == arguments


def test_several_forms_are_a_choice():
    (choice,) = choice_of(["", "EXTENDED", "[ID id] [x]"])
    assert (choice.kind, choice.flags) == (ONEOF, (OPTIONAL,))
    assert choice.parts[0] == word("EXTENDED")
    assert choice.parts[1].kind == BLOCK
    assert choice_of([""]) == ()


def test_forms_that_begin_with_a_word_are_subcommands():
    assert subcommands_of(["", "KILL a", "KILL [ID b]", "LIST"]) == {"kill": ["a", "[ID b]"], "list": [""]}
    assert subcommands_of(["EXTENDED", "2|3"]) == {}
    assert subcommands_of(["[REWRITE-AOF]"]) == {}


def siblings(arguments):
    yield arguments
    for each in arguments:
        yield from siblings(each.parts)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_names_of_siblings_differ(command):
    """Programs distinguish arguments by their names."""
    forms = command.syntax.split("\n")
    for rests in subcommands_of(forms).values() or [forms]:
        for parts in siblings(choice_of(rests)):
            names = [part.name for part in parts]
            assert len(set(names)) == len(names)
