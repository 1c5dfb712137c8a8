"""HTTP: JSON, NDJSON and server-sent events for every operation of the table, as an ASGI application.

There is no framework between uvicorn and the table (design note 0022). Each request passes these modules:

    protocol.py         the connection
    api.py              the application, which uses all others
    hosts.py            the names that a Host header may have
    origins.py          pages of other sites, which may not send requests
    routing.py          the operation of a path and a method
    exchange.py         one request and its answer
    arguments.py        checked arguments from path, query and body

batches.py and event_stream.py have the operations whose answers are lines or streams. openapi.py and reference_page.py
describe all operations. dyno.py has the REST interface of dyno-queues.
"""
