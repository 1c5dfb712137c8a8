"""A gRPC client of a gateway, made of the definitions."""

from __future__ import annotations

import grpc

from disque_py.gateway.rpc import descriptors


def code_of(error):
    """Return the status and the gateway's code of a refused call, caught by pytest; None without a code."""
    return error.value.code(), dict(error.value.trailing_metadata()).get("disque-code")


class RpcClient:
    """Calls by name: client("Enqueue", queue="q", payload=b"b")."""

    def __init__(self, gateway, service=descriptors.QUEUES, login="", credentials=None):
        address = f"localhost:{gateway.gateway.rpc.port}"
        self.channel = grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address)
        self.metadata = (("authorization", login),) if login else ()
        self.service = service
        self.methods = {method.name: method for method in descriptors.methods(service)}

    def request(self, name, **fields):
        """Return the request of a call."""
        return descriptors.request_class(self.methods[name])(**fields)

    def _make(self, name):
        method = self.methods[name]
        kinds = {(False, False): "unary_unary", (False, True): "unary_stream", (True, True): "stream_stream"}
        make = getattr(self.channel, kinds[method.client_streaming, method.server_streaming])
        answer = descriptors.message(method.output_type.full_name)
        return make(
            f"/{self.service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )

    def __call__(self, name, timeout=20, **fields):
        """Execute a call. A stream of answers can be iterated over."""
        return self._make(name)(self.request(name, **fields), timeout=timeout, metadata=self.metadata)

    def stream(self, name, requests, timeout=20):
        """Execute a call with a stream of requests."""
        return self._make(name)(requests, timeout=timeout, metadata=self.metadata)

    def close(self):
        """Close the connection."""
        self.channel.close()
