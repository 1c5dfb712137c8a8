"""A simulator: the server's own code on a virtual clock, network and disk, driven by a seed.

`world/` has time, nodes, the network and disks. `clients/` has the clients. `plan.py` draws from a seed which nodes and
clients there are and what happens. `faults/` makes it happen. `checks/` and `oracle.py` say what must hold meanwhile;
`liveness_phase.py` says what must become true when the weather has cleared. `simulation.py` plays one plan. `shrink.py`
makes a failing plan smaller. `main.py` is bin/disque-sim, and alone knows the outside. See docs/simulator.md.

A seed decides everything. Chance comes from generators made of the seed and a name, time comes from the world, and no
code iterates over a set. So the same seed gives the same trace, byte for byte, on any machine.
"""
