"""rename-command, checked against the table."""

from __future__ import annotations

import pytest

from disque_py.server.renames import check_renames
from disque_py.server.start_error import StartError


def test_commands_may_be_renamed_removed_and_swapped():
    check_renames([("debug", ""), ("config", "b8c02d52"), ("qlen", "QSTAT"), ("qstat", "qlen"), ("shutdown", "")])


@pytest.mark.parametrize(
    ("renames", "reason"),
    [
        ([("debgu", "")], "'debgu' is no command"),
        ([("debug", "one"), ("debug", "two")], "'debug' is renamed by an earlier line"),
        ([("debug", "ping")], "two commands would be called 'ping'"),
        ([("debug", "same"), ("config", "SAME")], "two commands would be called 'same'"),
        ([("debug", "débogue")], "is not ASCII"),
    ],
)
def test_what_would_not_do_what_was_meant_is_refused(renames, reason):
    with pytest.raises(StartError, match=reason):
        check_renames(renames)
