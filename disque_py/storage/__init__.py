"""The services that connect a node to its files: journal, log of events, spilled bodies."""
