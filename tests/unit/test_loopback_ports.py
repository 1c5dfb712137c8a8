"""loopback_ports.py: free ports, each given out once."""

from __future__ import annotations

import socket

from disque_py.loopback_ports import BUS_PORT_DISTANCE, HOST, PORTS, free_port, is_free, is_free_with_bus


def test_a_port_is_given_out_once():
    """Its node may not listen yet when the next one asks."""
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) == 20
    assert all(port in PORTS and is_free(port + BUS_PORT_DISTANCE) for port in ports)


def test_a_port_with_a_listener_is_not_free():
    with socket.create_server((HOST, 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_a_port_whose_bus_port_has_a_listener_is_not_free_with_it():
    port = free_port()
    with socket.create_server((HOST, port + BUS_PORT_DISTANCE)):
        assert is_free(port)
        assert not is_free_with_bus(port)
