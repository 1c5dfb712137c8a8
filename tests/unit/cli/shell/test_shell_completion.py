"""shell_completion.py: TAB in bash, zsh and fish."""

from __future__ import annotations

import pytest

from disque_py.cli.shell.shell_completion import ASK_VARIABLE, answers, script


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--big"], ["--bigqueues"]),
        (["--tls", "--completion", "z"], ["zsh"]),
        (["-p", ""], []),
        (["qle"], ["qlen"]),
        (["-p", "1", "CLUSTER", "ME"], ["MEET"]),
        (["he"], ["hello", "help"]),
        (["help", "@q"], ["@queues"]),
        (["events", "--"], ["--follow"]),
        (["-p", "1", "QLEN", ""], []),
        (["--no-such", "-p"], ["-p"]),
    ],
)
def test_the_word_under_the_cursor_is_completed(words, found):
    assert answers(words, {}) == found


def test_queue_names_come_from_the_node_that_the_line_names(scripted):
    node = scripted({"QSCAN": b"*2\r\n$1\r\n0\r\n*3\r\n$4\r\nmail\r\n$3\r\na b\r\n$5\r\nm$(x)\r\n"})
    assert answers(["-p", str(node.port), "QLEN", "m"], {}) == ["mail"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_asks_the_program(shell):
    assert f"{ASK_VARIABLE}=1" in script(shell)
