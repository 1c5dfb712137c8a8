"""server/reporter.py: refusals are logged in one line per second."""

from __future__ import annotations

import pytest

from brokers import make_broker
from disque_py.server import reporter
from disque_py.server.reporter import CALM_LOOKS, FIGURES_SECONDS, Reporter


@pytest.fixture
def told(monkeypatch):
    """Return the names and fields of the log lines."""
    told = []
    monkeypatch.setattr(reporter, "tell", lambda name, **fields: told.append((name, fields)))
    return told


def test_refusals_are_counted_into_one_line(told):
    broker = make_broker(maxclients=7)
    look = Reporter(broker).look
    look()
    broker.stats.connections_beyond_maxclients += 3
    broker.stats.wrong_passwords += 2
    broker.stats.wrong_password_from = "10.0.0.9:1234"
    look()
    look()
    assert told == [
        ("clients-refused", {"count": 3, "maxclients": 7}),
        ("wrong-password", {"count": 2, "client": "10.0.0.9:1234"}),
    ]


def test_clients_of_other_machines_are_not_called_too_many(told):
    """`maxclients` is unrelated to protected mode."""
    broker = make_broker()
    look = Reporter(broker).look
    broker.stats.connections_rejected += 1
    broker.stats.connections_foreign += 1
    broker.stats.foreign_client = "192.0.2.7:1234"
    look()
    assert told == [("foreign-refused", {"count": 1, "client": "192.0.2.7:1234"})]


def test_the_end_of_a_memory_shortage_is_logged_after_a_while(told):
    broker = make_broker(maxmemory=1000)
    look = Reporter(broker).look
    broker.stats.memory_refusals += 4
    for _ in range(CALM_LOOKS + 5):
        look()
    assert [name for name, _ in told if name != "figures"] == ["memory-refused", "memory-enough"]
    assert told[0][1]["count"] == 4


def test_config_resetstat_makes_no_line(told):
    broker = make_broker()
    broker.stats.wrong_passwords = 5
    look = Reporter(broker).look
    look()
    broker.stats.reset()
    look()
    assert len(told) == 1


def test_figures_come_every_ten_seconds(told):
    look = Reporter(make_broker()).look
    for _ in range(2 * FIGURES_SECONDS):
        look()
    assert [name for name, _ in told] == ["figures"] * 2
