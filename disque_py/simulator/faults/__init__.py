"""The faults that a plan can have: of links, processes, disks, operators and event logs."""
