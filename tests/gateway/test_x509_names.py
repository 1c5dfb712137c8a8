"""Certificates of callers."""

from __future__ import annotations

import ssl
import time

import pytest
from cryptography import x509

from disque_py.gateway.logins.certificates import Certificate
from disque_py.gateway.logins.x509_names import of_der, of_pem
from disque_py.gateway.problems import RefusedError
from issuers import Authority


def test_a_certificate_has_names_of_each_kind(tmp_path):
    others = [x509.UniformResourceIdentifier("spiffe://mail/robot"), x509.RFC822Name("robot@example.com")]
    cert, _ = Authority(tmp_path).sign("robot", *others)
    found = of_pem(cert.read_bytes())
    assert found == of_der(ssl.PEM_cert_to_DER_cert(cert.read_text()))
    assert found.names == {
        "CN=robot", "DNS:localhost", "IP:127.0.0.1", "URI:spiffe://mail/robot", "EMAIL:robot@example.com"
    }  # fmt: skip
    assert found.ends > time.time()


def test_bytes_that_are_not_a_certificate_have_no_names():
    assert of_pem(b"none") is None
    assert of_der(b"none") is None


def test_a_connection_that_outlives_its_certificate_is_refused(make_gateway, tmp_path):
    """TLS checks the expiry of a certificate only when the connection begins."""
    access = tmp_path / "access.toml"
    access.write_text('[[certificate]]\nname = "CN=robot"\ngrants = ["read"]\n')
    logins = make_gateway(access_file=access).gateway.service.logins
    assert logins._of_certificate(Certificate(frozenset(["CN=robot"]), time.time() + 9)).may("read", "q")
    with pytest.raises(RefusedError, match="expired"):
        logins._of_certificate(Certificate(frozenset(["CN=robot"]), time.time() - 1))
