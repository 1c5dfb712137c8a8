"""HTTP: JSON, NDJSON and server-sent events for every operation of the table, by ASGI.

There is no framework between uvicorn and the table (design note 0022). routing.py finds the operation. exchange.py
reads a request and writes its answer. arguments.py makes checked arguments of path, query and body. api.py puts them
together.
"""
