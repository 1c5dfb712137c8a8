"""Adapters: other task libraries on top of the client library.

Each package here is an extra (`pip install disque-py[dramatiq]`) and imports only `disque_py.client`. Several of them
use leases.py and result_slots.py.
"""
