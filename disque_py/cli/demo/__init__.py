"""The demonstration behind bin/demo: a year of flights through three nodes, one of them killed.

    flights.py   the data set, read from the source distribution that bin/demo downloads
    nodes.py     three node processes: start, join, kill, restart, always stop
    link.py      one pipelined connection
    tally.py     what was added and delivered, per flight (pure)
    load.py      producers and workers
    display.py   progress and the final report
    __main__.py  the order of events

It is an ordinary user of the cluster: everything it knows it learned from replies.
"""
