"""The list of all commands, and a rule that applies to several groups of commands."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from disque_py.client import commands
from disque_py.client.request import Lane

FAMILIES = ["adding", "cluster", "fetch", "flow", "job", "lock", "node", "queue", "schedule", "task", "topic"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_list_has_every_command_of_every_family(family):
    """`commands.ack` is the function of job_commands.py."""
    module = import_module(f"disque_py.client.{family}_commands")
    functions = inspect.getmembers(module, inspect.isfunction)
    own = {name: made for name, made in functions if made.__module__ == module.__name__ and name[0] != "_"}
    assert own == {name: getattr(commands, name, None) for name in own}
    assert set(own) <= set(commands.__all__)


def test_commands_that_may_wait_have_lanes_of_their_own():
    """An ack must not wait behind a GETJOB, nor behind an ADDJOB that waits for copies."""
    assert commands.get_jobs("q").lane is Lane.OWN
    assert commands.add_job("q", "b").lane is Lane.ADDS
    assert commands.get_jobs("q", nohang=True).lane is Lane.PLAIN
    assert commands.ack("i").lane is Lane.PLAIN
