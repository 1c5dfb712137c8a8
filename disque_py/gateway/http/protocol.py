"""HTTP connections: uvicorn's protocol, which here also knows the certificate of its peer.

ASGI has no place for certificates in uvicorn, so the certificate stands in the state of the connection's requests. TLS
has verified it before the connection is made.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from disque_py.gateway.x509_names import of_der

CERTIFICATE: Final = "certificate"


class Protocol(HttpToolsProtocol):
    """One connection."""

    app_state: dict[str, Any]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the certificate."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        found = tls.getpeercert(binary_form=True) if tls is not None else None
        if found:
            self.app_state = {**self.app_state, CERTIFICATE: of_der(found)}
