"""Doors to a cluster, for programs and people that do not speak RESP. A door is an interface: HTTP, console or gRPC.

Each door uses the client library and imports nothing of the server, so it can't do more than RESP clients can. metrics/
is disque-exporter: the figures of nodes for Prometheus. The rest is disque-gateway, one process with all doors: http/
(JSON, NDJSON, server-sent events), console/ (pages for people), rpc/ (gRPC).

operations.py has one table of everything that a door can do. The doors, their documentation and the permission checks
are derived from it. Every door executes operations through service.py.
"""
