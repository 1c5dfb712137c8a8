"""Doors to a cluster for programs and people that do not speak RESP.

Each door uses the client library and imports nothing of the server, so it can do nothing that RESP can't. metrics/ is
disque-exporter: the figures of nodes for Prometheus. The rest is disque-gateway, one process with all doors: http/
(JSON, NDJSON, server-sent events), console/ (pages for people), rpc/ (gRPC).

operations.py has one table of everything that a door can do. The doors, their documentation and the checks of
permissions derive from it. service.py executes an operation. No door talks to a node in another way.
"""
