"""The commands of clients: one row per command (table.py), one function per row."""
