"""rename-command, checked against the table."""

from __future__ import annotations

import pytest

from disque_py.config.conf_file import ConfigError
from disque_py.server.settings_file import load


def read(tmp_path, *lines):
    (tmp_path / "disque.conf").write_text("\n".join(lines))
    return load([str(tmp_path / "disque.conf")], {}).settings.rename_command


def report(tmp_path, *lines):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, *lines)
    return caught.value.report()


def test_commands_may_be_renamed_removed_and_swapped(tmp_path):
    lines = ['debug ""', "config b8c02d52", "qlen QSTAT", "qstat qlen", 'shutdown ""']
    assert len(read(tmp_path, *(f"rename-command {line}" for line in lines))) == 5


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["rename-command DEBGU x"], "'debgu' is no command. Did you mean 'debug'?"),
        (["rename-command NOSUCH X"], "'nosuch' is no command\n"),
        (["rename-command debug one", "rename-command debug two"], "'debug' is renamed by an earlier line"),
        (["rename-command debug débogue"], "is not ASCII"),
    ],
)
def test_an_impossible_rename_is_refused_with_file_and_line(tmp_path, lines, reason):
    told = report(tmp_path, "port 7712", *lines)
    assert f"Reading {tmp_path}/disque.conf, at line {1 + len(lines)}\n>>> '{lines[-1]}'\n" in told
    assert reason in told


@pytest.mark.parametrize("lines", [["debug ping"], ["debug PING", "config same"], ["debug same", "config SAME"]])
def test_two_commands_cannot_have_one_name(tmp_path, lines):
    told = report(tmp_path, *(f"rename-command {line}" for line in lines))
    assert "rename-command: two commands would be called '" in told


def test_the_command_line_is_checked_as_well():
    with pytest.raises(ConfigError, match="problem"):
        load(["--rename-command", "NOSUCH", "x"], {})
