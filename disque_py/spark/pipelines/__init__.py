"""Pipelines: programs on the data sources. Each module has `run(spark, …)`; `disque-pipeline` runs them.

index      events of all nodes → `history` and `current` (a stream)
depth      the number of jobs per queue and state, over time
latency    how long jobs stayed in a state: percentiles by queue and hour
errors     failures by queue, reason, worker and hour
recency    the most recent members of each key, from adds, removes and uploads in any order (a stream)

depth, latency and errors read an index and write small tables beside it. A run computes only the days that changed.
"""
