"""Certificates of callers: the names that a verified one has, and its end.

Both doors hand over the certificate that TLS has verified (`tls-client-ca`). A name is written with its kind: `CN=`,
`DNS:`, `URI:`, `EMAIL:` or `IP:`. The access file gives roles to names. x509_names.py reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KINDS: Final = ("CN=", "DNS:", "URI:", "EMAIL:", "IP:")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A verified certificate: its names with their kinds, and its end in Unix seconds."""

    names: frozenset[str]
    ends: float
