"""The faults that a plan can order: of links, processes, disks, operators and event logs."""
