"""The answers of a scripted node to the commands of disque-exporter."""

from __future__ import annotations

from scripted_queues import HELLO, STAT, reply

INFO = (
    "# Server\r\ndisque_version:1.0\r\nbuild:python\r\n"
    "# Jobs\r\nqueued_jobs:7\r\ntotal_jobs_added:12\r\n"
    "# Queues\r\nregistered_queues:2\r\n"
)
NODES = f"{'a' * 40} 127.0.0.1:7711 myself 0 0 connected\n{'b' * 40} 10.0.0.2:7711 fail 0 0 disconnected\n"
CLUSTER_INFO = "cluster_state:ok\r\ncluster_zone:a\r\ncluster_leaving:no\r\n"
ANSWERS = {
    "INFO": reply(INFO),
    "HELLO": HELLO,
    "CLUSTER": lambda words: reply(NODES if words[1] == b"NODES" else CLUSTER_INFO),
    "QSCAN": reply(["0", ["mail", "other"]]),
    "QSTAT": lambda words: reply(STAT | {"name": words[1]}),
    "CLIENT": b"+OK\r\n",
}
