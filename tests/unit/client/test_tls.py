"""client/tls.py: every version of Python trusts an authority that the user names."""

from __future__ import annotations

import shutil
import ssl
import subprocess

import pytest

from disque_py.client.tls import trusting


@pytest.fixture
def authority(tmp_path):
    """A file with the certificate of an authority."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    words = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=a",
    ]
    file = tmp_path / "ca.crt"
    subprocess.run(["openssl", *words, "-keyout", tmp_path / "ca.key", "-out", file], check=True, capture_output=True)
    return str(file)


@pytest.fixture
def strict(monkeypatch):
    """A context with the stricter checks of Python 3.13."""
    make = ssl.create_default_context

    def create(**words):
        context = make(**words)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create)


def test_a_named_authority_is_trusted_alone_and_not_checked_strictly(authority, strict):
    context = trusting(authority)
    assert [dict(found["subject"][0])["commonName"] for found in context.get_ca_certs()] == ["a"]
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_the_authorities_of_the_system_are_checked_as_strictly_as_python_does(strict):
    assert trusting().verify_flags & ssl.VERIFY_X509_STRICT


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        trusting(str(tmp_path / "nothing"))
