"""Certificates of callers: the names that a verified one has, and its end.

Both doors hand over the certificate that TLS has verified (`tls-client-ca`). A name is written with its kind: `CN=`,
`DNS:`, `URI:`, `EMAIL:` or `IP:`. The access file gives roles to names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

KINDS: Final = ("CN=", "DNS:", "URI:", "EMAIL:", "IP:")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A verified certificate: its names with their kinds, and its end in Unix seconds."""

    names: frozenset[str]
    ends: float


def certificate_of(found: x509.Certificate) -> Certificate:
    """Return the names of a certificate and its end."""
    names = {f"CN={each.value!s}" for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)}
    try:
        others = found.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    except (x509.ExtensionNotFound, ValueError):
        others = None
    if isinstance(others, x509.SubjectAlternativeName):
        names |= {f"DNS:{value}" for value in others.get_values_for_type(x509.DNSName)}
        names |= {f"URI:{value}" for value in others.get_values_for_type(x509.UniformResourceIdentifier)}
        names |= {f"EMAIL:{value}" for value in others.get_values_for_type(x509.RFC822Name)}
        names |= {f"IP:{value}" for value in others.get_values_for_type(x509.IPAddress)}
    return Certificate(frozenset(names), found.not_valid_after_utc.timestamp())


@lru_cache(1024)
def of_der(octets: bytes) -> Certificate | None:
    """Return the certificate of DER, as HTTP's TLS has it; None if it can't be read."""
    try:
        return certificate_of(x509.load_der_x509_certificate(octets))
    except ValueError:
        return None


@lru_cache(1024)
def of_pem(octets: bytes) -> Certificate | None:
    """Return the certificate of PEM, as gRPC has it; None if it can't be read."""
    try:
        return certificate_of(x509.load_pem_x509_certificate(octets))
    except ValueError:
        return None
