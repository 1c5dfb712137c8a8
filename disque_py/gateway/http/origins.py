"""Origins: whether a request comes from a page of this gateway, from a page of another site, or from a program.

Browsers send requests of any page to any address, with the visitor's credentials or from the visitor's own machine. So
a change must not come from a page of another origin (CSRF). A browser says where a request comes from: Sec-Fetch-Site
to an address with TLS or on loopback, and Origin with every method except GET and HEAD. Programs send neither. So these
headers also say whether the browser uses TLS, to a proxy that ends it before the gateway. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from disque_py.gateway.http.hosts import is_loopback

# The page's origin. `user`: the visitor typed the address. `unsaid`: the request does not say, so it is a program's.
Source = Literal["own", "user", "other", "unsaid"]

_OF_SITE: Final[dict[str, Source]] = {"same-origin": "own", "none": "user"}
_STANDARD_PORTS: Final = {"http": ":80", "https": ":443"}


def source_of(headers: Mapping[str, str]) -> Source:
    """Return the source that the headers of a request name."""
    site = headers.get("sec-fetch-site")
    if site is not None:  # This holds behind a proxy that changes Host, too.
        return _OF_SITE.get(site, "other")
    origin = headers.get("origin")
    if origin is None:
        return "unsaid"
    return "own" if _is_at(origin, headers.get("host", "")) else "other"


def is_over_tls(headers: Mapping[str, str]) -> bool:
    """Return whether the headers of a browser say that it uses TLS."""
    if "origin" in headers:
        return headers["origin"].startswith("https:")
    return "sec-fetch-site" in headers and not is_loopback(headers.get("host", ""))


def _is_at(origin: str, host: str) -> bool:
    """Return whether an origin is that of a Host header. Some proxies add the standard port to Host, or omit any port.

    Without a port in Host, any port of that host is accepted. Its pages are of the same site.
    """
    try:
        parts = urlsplit(origin)
        its_port = parts.port
        has_port = urlsplit("//" + host).port is not None
    except ValueError:
        return False
    port = _STANDARD_PORTS.get(parts.scheme, "")
    if has_port or its_port is None:
        return bool(parts.netloc) and parts.netloc.lower().removesuffix(port) == host.lower().removesuffix(port)
    return parts.netloc.lower().removesuffix(f":{its_port}") == host.lower()
