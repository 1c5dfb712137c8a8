"""simulator/checks/caps.py: leases are counted over all nodes. More: tests/unit/simulator/clients/test_cappers.py."""

from __future__ import annotations

from disque_py.simulator.checks.caps import CapBook
from disque_py.simulator.oracle import Oracle
from simulated import ask, joined


def test_leases_of_all_nodes_count_together():
    """Spec CP1."""
    world = joined("ab")
    assert ask(world, "a", "QUEUE", "SET", "q", "max-running", 5) == b"OK"
    world.run(1_500)
    for name in "ab":
        ask(world, name, "ADDJOB", "q", "b", 0, "REPLICATE", 1)
        assert ask(world, name, "GETJOB", "FROM", "q")
    book = CapBook(world, Oracle())
    book.look()
    assert book.most == 2
