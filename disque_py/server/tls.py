"""TLS contexts from the tls-* directives.

One certificate serves all directions: clients that connect here, nodes that connect here, and our links to them.
Between nodes both ends must show a certificate that the authority in tls-ca-cert-file signed. Names in certificates are
not compared, because gossip gives the addresses of nodes, and the authority is the cluster's own. Spec S3.

The files are read at start. A renewed certificate counts from the next start on.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from disque_py.server.start_error import StartError, refused

if TYPE_CHECKING:
    from disque_py.config.settings import Settings

CLIENT_CHECKS: Final = {"no": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "yes": ssl.CERT_REQUIRED}

# The parts of a handshake that each end sends, TLS 1.2 included.
HANDSHAKE_FLIGHTS: Final = 3


def clients_context(settings: Settings) -> ssl.SSLContext:
    """Return the context for the listener of tls-port. StartError."""
    context = _context(settings, ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = CLIENT_CHECKS[settings.tls_auth_clients]
    return context


def bus_contexts(settings: Settings) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Return the contexts for links from and to other nodes; both None without tls-cluster. StartError."""
    if not settings.tls_cluster:
        return None, None
    server = _context(settings, ssl.PROTOCOL_TLS_SERVER)
    client = _context(settings, ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    server.verify_mode = client.verify_mode = ssl.CERT_REQUIRED
    return server, client


def refusal_of_own_certificate(settings: Settings) -> str:
    """Return the reason for which other nodes with the same files would refuse this node's certificate, or "".

    This node shakes hands with itself. So it finds what both ends of a link check: dates, the authority, and the
    purposes in the certificate. StartError.
    """
    server, client = bus_contexts(settings)
    if server is None or client is None:
        return ""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(HANDSHAKE_FLIGHTS):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return str(error.verify_message)
            except ssl.SSLError as error:
                return error.reason or str(error)
    return ""


def _context(settings: Settings, side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _must_be_readable("tls-cert-file", settings.tls_cert_file)
    _must_be_readable("tls-key-file", settings.tls_key_file)
    try:
        # The password is never None: OpenSSL would ask for it on the terminal.
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, password=settings.tls_key_file_pass)
    except OSError as error:  # ssl.SSLError is one.
        raise StartError(
            f"can't use tls-cert-file {settings.tls_cert_file} with tls-key-file {settings.tls_key_file}:"
            f" {error.strerror or error}. Both files must be PEM, the key must belong to the certificate, and an"
            " encrypted key needs its password in tls-key-file-pass"
        ) from None
    if settings.tls_ca_cert_file:
        _must_be_readable("tls-ca-cert-file", settings.tls_ca_cert_file)
        try:
            context.load_verify_locations(settings.tls_ca_cert_file)
        except OSError as error:
            raise StartError(
                f"can't use tls-ca-cert-file {settings.tls_ca_cert_file}: {error.strerror or error}."
                " The file must have PEM certificates"
            ) from None
    return context


def _must_be_readable(directive: str, path: str) -> None:
    """Try to read a file, because OpenSSL does not say which of its files is missing. StartError."""
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        raise refused(f"can't use {directive} {path}", error, directive) from None
