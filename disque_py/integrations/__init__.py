"""Adapters: task libraries of others on top of the client library.

Each package here is an extra (`pip install disque-py[dramatiq]`) and imports `disque_py.client` only. leases.py and
result_slots.py serve several of them.
"""
