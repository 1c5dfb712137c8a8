"""words.py: quoting as in inline commands, repeat counts, globs."""

from __future__ import annotations

import pytest

from disque_py.cli.shell.words import UnbalancedQuotesError, glob_pattern, split_repeat, split_words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  ping\t x ", [b"ping", b"x"]),
        ('ADDJOB q "two words" 0', [b"ADDJOB", b"q", b"two words", b"0"]),
        (r'echo "\x00\xff\n\"\q"', [b"echo", b'\x00\xff\n"q']),
        (r"echo 'it\'s \n'", [b"echo", rb"it's \n"]),
        ('addjob q "" 0', [b"addjob", b"q", b"", b"0"]),
        ("qlen naïve", [b"qlen", "naïve".encode()]),
        ("", []),
    ],
)
def test_a_line_is_split_as_the_server_would(line, words):
    assert split_words(line) == words


@pytest.mark.parametrize("line", ['"open', "'open", '"a"b', "'a'b"])
def test_unbalanced_quotes_are_refused(line):
    with pytest.raises(UnbalancedQuotesError, match=r"Invalid argument\(s\)"):
        split_words(line)


def test_a_number_in_front_of_a_command_repeats_it():
    assert split_repeat([b"3", b"PING"]) == (3, [b"PING"])
    assert split_repeat([b"PING", b"3"]) == (1, [b"PING", b"3"])
    assert split_repeat([b"3"]) == (1, [b"3"])


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        ("mail*", b"mail:\n7", b"email"),
        ("q?", b"q1", b"q"),
        ("q[a-c]", b"qb", b"qd"),
        ("q[^a-c]", b"qd", b"qb"),
        (r"q\*", b"q*", b"qx"),
        ("q[", b"q[", b"q"),
        ("a.b", b"a.b", b"axb"),
    ],
)
def test_a_glob_is_the_servers_glob(glob, matching, other):
    pattern = glob_pattern(glob)
    assert pattern.fullmatch(matching)
    assert not pattern.fullmatch(other)
