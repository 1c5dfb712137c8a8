"""words.py: quotes as in inline commands, and repeat counts."""

from __future__ import annotations

import pytest

from disque_py.cli.shell.words import UnbalancedQuotesError, split_line, split_repeat


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
    assert split_line(line) == words


@pytest.mark.parametrize("line", ['"open', "'open", '"a"b', "'a'b"])
def test_unbalanced_quotes_are_refused(line):
    with pytest.raises(UnbalancedQuotesError, match=r"Invalid argument\(s\)"):
        split_line(line)


def test_a_number_in_front_of_a_command_repeats_it():
    assert split_repeat([b"3", b"PING"]) == (3, [b"PING"])
    assert split_repeat([b"PING", b"3"]) == (1, [b"PING", b"3"])
    assert split_repeat([b"3"]) == (1, [b"3"])
