"""The simulated world: time, machines, networks, disks."""
