"""ports.py: free ports, each given out once."""

from __future__ import annotations

import socket

from disque_py.testing.ports import BUS_PORT_DISTANCE, HOST, PORTS, free_port, is_free


def test_a_port_is_given_out_once():
    """Its node may not listen yet when the next one asks."""
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) == 20
    assert all(port in PORTS and is_free(port + BUS_PORT_DISTANCE) for port in ports)


def test_a_port_with_a_listener_is_not_free():
    with socket.create_server((HOST, 0)) as server:
        assert not is_free(server.getsockname()[1])
