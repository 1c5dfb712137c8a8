"""Remembering across restarts. Knows no job.

Today this floor holds only the door the broker writes through (`records.py`); the journal
behind it comes with its own change.
"""
