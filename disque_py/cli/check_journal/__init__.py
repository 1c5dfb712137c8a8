"""disque-check-journal: inspect, mend, export and create journals."""
