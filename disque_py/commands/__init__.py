"""What clients can ask for: one row per command (table.py), one function per row."""
