"""Programs for the command line, a package each.

    shell          disque-cli: one command, a conversation, or a mode that watches a node
    cluster        disque-cluster: starts, joins, watches, drains and backs up nodes
    admin          disque-admin: manages queues, jobs, tasks and schedules
    bench          disque-bench: measures brokers on this machine, one after the other
    check_journal  disque-check-journal: inspects, repairs, exports and creates journals
    demo           bin/demo, and demo_spark for bin/demo --spark

The programs talk to nodes through the client library. Only the shell has its own connection (connection.py), because it
sends any words and shows replies as they are. address.py is for shell and cluster. The programs know nothing about the
inside of the server; only those that handle a stopped node's files import its file formats.
"""
