"""disque_py/cli/bench/floor.py: a server that answers only PING."""

from __future__ import annotations

from disque_py.cli.bench.floor import REPLY, REQUEST, Ping


class Written(list):
    """A transport that keeps the written data."""

    write = list.append


def test_every_whole_request_is_answered_once():
    """The data are one and a half requests, then the other half and two more."""
    written, connection = Written(), Ping()
    connection.connection_made(written)
    connection.data_received(REQUEST + REQUEST[:5])
    connection.data_received(REQUEST[5:] + REQUEST * 2)
    assert written == [REPLY, REPLY * 3]
