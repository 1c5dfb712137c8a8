"""The demonstration behind bin/demo: a year of flights through three nodes, one of them killed.

    flights.py   the data set, read from the source distribution that bin/demo downloads
    nodes.py     three node processes: start, join, kill, restart, always stop
    link.py      one pipelined connection
    tally.py     counts of adds and deliveries, per flight (pure)
    load.py      producers and workers
    display.py   progress and the final report
    __main__.py  the order of events

The demonstration is an ordinary user of the cluster: everything that it knows comes from replies.
"""
