"""checks/settings.py: an answered setting stays, and all nodes end with the same."""

from __future__ import annotations

import pytest

from cluster_bus.messages import SETTING
from disque_py.node import dispatch
from disque_py.simulator.checks.settings import RULE, SettingsChecker, apart, check_kept
from disque_py.simulator.oracle import RuleBrokenError
from simulated import ask, joined

SET = ("QUEUE", "SET", "q", "lease", 30)


@pytest.fixture
def world():
    return joined("ab")


def perform(world, settings, name, *command):
    """Play an operator's command, and its reply."""
    machine = world.machines[name]
    settings.asked(machine, command)
    settings.answered(machine, command, ask(world, name, *command))
    return machine


def test_an_answered_setting_is_on_disk_and_stays(world):
    machine = perform(world, SettingsChecker(), "a", *SET)
    assert list(machine.settings_disk.promised) == [(b"q", b"lease")]
    world.crash("a")
    world.restart("a")
    check_kept(machine)


def test_a_setting_that_is_missing_after_a_start_is_reported(world):
    machine = perform(world, SettingsChecker(), "a", *SET)
    world.crash("a")
    machine.settings_disk.file.data = b""
    world.restart("a")
    with pytest.raises(RuleBrokenError, match=RULE):
        check_kept(machine)


@pytest.mark.plain
def test_an_answer_before_the_file_is_written_is_reported(world, monkeypatch):
    """This is a deliberate defect: the node writes its file after the reply, or never."""

    def forget(self, items, is_void, done):
        done(None)

    monkeypatch.setattr("disque_py.simulator.world.settings_disk.SettingsDisk.write", forget)
    with pytest.raises(RuleBrokenError, match=RULE):
        perform(world, SettingsChecker(), "a", *SET)


def test_after_a_reset_of_the_node_there_may_be_no_setting_to_reset(world):
    """A QUEUE RESET from before the reset of the node does not count any more (seed 13419)."""
    settings = SettingsChecker()
    for command in (SET, ("QUEUE", "RESET", "q"), ("CLUSTER", "RESET", "HARD"), ("QUEUE", "RESET", "q")):
        perform(world, settings, "a", *command)


def test_a_reset_node_need_not_keep_settings(world):
    settings = SettingsChecker()
    perform(world, settings, "a", *SET)
    machine = perform(world, settings, "a", "CLUSTER", "RESET")
    assert machine.settings_disk.promised == {}


@pytest.mark.plain
def test_nodes_with_different_settings_are_reported(world, monkeypatch):
    """This is a deliberate defect: a node does not merge the settings of others."""
    assert apart(world) == ""
    monkeypatch.setitem(dispatch.MESSAGES, SETTING, lambda broker, sender, items: None)
    perform(world, SettingsChecker(), "a", *SET)
    assert apart(world) != ""
