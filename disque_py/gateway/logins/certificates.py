"""Certificates of callers: the names of a verified certificate, and its expiry.

HTTP and gRPC pass on the certificate that TLS has verified (`tls-client-ca`). A name is written with its kind: `CN=`,
`DNS:`, `URI:`, `EMAIL:` or `IP:`. The access file gives roles to names. x509_names.py reads certificates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KINDS: Final = ("CN=", "DNS:", "URI:", "EMAIL:", "IP:")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A verified certificate: its names with their kinds, and its expiry in Unix seconds."""

    names: frozenset[str]
    ends: float
