"""TLS of the HTTP port: version 1.2 or later, with certificates that can change while connections run.

Each handshake uses the newest files. The port has one context, which passes each connection to the current context,
because a context can't forget an authority, nor the sessions that it has verified. So a client that resumes a session
after a change must show its certificate again. Connections keep the context of their handshake.
"""

from __future__ import annotations

import os
import ssl
from typing import Any

from disque_py.gateway.settings import Settings


class TlsError(ValueError):
    """The files can't be used. The text is for people."""


def context_of(settings: Settings) -> ssl.SSLContext:
    """Return a context with the current files. Raises TlsError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for name, path in (
        ("tls-cert", settings.tls_cert),
        ("tls-key", settings.tls_key),
        ("tls-client-ca", settings.tls_client_ca),
    ):
        try:
            if path:
                os.stat(path)
        except OSError as error:  # OpenSSL would not say which file is missing.
            raise TlsError(f"{name} {path}: {error.strerror or error}") from error
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key or None)
    except OSError as error:
        raise TlsError(f"tls-cert or tls-key can't be used: {error}") from error
    if settings.tls_client_ca:
        try:
            context.load_verify_locations(settings.tls_client_ca)
        except OSError as error:
            raise TlsError(f"tls-client-ca can't be used: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED if settings.tls_client_required else ssl.CERT_OPTIONAL
    return context


class _Port(ssl.SSLContext):
    """The context of a port. Event loops make each connection's TLS by `wrap_bio`, here with `current`."""

    current: ssl.SSLContext

    def wrap_bio(self, *words: Any, **options: Any) -> ssl.SSLObject:
        """Return the TLS of a connection, by the current context."""
        return self.current.wrap_bio(*words, **options)


class Tls:
    """The contexts of a gateway. Raises TlsError if the files can't be used at the start."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._state = self._files()
        self.context = _Port(ssl.PROTOCOL_TLS_SERVER)
        self.context.current = context_of(settings)

    def reload(self) -> None:
        """Read the files again. After a TlsError the old ones stay in force."""
        self._state = self._files()
        self.context.current = context_of(self._settings)

    def has_changed(self) -> bool:
        """Return whether a file has changed since it was read."""
        return self._files() != self._state

    def _files(self) -> list[tuple[int, int]]:
        found = []
        for path in (self._settings.tls_cert, self._settings.tls_key, self._settings.tls_client_ca):
            try:
                state = os.stat(path) if path else None
            except OSError:
                state = None
            found.append((state.st_mtime_ns, state.st_size) if state is not None else (0, 0))
        return found
