"""Interfaces to a cluster, for programs and people that do not speak RESP: HTTP, the console and gRPC.

Each interface uses the client library and imports nothing of the server, so it can't do more than RESP clients can.
metrics/ is disque-exporter: the figures of nodes for Prometheus. The rest is disque-gateway, one process with all
interfaces: http/ (JSON, NDJSON, server-sent events), console/ (pages for people), rpc/ (gRPC).

operations.py has one table of everything that an interface can do. The interfaces, their documentation and the
permission checks are derived from it. Every interface executes operations through service.py.
"""
