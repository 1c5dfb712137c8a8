"""Metrics of nodes for Prometheus: the program disque-exporter, and the gateway's page of metrics.

A scrape goes through these modules:

    table.py         every metric with its source
    look.py          the figures of one node
    watching.py      all nodes in parallel, without waiting for a node that stalls
    selection.py     the queues that get labels, because their number has a limit
    families.py      looks as metrics
    exposition.py    metrics as text; needs the extra `[metrics]`
    web.py           the HTTP server
    command.py       the command line of disque-exporter

transitions.py and followers.py count jobs by queue from the events of nodes. cluster_metrics.py and durations.py are
the gateway's own metrics.
"""
