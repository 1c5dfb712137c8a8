"""HTTP: JSON, NDJSON and server-sent events for every operation of the table, as an ASGI application.

There is no framework between uvicorn and the table (design note 0022). routing.py finds the operation. exchange.py
reads a request and writes its answer. arguments.py makes checked arguments from path, query and body. api.py combines
them.
"""
