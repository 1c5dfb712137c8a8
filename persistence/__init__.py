"""Persistence: bytes on disk that survive a restart. It knows no job.

The journal (journal.py), the log of events (event_log.py) and spilled bodies (spill.py) live here, and the parts of the
tools that work on their files. Nothing here imports the broker.
"""
