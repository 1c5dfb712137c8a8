"""simulator/world/spill_storage.py: machines whose bodies leave memory."""

from __future__ import annotations

from disque_py.core.spilled import Spilled
from simulated import ask, joined


def bodies(world, name):
    """Return the bodies of a machine's jobs."""
    return [job.body for shard in world[name].shards for job in shard.values()]


def filled(names="ab"):
    """Return a world whose first machine has more jobs than memory. A second machine takes some of them."""
    world = joined(names, maxmemory=30_000, maxmemory_spill=True)
    for number in range(30):
        ask(world, "a", "ADDJOB", "q", f"{number:03}" + "x" * 400, 0, "REPLICATE", 1, "RETRY", 600)
        world.run(5)
    return world


def test_bodies_leave_memory_and_come_back():
    world = filled("a")
    assert sum(type(body) is Spilled for body in bodies(world, "a")) > 5
    got = [ask(world, "a", "GETJOB", "FROM", "q")[0][2][:3] for _ in range(30)]
    assert got == [b"%03d" % number for number in range(30)]


def test_jobs_go_to_consumers_elsewhere_with_their_bodies():
    world = filled()
    got = [ask(world, "b", "GETJOB", "FROM", "q", within_ms=20_000)[0][2] for _ in range(30)]
    assert {body[:3] for body in got} == {b"%03d" % number for number in range(30)}
    assert {len(body) for body in got} == {403}


def test_a_leaving_node_reads_what_it_gives_away():
    world = filled()
    once = ask(world, "a", "ADDJOB", "late", "y" * 400, 0, "REPLICATE", 1, "RETRY", 0)
    ask(world, "a", "GETJOB", "FROM", "late")
    for number in range(30, 40):
        ask(world, "a", "ADDJOB", "d", f"{number:03}" + "x" * 400, 0, "REPLICATE", 1, "RETRY", 600, "DELAY", 500)
    world.run(3_000)
    assert type(world["a"].find(once).body) is Spilled
    ask(world, "a", "CLUSTER", "LEAVING", "yes")
    world.until(lambda: not world["a"].job_count, 60_000)
    assert world["b"].job_count == 40


def test_a_new_process_knows_nothing_of_what_was_on_disk():
    world = filled()
    machine = world.machines["a"]
    machine.die()
    machine.start()
    world.run(1_000)
    assert (world["a"].job_count, world["a"].memory.spilled_count) == (0, 0)
    assert machine.driver.spill.store.files == {}
