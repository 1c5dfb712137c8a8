"""Programs for the command line, a package each.

    shell          disque-cli: one command, a conversation, or a mode that watches a node
    cluster        disque-cluster: starts, joins, watches, drains and backs up nodes
    admin          disque-admin: looks after queues, jobs and tasks
    bench          disque-bench: measures brokers on this machine, in turns
    check_journal  disque-check-journal: reads, mends and makes journals
    demo           bin/demo, and demo_spark for bin/demo --spark

The programs talk to nodes through the client library. Only the shell has a connection of its own (connection.py): it
sends any words and shows replies as they are. address.py is for shell and cluster. The programs know nothing of the
server's inside; only programs that handle a stopped node's files import its file formats.
"""
