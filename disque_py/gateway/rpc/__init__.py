"""gRPC: `disque.v1` and KEDA's external scaler, on one port, with health and reflection.

proto/ has the definitions, for any language. descriptors.py loads them from descriptors.binpb, which the protocol
buffer compiler makes (tests/house/rewrite_descriptors.py). calls.py has logins and errors. queues.py has a method for
each call, consuming.py the stream of consumers, and scaler.py the calls of KEDA.
"""
