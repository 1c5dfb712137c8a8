"""TLS of the HTTP port."""

from __future__ import annotations

import ssl

import pytest

from disque_py.gateway.settings import Settings
from disque_py.gateway.tls import Tls, TlsError, context_of
from issuers import Authority


@pytest.fixture
def files(tmp_path):
    """Settings with a certificate and an authority, and their folder."""
    authority = Authority(tmp_path)
    cert, key = authority.sign("localhost")
    words = {"tls-cert": str(cert), "tls-key": str(key), "tls-client-ca": str(authority.path), "access-file": "a"}
    return words, tmp_path


def test_tls_is_1_2_or_later(files):
    assert context_of(Settings(files[0])).minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(("required", "mode"), [("no", ssl.CERT_OPTIONAL), ("yes", ssl.CERT_REQUIRED)])
def test_certificates_are_asked_for(files, required, mode):
    assert context_of(Settings(files[0] | {"tls-client-required": required})).verify_mode == mode


def test_a_change_of_a_file_is_seen_once(files):
    words, folder = files
    tls = Tls(Settings(words))
    assert not tls.has_changed()
    (folder / "authority.pem").write_text("none")
    assert tls.has_changed()
    with pytest.raises(TlsError, match="tls-client-ca"):
        tls.reload()
    assert not tls.has_changed()
