"""What a serving node does from time to time."""

from __future__ import annotations

import asyncio
import gc

from disque_py.server import chores
from disque_py.server.chores import Chores
from disque_py.server.systemd import Notifier
from shells import make_shell


class Watched:
    """Stands for a connection: when it was looked after, and with which limit."""

    def __init__(self):
        self.looks = []

    def look_after(self, now_ms, idle_ms):
        self.looks.append(idle_ms)


def chores_of(seconds, monkeypatch, connections=(), notifier=None, **settings):
    """Do the chores for a while; how many turns of the loop one round of connections took does not matter."""

    async def main():
        shell = make_shell(**settings)
        shell.connections.update(enumerate(connections))
        Chores(shell, notifier or Notifier("no", {})).start()
        await asyncio.sleep(seconds)

    monkeypatch.setattr(chores, "LOOK_AFTER_SECONDS", 0.1)
    asyncio.run(main())


def test_every_connection_is_looked_after_with_the_timeout_in_force(monkeypatch):
    monkeypatch.setattr(chores, "LOOK_AFTER_SLICE", 3)
    connections = [Watched() for _ in range(8)]
    chores_of(0.15, monkeypatch, connections, timeout=5)
    assert [connection.looks for connection in connections] == [[5000]] * 8


def test_rounds_go_on(monkeypatch):
    connection = Watched()
    chores_of(0.35, monkeypatch, [connection])
    assert len(connection.looks) >= 2


def test_garbage_is_collected_while_that_is_cheap(monkeypatch):
    monkeypatch.setattr(chores, "COLLECT_SECONDS", 0.01)
    rounds = []
    gc.callbacks.append(lambda phase, info: rounds.append((phase, info["generation"])))
    try:
        chores_of(0.05, monkeypatch)
    finally:
        gc.callbacks.pop()
    assert ("stop", 2) in rounds


class Heartbeats:
    """Stands for the service manager's end."""

    watchdog_interval_s = 0.02

    def __init__(self):
        self.count = 0

    def alive(self):
        self.count += 1


def test_the_service_manager_hears_from_us_as_often_as_it_wants(monkeypatch):
    manager = Heartbeats()
    chores_of(0.1, monkeypatch, notifier=manager)
    assert 3 <= manager.count <= 6


def test_nobody_is_told_if_nobody_watches(monkeypatch):
    manager = Heartbeats()
    manager.watchdog_interval_s = 0.0
    chores_of(0.05, monkeypatch, notifier=manager)
    assert manager.count == 0
