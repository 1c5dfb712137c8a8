"""Metrics of nodes for Prometheus: the program disque-exporter.

table.py has every metric with its source. look.py asks one node. selection.py limits the number of queues with labels.
watching.py asks all nodes in parallel, and does not wait for a node that stalls. families.py turns looks into the text
of a scrape. web.py serves it, and command.py is the command line. Only families.py needs the extra `[metrics]`.
"""
