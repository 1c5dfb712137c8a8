"""Names and expiry of X.509 certificates."""

from __future__ import annotations

from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

from disque_py.gateway.logins.certificates import Certificate


def certificate_of(found: x509.Certificate) -> Certificate:
    """Return the names of a certificate and its expiry."""
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
    """Return the certificate in DER, the form in HTTP's TLS; None if it can't be read."""
    try:
        return certificate_of(x509.load_der_x509_certificate(octets))
    except ValueError:
        return None


@lru_cache(1024)
def of_pem(octets: bytes) -> Certificate | None:
    """Return the certificate in PEM, the form in gRPC; None if it can't be read."""
    try:
        return certificate_of(x509.load_pem_x509_certificate(octets))
    except ValueError:
        return None
