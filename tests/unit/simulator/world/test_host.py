"""SimHost: administrative commands without a process."""

from __future__ import annotations

from simulated import ask, asker, joined, words


def test_info_knows_no_process_and_no_journal():
    """Every section exists."""
    world = joined("a")
    text = ask(world, "a", "INFO", "all").decode()
    assert "used_memory_rss:" in text
    assert "aof_enabled" not in text


def test_a_node_can_be_stopped_restarted_and_put_to_sleep_by_command():
    """SHUTDOWN, DEBUG RESTART and DEBUG SLEEP work on the world's clock."""
    world = joined("a")
    run = world.machines["a"].runs
    asker(world, "a").send([words("DEBUG", "RESTART", 0)])
    world.run(500)
    assert world.machines["a"].runs == run + 1
    asker(world, "a").send([words("DEBUG", "SLEEP", "0.2")])
    assert world.machines["a"].is_stopped
    world.run(300)
    assert not world.machines["a"].is_stopped
    asker(world, "a").send([words("SHUTDOWN")])
    world.run(10)
    assert not world.machines["a"].is_up


def test_the_nodes_file_is_written_on_demand():
    """CLUSTER SAVECONFIG gets its reply when the file is written."""
    world = joined("a")
    world.machines["a"].nodes_file = ""
    assert ask(world, "a", "CLUSTER", "SAVECONFIG") == b"OK"
    assert "myself" in world.machines["a"].nodes_file
