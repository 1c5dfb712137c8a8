"""Read the URLs and options of kombu and Celery. Pure.

kombu separates several nodes by semicolons, as `disque://:password@h1:7711;disque://h2:7711`. They are nodes of
one cluster, so one client uses all of them. Options are in `transport_options` or after the question mark of a URL.
Options that are not of the transport are settings of the client (docs/client.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote, unquote

from disque_py.client.address import Address, parse_url
from disque_py.client.options import ClientSettings, settings_of_url

LEASE_S: Final = 60.0
# Nodes extend no lease in the second half of a job's TTL. So the default allows two weeks in a queue.
TTL_S: Final = 28 * 86_400
DAY_S: Final = 86_400

OWN_OPTIONS: Final = ("visibility_timeout", "native_delay", "priority_order", "message_ttl", "publish_once")


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """The options of the transport, and the client's nodes and settings.

    lease          how long a delivery lasts without being extended (`visibility_timeout`); 60 seconds by default
    native_delay   whether the broker keeps tasks until their ETA (the default), or workers do
    amqp_order     whether 9 is the most urgent priority, as in RabbitMQ; by default 0 is, as in Redis
    ttl_s          seconds after which an unconsumed message is dropped (`message_ttl`); 28 days by default
    publish_once   whether a publication that is repeated after an error makes one message, the default
    """

    nodes: tuple[Address, ...]
    settings: ClientSettings = field(repr=False)
    lease: timedelta = timedelta(seconds=LEASE_S)
    native_delay: bool = True
    amqp_order: bool = False
    ttl_s: int = TTL_S
    publish_once: bool = True


def split_urls(url: str, alternates: Iterable[str] = ()) -> list[str]:
    """Return the URLs of all nodes, each once. A part without a scheme has that of the first."""
    parts = [part.strip() for text in (url, *alternates) for part in text.split(";") if part.strip()]
    scheme = parts[0].partition("://")[0] if parts and "://" in parts[0] else "disque"
    return list(dict.fromkeys(part if "://" in part else f"{scheme}://{part}" for part in parts))


def read_options(urls: Iterable[str], options: Mapping[str, Any] | None = None) -> TransportOptions:
    """Return the options of a transport.

    urls      one URL per node, or several nodes in one
    options   `transport_options` of kombu; they win over the options of URLs

    Raises ValueError for a URL or an option that can't be read. The error quotes no password.
    """
    nodes: list[Address] = []
    settings: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for url in urls:
        plain, words = _without_own_words(url)
        own = words | own
        found_nodes, found = settings_of_url(plain)
        nodes += [node for node in found_nodes if node not in nodes]
        settings = dict(found) | settings
    own |= {name: value for name, value in (options or {}).items() if name in OWN_OPTIONS and value is not None}
    lease_s = float(own.get("visibility_timeout", LEASE_S))
    ttl_s = int(own.get("message_ttl", TTL_S))
    order = str(own.get("priority_order", "redis"))
    if lease_s < 1 or ttl_s < 1:
        raise ValueError("visibility_timeout and message_ttl are at least one second")
    if order not in ("redis", "amqp"):
        raise ValueError(f"priority_order is redis or amqp, not {order!r}")
    lease = timedelta(milliseconds=round(lease_s * 1000))
    return TransportOptions(
        tuple(nodes),
        ClientSettings(**settings),  # type: ignore[typeddict-item]  # Names were checked: `settings_of_url`.
        lease,
        _flag("native_delay", own.get("native_delay", True)),
        order == "amqp",
        ttl_s,
        _flag("publish_once", own.get("publish_once", True)),
    )


def _without_own_words(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL for the client, and the transport's own options in it."""
    base, _, query = url.partition("?")
    scheme, _, rest = base.partition("://")
    places = rest.rpartition("@")[2].rstrip("/")
    login = rest[: len(rest) - len(rest.rpartition("@")[2])]
    base = f"{scheme}://{login}{places or '127.0.0.1:7711'}"
    if not query:
        return base, {}
    words = parse_url(f"{base}?{query}").options
    own = {name: value for name, value in words.items() if name in OWN_OPTIONS}
    others = "&".join(word for word in query.split("&") if word.partition("=")[0] not in OWN_OPTIONS)
    return (f"{base}?{others}" if others else base), own


def _flag(name: str, value: object) -> bool:
    word = str(value).lower()
    if word in ("1", "yes", "true", "on"):
        return True
    if word in ("0", "no", "false", "off"):
        return False
    raise ValueError(f"{name} is yes or no, not {value!r}")


def taken_login(urls: Iterable[str]) -> tuple[list[str], str, str]:
    """Return URLs without a login, and the first name and password in them; empty: none."""
    plain, name, password = [], "", ""
    for url in urls:
        base, mark, words = url.partition("?")
        scheme, _, rest = base.partition("://")
        login, _, places = rest.rpartition("@")
        found_name, _, found_password = login.partition(":")
        name, password = name or unquote(found_name), password or unquote(found_password)
        plain.append(f"{scheme}://{places}{mark}{words}")
    return plain, name, password


def with_login(urls: Iterable[str], name: str, password: str) -> list[str]:
    """Return URLs with a login. One client uses all of them, so it is that of each."""
    login = quote(name, safe="") + (f":{quote(password, safe='')}" if password else "")
    return [url.replace("://", f"://{login}@", 1) for url in urls] if login else list(urls)


def masked(urls: Iterable[str], mask: str = "**") -> str:
    """Return URLs without their passwords, joined as they were written."""
    return ";".join(_masked(url, mask) for url in urls)


def _masked(url: str, mask: str) -> str:
    scheme, _, rest = url.partition("://")
    login, at, places = rest.rpartition("@")
    name, colon, _ = login.partition(":")
    return f"{scheme}://{name}{colon}{mask if colon else ''}{at}{places}"
