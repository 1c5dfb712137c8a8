"""HTTP connections: uvicorn's protocol, which here also knows the certificate of its peer.

uvicorn passes no certificates to ASGI applications, so this protocol puts the certificate into the state of each
request. TLS has verified it before. The state also has the writer. It joins the head and the body of an answer, which
uvicorn writes separately, so that an answer costs one system call.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from disque_py.gateway.x509_names import of_der

CERTIFICATE: Final = "certificate"
WRITER: Final = "writer"


class Writer:
    """A transport that can hold one write back and send it together with the next one."""

    __slots__ = ("_held", "_holds", "_transport")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._holds = False
        self._held = b""

    def hold(self) -> None:
        """Hold the next write back until another one follows, or until `release`."""
        self._holds = True

    def release(self) -> None:
        """Write the bytes that are held back."""
        self._holds = False
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes, after those that are held back."""
        if self._holds:
            self._holds = False
            self._held = bytes(data)
        elif self._held:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Write the bytes that are held back, and close."""
        self.release()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        """Return another method of the transport."""
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """One connection."""

    app_state: dict[str, Any]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wrap the transport in a writer, and remember the certificate."""
        writer = Writer(transport)
        super().connection_made(cast(asyncio.Transport, writer))
        self.app_state = {**self.app_state, WRITER: writer}
        tls = transport.get_extra_info("ssl_object")
        found = tls.getpeercert(binary_form=True) if tls is not None else None
        if found:
            self.app_state = {**self.app_state, CERTIFICATE: of_der(found)}
