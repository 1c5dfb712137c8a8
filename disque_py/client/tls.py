"""The TLS context of clients. The library, the command line programs and Spark share it."""

from __future__ import annotations

import ssl


def trusting(ca_file: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the system's authorities, or only those in a file. Raises OSError for the file.

    Python 3.13 and later refuse certificates that don't follow RFC 5280 strictly (VERIFY_X509_STRICT). The certificates
    of a private authority, made with three lines of openssl, seldom do. But the user has named that authority and
    trusts it. So this check is off for such a file, and the file works with every version of Python. The system's
    authorities are checked strictly.
    """
    context = ssl.create_default_context(cafile=ca_file or None)
    if ca_file:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
