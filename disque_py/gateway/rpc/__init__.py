"""gRPC: `disque.v1` and KEDA's external scaler, on one port, with health and reflection.

proto/ has the definitions, for any language. descriptors.py loads them from descriptors.binpb, which a compiler of
protocol buffers made of them (tests/house/rewrite_descriptors.py). calls.py has logins and errors.
queues.py has a method per call, consuming.py the stream of consumers, scaler.py KEDA's calls.
"""
