"""Years of bad weather in a minute: the server's own code on a virtual clock, network and disk, from a seed.

`world.py` is time; `machine.py` a node of it, the process around the real Driver, Membership and Broker; `network.py`
the links between nodes, `connection.py` those of clients. `plan.py` draws from a seed who is there and what happens;
`workload.py` and `weather.py` make it happen; `oracle.py` and `cluster_invariants.py` say what must hold meanwhile, `liveness_phase.py` what
must become true when the weather has cleared. `simulation.py` plays one plan; `shrink.py` makes a failing one smaller;
`main.py`, alone in knowing the outside, is bin/disque-sim. docs/simulator.md is the page about all this.

A seed decides everything: chance comes from generators made of the seed and a name, time from the world, and nothing
walks over a set. So the same seed gives the same trace, byte for byte, on any machine.
"""
