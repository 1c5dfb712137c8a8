"""TLS contexts from the tls-* directives."""

from __future__ import annotations

import ssl

import pytest

from certificates import openssl, self_signed
from disque_py.config.settings import Settings
from disque_py.server.start_error import StartError
from disque_py.server.tls import bus_contexts, clients_context, refusal_of_own_certificate


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A certificate, its key, and the same key with a password."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = self_signed(folder)
    locked = folder / "locked.key"
    openssl("rsa", "-aes256", "-passout", "pass:open sesame", "-in", key, "-out", locked)
    return str(cert), str(key), str(locked)


@pytest.fixture
def settings(files):
    settings = Settings()
    settings.tls_cert_file, settings.tls_key_file, _ = files
    settings.tls_ca_cert_file = files[0]
    return settings


@pytest.mark.parametrize(
    ("word", "mode"), [("no", ssl.CERT_NONE), ("optional", ssl.CERT_OPTIONAL), ("yes", ssl.CERT_REQUIRED)]
)
def test_tls_auth_clients_decides_about_certificates_of_clients(settings, word, mode):
    settings.tls_auth_clients = word
    assert clients_context(settings).verify_mode == mode


def test_nodes_use_no_tls_by_default(settings):
    assert bus_contexts(settings) == (None, None)


def test_both_ends_of_a_link_check_the_other(settings):
    """Spec S3."""
    settings.tls_cluster = True
    settings.tls_auth_clients = "no"
    for context in bus_contexts(settings):
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert not context.check_hostname
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_certificate_that_other_nodes_would_refuse_is_found(settings, tmp_path):
    """An expired one does not keep the node from starting, and the logs of other nodes alone would have the reason."""
    settings.tls_cluster = True
    assert refusal_of_own_certificate(settings) == ""
    cert, _ = self_signed(tmp_path, "another")
    settings.tls_ca_cert_file = str(cert)
    assert "certificate" in refusal_of_own_certificate(settings)
    settings.tls_cluster = False
    assert refusal_of_own_certificate(settings) == ""


def test_the_reason_of_an_expired_certificate_is_its_date(settings, files, tmp_path):
    cert, key = tmp_path / "old.crt", tmp_path / "old.key"
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", tmp_path / "old.csr", "-subj", "/CN=old")
    openssl("x509", "-req", "-in", tmp_path / "old.csr", "-signkey", key, "-days", "-1", "-out", cert)
    settings.tls_cert_file = settings.tls_ca_cert_file = str(cert)
    settings.tls_key_file = str(key)
    settings.tls_cluster = True
    assert refusal_of_own_certificate(settings) == "certificate has expired"


def test_a_key_may_have_a_password(settings, files):
    settings.tls_key_file = files[2]
    settings.tls_key_file_pass = "open sesame"
    assert clients_context(settings)


def test_a_wrong_or_missing_key_password_is_an_error_and_causes_no_prompt(settings, files):
    settings.tls_key_file = files[2]
    for password in ("", "close sesame"):
        settings.tls_key_file_pass = password
        with pytest.raises(StartError, match="can't use tls-cert-file"):
            clients_context(settings)


def test_missing_files_and_files_without_a_certificate_are_named(settings, tmp_path):
    (tmp_path / "text").write_text("no certificate")
    settings.tls_ca_cert_file = str(tmp_path / "text")
    with pytest.raises(StartError, match=r"can't use tls-ca-cert-file .*text"):
        clients_context(settings)
    settings.tls_cert_file = str(tmp_path / "nothing")
    with pytest.raises(StartError, match=r"tls-cert-file .*nothing: No such file or directory"):
        clients_context(settings)
