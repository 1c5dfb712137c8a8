"""LATENCY: slow events, as remembered in stats.latency.

Spec R8. Charts and advice are made in latency_report.py.
"""

from __future__ import annotations

from typing import Final

from disque_py.commands.latency_report import advice, chart
from disque_py.commands.subcommands import ANY, Form, form_of, text_of
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.core.stats import LatencySeries
from disque_py.resp.replies import EMPTY_ARRAY, array, bulk, integer


def latency(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """LATENCY LATEST | HISTORY event | GRAPH event | DOCTOR | RESET [event ...]."""
    form = form_of(FORMS, argv)
    if form is None:
        raise CommandError(SYNTAX)
    return form.handler(broker, client, argv)


def _latest(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """LATEST: per event its name, time of the last sample, that sample, the worst ever; seconds and milliseconds."""
    entries = []
    for event, series in broker.stats.latency.items():
        wall_s, ms = series.samples[-1]
        entries.append(array((bulk(event), integer(wall_s), integer(ms), integer(series.worst_ms))))
    return array(entries)


def _history(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """HISTORY event: time and milliseconds, oldest first."""
    series = _series(broker, argv[2])
    if series is None:
        return EMPTY_ARRAY
    return array(array((integer(wall_s), integer(ms))) for wall_s, ms in series.samples)


def _graph(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """GRAPH event: a chart in characters."""
    series = _series(broker, argv[2])
    if series is None:
        raise CommandError(f"ERR No samples available for event '{text_of(argv[2])}'")
    return bulk(chart(text_of(argv[2]), series, broker.wall_ms // 1000))


def _doctor(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """DOCTOR: the samples in words, and advice."""
    return bulk(advice(broker))


def _reset(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """RESET [event ...]: forget all events or these, and reply with their number."""
    known = broker.stats.latency
    events = [text_of(word) for word in argv[2:]] if len(argv) > 2 else list(known)
    return integer(sum(known.pop(event, None) is not None for event in events))


def _series(broker: Broker, event: bytes) -> LatencySeries | None:
    return broker.stats.latency.get(text_of(event))


FORMS: Final = {
    b"latest": Form(_latest, 2, 2),
    b"history": Form(_history, 3, 3),
    b"graph": Form(_graph, 3, 3),
    b"doctor": Form(_doctor, 2, 2),
    b"reset": Form(_reset, 2, ANY),
}
