"""Pauses: the deliveries that are still allowed after the reply to PAUSE, and the final agreement of all nodes."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from disque_py.core import pausing
from disque_py.core.queue import PAUSED_OUT
from disque_py.simulator.checks.pauses import Pauses
from disque_py.simulator.oracle import RuleBrokenError
from simulated import ask, asker, joined, words

RULE = "a paused queue delivers nothing"
ENTRY = [b"q", b"some id", b"body"]


@pytest.fixture
def world():
    return joined("ab")


@pytest.fixture
def pauses(world):
    return Pauses(world)


def pause(pauses, world, name, *how):
    """Play an operator's PAUSE, and its reply."""
    command = ("PAUSE", "q", *how)
    machine = world.machines[name]
    pauses.asked(machine, command)
    pauses.answered(machine, command, ask(world, name, *command))
    return machine


def delivered(pauses, machine, *, is_wrong):
    """Let a consumer get a job."""
    with pytest.raises(RuleBrokenError, match=RULE) if is_wrong else nullcontext():
        pauses.delivered(machine, [ENTRY])


@pytest.mark.parametrize(("how", "is_wrong"), [("out", True), ("all", True), ("in", False)])
def test_a_queue_that_is_paused_for_output_delivers_nothing(pauses, world, how, is_wrong):
    delivered(pauses, pause(pauses, world, "a", how), is_wrong=is_wrong)
    delivered(pauses, world.machines["b"], is_wrong=False)


def test_the_next_pause_ends_the_promise(pauses, world):
    """It ends when the next PAUSE is sent."""
    machine = pause(pauses, world, "a", "all")
    pauses.asked(machine, ("PAUSE", b"q", "none"))
    delivered(pauses, machine, is_wrong=False)


def test_while_two_pauses_are_under_way_nothing_is_promised(pauses, world):
    machine = world.machines["a"]
    for _ in range(2):
        pauses.asked(machine, ("PAUSE", "q", "out"))
    pauses.answered(machine, ("PAUSE", "q", "out"), b"out")
    delivered(pauses, machine, is_wrong=False)
    pauses.answered(machine, ("PAUSE", "q", "out"), b"out")
    delivered(pauses, machine, is_wrong=True)


def test_a_pause_whose_reply_is_late_promises_nothing(pauses, world):
    """Its record waited for the disk, and the queue was opened meanwhile (seed 22698)."""
    machine = world.machines["a"]
    pauses.asked(machine, ("PAUSE", "q", "out"))
    pauses.asked(machine, ("PAUSE", "q", "none"))
    pauses.answered(machine, ("PAUSE", "q", "none"), b"none")
    pauses.answered(machine, ("PAUSE", "q", "out"), b"out")
    delivered(pauses, machine, is_wrong=False)


@pytest.mark.parametrize(("later_ms", "is_wrong"), [(1, False), (0, True), (-1, True)])
def test_a_later_state_of_another_node_ends_the_promise(pauses, world, later_ms, is_wrong):
    machine = pause(pauses, world, "a", "out", "bcast")
    _, version_ms, node = machine.broker.pauses.versions[b"q"]
    pauses.heard(machine, [(b"q", 0, version_ms + later_ms, node)])
    delivered(pauses, machine, is_wrong=is_wrong)


def test_a_later_state_of_another_node_may_come_before_the_reply(pauses, world):
    """Seed 9381: the node read both in one turn, PAUSE first."""
    machine = world.machines["a"]
    command = ("PAUSE", "q", "all")
    pauses.asked(machine, command)
    reply = ask(world, "a", *command)
    pauses.heard(machine, [[b"q", 0, 1, machine.broker.me.id]])
    pauses.answered(machine, command, reply)
    delivered(pauses, machine, is_wrong=False)
    delivered(pauses, pause(pauses, world, "a", "all"), is_wrong=True)


def test_a_frame_on_its_way_is_excused(pauses, world):
    """The job is in a reply that the client has not read."""
    machine = world.machines["a"]
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    connection = asker(world, "a")
    machine.open()
    connection.send([words("GETJOB", "FROM", "q")])
    connection.client.out = [b"*1\r\n*3\r\n$1\r\nq\r\n$40\r\n%b\r\n$1\r\nx\r\n" % job_id]
    pauses.answered(machine, ("PAUSE", "q", "out"), b"out")
    pauses.delivered(machine, [[b"q", job_id, b"x"]])
    delivered(pauses, machine, is_wrong=True)


@pytest.mark.parametrize(("journal", "power", "is_wrong"), [
    ("", False, False), ("always", True, True), ("everysec", False, True), ("everysec", True, False),
])  # fmt: skip
def test_the_promise_outlives_the_process_if_the_journal_has_it(journal, power, is_wrong):
    world = joined("ab")
    machine = world.add("c", journal=journal)
    world.run(200)
    pauses = Pauses(world)
    pause(pauses, world, "c", "out")
    pauses.died(machine, power=power)
    delivered(pauses, machine, is_wrong=is_wrong)


@pytest.mark.parametrize("command", [("DEBUG", "FLUSHALL"), ("CLUSTER", "RESET", "SOFT"),
                                     ("CONFIG", "SET", "appendonly", "no")])  # fmt: skip
def test_a_node_that_forgets_the_pause_is_excused(pauses, world, command):
    machine = pause(pauses, world, "a", "out")
    pauses.asked(machine, command)
    delivered(pauses, machine, is_wrong=False)


def test_all_nodes_agree_in_the_end(pauses, world):
    pause(pauses, world, "a", "out", "bcast")
    world.run(50)
    pauses.check_agreed()
    pausing.set_pause(world["b"], b"q", 0)
    with pytest.raises(RuleBrokenError, match=r"the same everywhere: b'q' on b: 0 by .* the latest is 2"):
        pauses.check_agreed()
    pause(pauses, world, "b", "none")
    pauses.check_agreed()
    world["b"].pauses.versions[b"q"] = (PAUSED_OUT, 1, b"")
    with pytest.raises(RuleBrokenError, match="the same everywhere"):
        pauses.check_agreed()


def test_a_node_that_was_flushed_learns_of_pauses_with_its_next_link(pauses, world):
    """A state that its memory has is still checked."""
    machine = pause(pauses, world, "a", "none", "bcast")
    world.run(50)
    pauses.asked(machine, ("DEBUG", "FLUSHALL"))
    ask(world, "a", "DEBUG", "FLUSHALL")
    pauses.check_agreed()
    world["a"].pauses.versions[b"q"] = (PAUSED_OUT, 1, b"")
    with pytest.raises(RuleBrokenError, match="the same everywhere"):
        pauses.check_agreed()
