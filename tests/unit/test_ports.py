"""ports.py: each stand-in for the outside has all methods of its port."""

from __future__ import annotations

import inspect

import pytest

from brokers import NotedHost, NotedPort
from cluster_bus.bus import Bus
from disque_py import ports
from disque_py.server.clock import SystemClock
from disque_py.server.connection import ClientConnection
from disque_py.server.host import ProcessHost
from disque_py.simulator.clients.connection import Connection
from disque_py.simulator.world.host import SimHost
from disque_py.simulator.world.machine import Machine
from loopback import NoWire

PAIRS = (
    (ports.Clock, SystemClock),
    (ports.Clock, Machine),
    (ports.Wire, Bus),
    (ports.Wire, Machine),
    (ports.Wire, NoWire),
    (ports.ClientPort, ClientConnection),
    (ports.ClientPort, NotedPort),
    (ports.ClientPort, Connection),
    (ports.Host, ProcessHost),
    (ports.Host, NotedHost),
    (ports.Host, SimHost),
)


def methods(of):
    """Return name -> parameters of each method."""
    found = {}
    for name, method in vars(of).items():
        if isinstance(method, staticmethod) and inspect.isbuiltin(method.__func__):
            found[name] = ([], 0)  # The system's own function; those that are used so take nothing.
        if inspect.isfunction(method) and not name.startswith("_"):
            parameters = list(inspect.signature(method).parameters.values())[1:]
            found[name] = (
                [(each.kind, each.name) for each in parameters if each.kind is each.KEYWORD_ONLY],
                sum(each.kind is not each.KEYWORD_ONLY for each in parameters),
            )
    return found


@pytest.mark.parametrize(("port", "implementation"), PAIRS, ids=lambda each: each.__name__)
@pytest.mark.plain
def test_every_implementation_has_all_methods_of_its_port(port, implementation):
    """The type checker sees the server's; those of tests are compared here."""
    has = methods(implementation)
    assert {name: has.get(name) for name in methods(port)} == methods(port)


@pytest.mark.parametrize(
    "port", [ports.Clock, ports.Wire, ports.ClientPort, ports.Host], ids=lambda each: each.__name__
)
def test_every_method_of_a_port_is_explained(port):
    assert all(inspect.getdoc(getattr(port, name)) for name in methods(port))
