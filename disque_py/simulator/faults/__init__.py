"""The faults that a plan can order: links, processes, disks, operators, logs of events."""
