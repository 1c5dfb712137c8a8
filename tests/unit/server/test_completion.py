"""completion.py: TAB completion of the server's command line in bash, zsh and fish."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from disque_py.config.directives import BY_NAME
from disque_py.server.main import main


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_directives(capsys):
    assert main(["--completion", "bash"]) == 0
    asking = "COMP_WORDS=(); _disque_server disque-server --appendf x; echo ${COMPREPLY[*]}"
    shell = subprocess.run(["bash", "-c", capsys.readouterr().out + asking], capture_output=True, check=True)
    assert shell.stdout.split() == [b"--appendfilename", b"--appendfsync"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_name_all_directives(shell, capsys):
    assert main(["--completion", shell]) == 0
    assert {f"--{name}" for name in BY_NAME} <= set(capsys.readouterr().out.replace("'", " ").split())


@pytest.mark.parametrize("words", [[], ["csh"], ["bash", "--port"]])
def test_another_shell_is_refused(words, capsys):
    assert main(["--completion", *words]) == 1
    assert capsys.readouterr().err == "disque-server: --completion takes one word: bash, zsh or fish\n"
