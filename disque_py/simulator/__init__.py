"""A simulator: the server's own code on a virtual clock, network and disk, driven by a seed.

`world/` has time, nodes, the network and disks. `clients/` has the clients. `plan.py` draws the nodes, the clients and
the faults from a seed. `faults/` makes the faults happen. `checks/` and `oracle.py` have the rules that must hold all
the time. `liveness_phase.py` has the rules that must become true when the faults have ended. `simulation.py` plays one
plan. `shrink.py` makes a failing plan smaller. `main.py` is bin/disque-sim; it is the only module that uses the real
clock, processes and the terminal. See docs/simulator.md.

A seed decides everything. Random numbers come from generators made of the seed and a name, time comes from the world,
and no code iterates over a set. So the same seed gives the same trace, byte for byte, on any machine.
"""
