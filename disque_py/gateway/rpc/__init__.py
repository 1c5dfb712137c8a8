"""gRPC: `disque.v1` and KEDA's external scaler, on one port, with health and reflection.

proto/ has the definitions, for any language. The protocol buffer compiler turns them into descriptors.binpb
(tests/house/rewrite_descriptors.py).

    descriptors.py   loads descriptors.binpb
    listener.py      the port, and its limits
    calls.py         logins and errors
    queues.py        a method for each call
    consuming.py     the stream of consumers
    scaler.py        the calls of KEDA
"""
