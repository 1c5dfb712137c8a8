"""bin/demo --console: three nodes, a gateway and a load that never ends.

    bin/demo --console

load.py is a small shop: producers, workers that fail now and then, dead letters, a schedule, a lock. The program prints
the console's address and runs until it is interrupted.
"""
