"""Doors to a cluster for programs and people that do not speak RESP.

Each door uses the client library and imports nothing of the server, so it can do nothing that RESP can't. metrics/ is
disque-exporter: the figures of nodes for Prometheus.
"""
