"""disque-check-journal: inspect, repair, export and create journals."""
