"""The gRPC port: both services, health and reflection, with TLS if HTTP has it.

The settings are those of HTTP: the limits of connections, streams and bodies, and the certificates. Files of
certificates are read for each new connection, so a new certificate needs no restart. When the gateway ends, health
checks report that first, and running calls have a short time to finish.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from disque_py.gateway.clusters import Clusters
from disque_py.gateway.rpc.calls import Methods
from disque_py.gateway.rpc.descriptors import QUEUES, SCALER, pool
from disque_py.gateway.rpc.queues import Queues
from disque_py.gateway.rpc.scaler import Scaler
from disque_py.gateway.settings import Settings

END_S: Final = 2.0
# A connection without the beginning of HTTP/2, or without a call, is closed after these times. A client that is told so
# connects again for its next call.
HANDSHAKE_MS: Final = 10_000
IDLE_MS: Final = 60_000
# The most bytes of a message besides a body. A job has at most 65,536 bytes of metadata, and a few names.
FIELDS_MAX: Final = 131_072


class Listener:
    """A gRPC server.

    clusters  the clusters, which execute the operations
    port      its port, after the start
    """

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        settings = self._settings = clusters.main.settings
        pool()
        options = [
            ("grpc.max_receive_message_length", settings.body_max + FIELDS_MAX),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.max_allowed_incoming_connections", settings.connections_max),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
            ("grpc.max_connection_idle_ms", IDLE_MS),
        ]
        self._server = grpc.aio.server(
            options=options, maximum_concurrent_rpcs=settings.connections_max * settings.streams_max
        )
        self._health = health.aio.HealthServicer()
        self.port = 0

    async def start(self) -> None:
        """Listen. Raises OSError."""
        settings = self._settings
        address = settings.grpc_listen
        assert address is not None
        self._server.add_generic_rpc_handlers(
            (Methods(self._clusters, QUEUES, Queues()).handler, Methods(self._clusters, SCALER, Scaler()).handler)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (QUEUES, SCALER, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        host = f"[{address.host}]" if ":" in address.host else address.host
        try:
            self.port = self._add_port(f"{host}:{address.port}")
        except RuntimeError as error:
            raise OSError(f"can't listen on {address}") from error
        if not self.port:
            raise OSError(f"can't listen on {address}")
        await self._server.start()
        for name in ("", QUEUES, SCALER):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    def _add_port(self, address: str) -> int:
        settings = self._settings
        if not settings.tls_cert:
            return int(self._server.add_insecure_port(address))
        configuration = _certificate(settings)

        def fetch() -> Any:
            """Read the files for each new connection, so that a new certificate is used immediately."""
            try:
                return _certificate(settings)
            except OSError:
                return None

        credentials = grpc.dynamic_ssl_server_credentials(configuration, fetch, settings.tls_client_required)
        return int(self._server.add_secure_port(address, credentials))

    async def close(self) -> None:
        """Report the end to health checks, and stop. Running calls have a short time to finish."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(END_S)


def _certificate(settings: Settings) -> Any:
    key, chain = Path(settings.tls_key or settings.tls_cert).read_bytes(), Path(settings.tls_cert).read_bytes()
    authorities = Path(settings.tls_client_ca).read_bytes() if settings.tls_client_required else None
    return grpc.ssl_server_certificate_configuration([(key, chain)], authorities)
