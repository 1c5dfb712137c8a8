"""The network: order, cuts, silence, power, and frames that are lost or come twice."""

from __future__ import annotations

import pytest

from disque_py.core import handover, lifecycle
from disque_py.simulator.world.traffic import Pipe
from disque_py.simulator.world.watcher import Watcher
from disque_py.simulator.world.world import World
from simulated import ask, joined


def linked(world: World, name: str) -> str:
    """Return the letters of the nodes that a node has links to."""
    return "".join(sorted(node.host for node in world[name].cluster.linked))


def test_frames_of_one_connection_arrive_in_order_whatever_their_delays():
    """Each has its own delay, but none overtakes another on the same connection."""
    world = joined("ab", delay_ms=(1, 50))
    seen = []
    world.traffic.tap = lambda sender, receiver, runs: seen.append((world.now_ms, sender, runs))
    ids = [ask(world, "a", "ADDJOB", "q", i, 0, "REPLICATE", 2) for i in range(10)]
    replicated = [item[0][0] for _, sender, runs in seen if sender == "a" for run in runs for item in run[1:]
                  if run[0] == 32]  # fmt: skip
    assert list(dict.fromkeys(replicated)) == ids


def test_a_cut_is_seen_by_both_ends_and_heals():
    """Links break immediately. After the cut there are new ones."""
    world = joined("abc")
    world.cut("a", "b")
    assert (linked(world, "a"), linked(world, "b"), linked(world, "c")) == ("c", "c", "ab")
    world.heal()
    world.until(world.is_meshed)


def test_a_silent_cut_is_not_noticed_until_a_question_stays_unanswered():
    """TCP keeps the frames. The node is suspected after the node timeout, and well again when the cut heals."""
    world = joined("ab", cluster_node_timeout=1_000)
    world.cut("a", "b", silently=True)
    world.run(500)
    assert linked(world, "a") == "b"
    world.run(2_500)
    assert not world["a"].cluster.usable
    world.heal()
    world.until(lambda: len(world["a"].cluster.usable) == 1, 20_000)


def test_a_cut_made_twice_has_to_be_mended_twice():
    """Two faults may cut the same direction. The end of one is not the end of the other."""
    world = joined("ab")
    for _ in range(2):
        world.network.cut("a", "b")
    world.network.mend("a", "b")
    world.run(2_000)
    assert linked(world, "a") == ""
    world.network.mend("a", "b")
    world.until(world.is_meshed)


def test_a_machine_without_power_sends_nothing():
    """The others' links stay until heartbeats get no answer, or until the machine is back and doesn't know them."""
    world = joined("ab")
    world.machines["a"].die(power=True)
    world.run(500)
    assert linked(world, "b") == "a"
    world.machines["a"].start()
    world.run(50)
    assert world["b"].cluster.linked == () or world["b"].cluster.linked[0].link_since_ms > 0
    world.until(world.is_meshed)


def test_a_killed_process_closes_its_connections():
    """The kernel closes them, and earlier frames still arrive."""
    world = joined("ab")
    world.crash("a")
    world.run(5)
    assert linked(world, "b") == ""


def test_a_connection_that_breaks_may_be_made_again_at_once():
    """This is the fault `hiccup`."""
    world = joined("ab")
    world.network.hiccup("a", "b")
    assert linked(world, "a") == ""
    world.until(world.is_meshed, 1_000)


@pytest.mark.parametrize("is_rough", [False, True])
def test_jobs_survive_connections_that_break_again_and_again(is_rough):
    """Frames in transit are lost, arrive, or come twice. A copy is requested until it is confirmed."""
    world = joined("ab")
    world.traffic.is_rough = is_rough
    for at in range(20):
        world.later(at * 7, world.network.hiccup, "a", "b")
        world.later(at * 11, world.network.hiccup, "b", "a")
    assert ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 2).startswith(b"D-")
    assert world["b"].job_count == 1


def test_the_filter_takes_single_messages():
    """The watcher is told which."""

    class Losses(Watcher):
        def on_lost(self, sender, receiver, kind, item):
            lost.append((sender, receiver, kind))

    lost: list[tuple[str, str, int]] = []
    world = World("ab", watcher=Losses())
    world.join()
    world.traffic.filter = lambda sender, receiver, kind, item: kind == 32 and len(lost) < 1
    assert ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 2).startswith(b"D-")
    assert lost == [("a", "b", 32)]


@pytest.mark.parametrize("is_other", [False, True])
def test_frames_on_their_way_come_again_only_to_the_same_node(is_other):
    """After CLUSTER RESET HARD the process is another node. No connection of the old node leads to it."""
    world = joined("ab")
    dialer, target = world.machines["a"], world.machines["b"]
    pipe = next(iter(dialer.pipes.values()))
    world.traffic._repeated["a", "b"] = (pipe.ends, [(world.now_ms, b"frame")])
    if is_other:
        target.open()
        target.membership.reset(hard=True)
        target.close()
    again = Pipe(dialer, target, dialer.membership.hello())
    world.traffic.repeat(again)
    assert len(again.frames) == (not is_other)
    assert world.traffic._repeated == {}


def give(world: World, giver: str, taker: str, job_id: bytes) -> None:
    """Hand over one job."""
    machine = world.machines[giver]
    machine.open()
    job = world[giver].find(job_id)
    lifecycle.dequeue(world[giver], job)
    handover.hand_over(world[giver], world[giver].cluster.find(world[taker].me.id), [job])
    machine.close()


def test_frames_of_a_dead_process_do_not_count_once_the_next_one_is_reached():
    """Its hand-over has the same number as the first one of the next process. That job would be confirmed and lost."""
    world = joined("ab")
    traffic = world.traffic
    world.run(200)  # Wait until the first heartbeats are over.
    first = ask(world, "b", "ADDJOB", "q", "x", 0, "RETRY", 0)
    traffic.delay_ms = (900, 900)
    give(world, "b", "a", first)
    world.run(1)
    traffic.delay_ms = (1, 1)
    world.crash("b")
    traffic.delay_ms = (2_000, 2_000)  # The new process reaches a long after a has reached it.
    world.restart("b")
    world.run(2)
    traffic.delay_ms = (1, 1)
    world.run(4_000)
    second = ask(world, "b", "ADDJOB", "q", "y", 0, "RETRY", 0)
    give(world, "b", "a", second)
    world.run(2_000)
    assert (world["a"].find(first), world["a"].find(second).body) == (None, b"y")
