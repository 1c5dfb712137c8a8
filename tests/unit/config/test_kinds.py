"""Kinds of values: the values that they accept, and the lines, which give the value back."""

from __future__ import annotations

import pytest

from disque_py.config.directives import DIRECTIVES
from disque_py.config.kinds import (
    Addresses,
    Choice,
    FileName,
    Flag,
    Integer,
    KeepAlive,
    Kind,
    Memory,
    Octal,
    OutputLimit,
    OutputLimitGroups,
    OutputLimits,
    Renames,
    Seed,
    Seeds,
    Text,
)

LIMITS = OutputLimits(OutputLimit(1 << 20, 1000, 5), OutputLimit(0, 0, 0))


@pytest.mark.parametrize(
    ("kind", "words", "value"),
    [
        (Kind(), ["x"], "x"),
        (Flag(), ["YES"], True),
        (Flag(), ["no"], False),
        (Integer(0, 10), ["10"], 10),
        (Integer(-5), ["-5"], -5),
        (Integer(1, 500, is_clamped=True), ["0"], 1),
        (Integer(1, 500, is_clamped=True), ["9999"], 500),
        (KeepAlive(), ["yes"], 300),
        (KeepAlive(), ["No"], 0),
        (KeepAlive(), ["60"], 60),
        (Memory(), ["64MB"], 64 << 20),
        (Octal(), ["777"], 0o777),
        (Octal(), ["0700"], 0o700),
        (Choice("acks", "none"), ["ACKS"], "acks"),
        (Text(3), ["abc"], "abc"),
        (FileName(), ["disque.aof"], "disque.aof"),
        (Addresses(), ["::1", "10.0.0.1"], ("::1", "10.0.0.1")),
        (Seeds(), ["a:1", "[::1]:2@3"], (Seed("a", 1, 0), Seed("::1", 2, 3))),
        (Seeds(), [""], ()),
        (Renames(), ["DEBUG", ""], (("debug", ""),)),
    ],
)
def test_valid_values_are_accepted(kind, words, value):
    assert kind.parse(words) == value


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Kind(), []),
        (Kind(), ["a", "b"]),
        (Flag(), ["1"]),
        (Integer(0, 10), ["11"]),
        (Integer(0), ["-1"]),
        (Integer(1, 500, is_clamped=True), ["-1"]),
        (Integer(0), ["1.0"]),
        (Integer(0), [""]),
        (Integer(0), ["١"]),
        (Memory(1024), ["1023"]),
        (Memory(0, 1024), ["1025"]),
        (Octal(), ["778"]),
        (Octal(), ["1000"]),
        (Octal(), ["0o7"]),
        (Choice("acks"), ["ack"]),
        (Text(3), ["abcd"]),
        (Text(3), ["éé"]),
        (Text(), ["a\0"]),
        (Text(may_be_empty=False), [""]),
        (FileName(), ["a/b"]),
        (Addresses(), []),
        (Addresses(), ["a"] * 17),
        (Addresses(), ["127.0.0.1", "127.0.0.1"]),
        (Addresses(), ["::1", "host", "HOST"]),
        (Seeds(), []),
        (Seeds(), ["a"]),
        (Seeds(), ["a:0"]),
        (Seeds(), ["a:65536"]),
        (Seeds(), [":1"]),
        (Seeds(), ["a:1@"]),
        (Seeds(), ["a:1@x"]),
        (OutputLimitGroups(), []),
        (OutputLimitGroups(), ["normal", "0", "0"]),
        (OutputLimitGroups(), ["slave", "0", "0", "0"]),
        (OutputLimitGroups(), ["normal", "1zb", "0", "0"]),
        (Renames(), ["debug"]),
    ],
)
def test_invalid_values_are_refused(kind, words):
    with pytest.raises(ValueError, match=r"\w"):
        kind.parse(words)


def test_classes_that_a_line_does_not_name_keep_their_limits():
    kind = OutputLimitGroups()
    merged = kind.merge(LIMITS, kind.parse(["Stream", "1kb", "5", "6"]))
    assert merged == OutputLimits(LIMITS.normal, OutputLimit(1024, 5, 6))


def test_several_renames_are_all_applied():
    assert Renames().merge((("a", "b"),), (("c", "d"),)) == (("a", "b"), ("c", "d"))


@pytest.mark.parametrize(
    ("kind", "value", "text", "lines"),
    [
        (Flag(), True, "yes", [["yes"]]),
        (Memory(), 1 << 20, "1048576", [["1mb"]]),
        (Octal(), 0o700, "700", [["700"]]),
        (Addresses(), (), "", []),
        (Addresses(), ("a", "b"), "a b", [["a", "b"]]),
        (Seeds(), (Seed("::1", 2, 3), Seed("h", 4, 0)), "[::1]:2@3 h:4", [["[::1]:2@3", "h:4"]]),
        (Seeds(), (), "", []),
        (Renames(), (("a", ""),), "a ", [["a", ""]]),
        (
            OutputLimitGroups(),
            LIMITS,
            "normal 1048576 1000 5 stream 0 0 0",
            [["normal", "1mb", "1000", "5"], ["stream", "0", "0", "0"]],
        ),
    ],
)
def test_values_are_shown_by_config_get_and_written_into_files(kind, value, text, lines):
    assert kind.text(value) == text
    assert kind.lines(value) == lines


@pytest.mark.parametrize("directive", DIRECTIVES, ids=lambda directive: directive.name)
def test_the_lines_of_every_default_are_accepted_and_give_it_back(directive):
    value = directive.default
    for words in directive.kind.lines(value):
        value = directive.kind.merge(value, directive.kind.parse(words))
    assert value == directive.default
