"""Metrics of nodes for Prometheus: the program disque-exporter.

table.py has every metric once, with its source. look.py asks one node. selection.py bounds the queues that get labels.
watching.py asks all nodes at once and waits for none that stalls. families.py turns looks into the text of a scrape.
web.py serves it, and command.py is the command line. families.py alone needs the extra `[metrics]`.
"""
