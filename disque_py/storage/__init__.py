"""The services that connect a node to its files: journal, event log, spilled bodies."""
