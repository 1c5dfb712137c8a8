"""Certificates for tests of TLS, made with the program openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def openssl(*words: str | Path) -> None:
    """Run openssl; skip the test where it is not installed."""
    try:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")


def self_signed(folder: Path, name: str = "disque", *, names: str = "") -> tuple[Path, Path]:
    """Make a self-signed certificate and its key. The certificate is also the authority to trust.

    name    its subject
    names   the names for which it is valid, such as `DNS:localhost`
    """
    cert, key = folder / "node.crt", folder / "node.key"
    more = ("-addext", f"subjectAltName={names}") if names else ()
    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}")
    openssl(*new, *more, "-keyout", key, "-out", cert)
    return cert, key


def renew(cert: Path, key: Path) -> None:
    """Replace a certificate for localhost by one that is valid for another day."""
    valid = ("-days", "3", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    openssl("req", "-x509", "-key", key, *valid, "-out", cert)
