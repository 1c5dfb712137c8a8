"""server/housekeeping.py: the periodic work of a serving node."""

from __future__ import annotations

import asyncio
import gc

from disque_py.server import housekeeping
from disque_py.server.housekeeping import Housekeeping
from disque_py.server.systemd import Notifier
from shells import make_shell


class Watched:
    """Stands in for a connection. Records the limit of each check."""

    def __init__(self):
        self.looks = []

    def look_after(self, now_ms, idle_ms):
        self.looks.append(idle_ms)


SECONDS_MAX = 20.0


def chores_until(is_enough, monkeypatch, connections=(), notifier=None, **settings):
    """Do the chores until the condition is true; the machine may be busy. Return the seconds that it took."""

    async def main():
        loop = asyncio.get_running_loop()
        turns = make_shell(**settings)
        turns.connections.update(enumerate(connections))
        started = loop.time()
        Housekeeping(turns, notifier or Notifier("no", {})).start()
        while not is_enough():
            assert loop.time() - started < SECONDS_MAX
            await asyncio.sleep(0.005)
        return loop.time() - started

    monkeypatch.setattr(housekeeping, "LOOK_AFTER_SECONDS", 0.1)
    return asyncio.run(main())


def test_the_current_timeout_applies_to_every_connection(monkeypatch):
    monkeypatch.setattr(housekeeping, "LOOK_AFTER_SLICE", 3)
    connections = [Watched() for _ in range(8)]
    chores_until(lambda: all(connection.looks for connection in connections), monkeypatch, connections, timeout=5)
    assert {limit for connection in connections for limit in connection.looks} == {5000}


def test_housekeeping_rounds_are_repeated(monkeypatch):
    connection = Watched()
    seconds = chores_until(lambda: len(connection.looks) >= 3, monkeypatch, [connection])
    assert seconds >= 0.2


def test_garbage_is_collected_while_there_are_few_jobs(monkeypatch):
    monkeypatch.setattr(housekeeping, "COLLECT_SECONDS", 0.01)
    rounds = []
    gc.callbacks.append(lambda phase, info: rounds.append((phase, info["generation"])))
    try:
        chores_until(lambda: ("stop", 2) in rounds, monkeypatch)
    finally:
        gc.callbacks.pop()


class Heartbeats:
    """Stands in for the service manager."""

    watchdog_interval_s = 0.02

    def __init__(self):
        self.count = 0

    def alive(self):
        self.count += 1


def test_the_service_manager_is_notified_as_often_as_it_asks(monkeypatch):
    manager = Heartbeats()
    seconds = chores_until(lambda: manager.count >= 4, monkeypatch, notifier=manager)
    assert manager.count <= seconds / manager.watchdog_interval_s + 1


def test_without_a_watchdog_of_the_service_manager_no_notification_is_sent(monkeypatch):
    manager = Heartbeats()
    manager.watchdog_interval_s = 0.0
    connection = Watched()
    chores_until(lambda: connection.looks, monkeypatch, [connection], notifier=manager)
    assert manager.count == 0
