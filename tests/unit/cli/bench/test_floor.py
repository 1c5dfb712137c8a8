"""disque_py/cli/bench/floor.py: PING, and nothing else."""

from __future__ import annotations

from disque_py.cli.bench.floor import REPLY, REQUEST, Ping


class Written(list):
    """A transport that keeps what is written."""

    write = list.append


def test_every_whole_request_is_answered_once():
    """A request and a half, then the other half and two more."""
    written, connection = Written(), Ping()
    connection.connection_made(written)
    connection.data_received(REQUEST + REQUEST[:5])
    connection.data_received(REQUEST[5:] + REQUEST * 2)
    assert written == [REPLY, REPLY * 3]
