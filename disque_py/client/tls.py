"""Whom a client trusts, the same for the library, the programs of the command line, and Spark."""

from __future__ import annotations

import ssl


def trusting(ca_file: str | None = None) -> ssl.SSLContext:
    """A context that trusts the system's authorities, or those in a file alone. OSError when that can't be read.

    Python 3.13 and later refuse certificates that don't follow RFC 5280 to the letter (VERIFY_X509_STRICT). Those of
    an authority of one's own, made with three lines of openssl, seldom do, and whoever names it trusts it: such a
    file means the same with every version of Python. The system's authorities are held to the letter.
    """
    context = ssl.create_default_context(cafile=ca_file or None)
    if ca_file:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
