"""disque-cluster: start, join, inspect, drain and back up nodes."""
