"""The rows of permissions agree with the table of commands."""

from __future__ import annotations

import pytest

from disque_py.commands.arguments import subcommands_of
from disque_py.commands.describing import forms_of
from disque_py.commands.fetching import SHOWN
from disque_py.commands.permissions import GETJOB_OPTIONS, UNITS, access_of
from disque_py.commands.table import COMMANDS, GETJOB
from disque_py.core.users import CATEGORIES

BY_NAME = {unit.name: unit for unit in UNITS}


def words(text):
    return text.encode().split()


def test_each_command_and_each_subcommand_has_a_row():
    """A command without rows would be for @admin only."""
    wanted = set()
    for command in COMMANDS:
        subcommands = subcommands_of(command.syntax.split("\n"))
        if subcommands and command.name not in BY_NAME:
            wanted |= {f"{command.name}|{name}" for name in subcommands}
        else:
            wanted.add(command.name)
    assert wanted == set(BY_NAME)


def test_each_row_has_categories_that_exist():
    assert len(BY_NAME) == len(UNITS)
    assert {category for unit in UNITS for category in unit.categories} == set(CATEGORIES)


def test_a_command_without_a_row_is_for_operators_of_nodes():
    assert access_of("novel").unit([b"novel"]).categories == {"admin"}


def test_a_command_that_writes_says_what_it_works_on():
    for command in COMMANDS:
        if "write" in command.flags:
            for unit in command.access.units:
                assert unit.names or unit.ids or unit.tokens or unit.name == "loadjob" or unit.name.endswith("|list"), (
                    unit.name
                )


def test_each_syntax_with_a_name_has_a_row_with_names():
    for command in COMMANDS:
        for form in forms_of(command):
            argv = words(form)
            if {b"queue", b"from"} & {word.strip(b"[]") for word in argv[1:3]} and command.name not in (
                "getjob",
                "jscan",
            ):
                assert command.access.unit(argv).names is not None, form


def test_options_of_getjob_are_read_as_getjob_reads_them():
    """Spec US4."""
    for option in SHOWN:
        assert GETJOB_OPTIONS[option] == 0
    for part in GETJOB.partition("\n")[0].partition(" FROM ")[0].replace("[", "").split("]"):
        if argv := words(part):
            count = 2 if argv[0] == b"WHERE" else len(argv) - 1
            assert GETJOB_OPTIONS[argv[0].lower()] == count


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ("GETJOB FROM a b", "a b"),
        ("GETJOB NOHANG TIMEOUT 5 FROM a", "a"),
        ("GETJOB WHERE from bob FROM a", "a"),
        ("GETJOB TOKEN FROM FROM a", "a"),
        ("GETJOB token from from FROM b", "FROM b"),
        ("GETJOB NOVEL WHERE FROM a FROM b", "a FROM b"),
        ("GETJOB NOHANG", ""),
        ("GETJOB FROMMATCH a*", ""),
        ("GETJOB WHERE frommatch x FROM a", "a"),
        ("GETJOB NOVEL FROMMATCH FROM a", "FROM a"),
        ("SCHEDULE SET s CRON x QUEUE a BODY b", "s a"),
        ("ADDJOB a body 0 MAXLEN 3", "a"),
        ("ADDJOB a batch 0 BATCH b", "a b"),
        ("TOPIC PUBLISH t batch 0 MAXLEN 3 batch b", "t b"),
        ("QMOVE a b STATUS pending", "a b"),
        ("QREDRIVE a WHERE to x TO b", "a x b"),
        ("QREDRIVE a TO b ASYNC", "a b"),
        ("QUEUE SET a lease 5 dead-letter b", "a b"),
        ("QUEUE set a DEAD-LETTER b", "a b"),
        ("JSCAN 0 QUEUE a", "a"),
        ("JSCAN 0", ""),
        ("LOCK ACQUIRE a me 100", "a"),
        ("PAUSE a in BCAST", "a"),
        ("JOBID a k1 k2", "a"),
    ],
)
def test_names_of_a_request(request_, names):
    """If the names can't be determined exactly, there may be too many, but never too few. Spec US4."""
    argv = words(request_)
    found = access_of(argv[0].lower().decode()).unit(argv).names(argv)
    assert set(words(names)) <= set(found)
    if "QREDRIVE" not in request_:
        assert found == words(names)


def test_tokens_of_a_getjob():
    """A client that knows a token gets the same jobs again, so it needs permission for their queues. Spec US4."""
    unit = BY_NAME["getjob"]
    assert unit.tokens(words("GETJOB TOKEN t FROM a TOKEN b")) == [b"t"]
