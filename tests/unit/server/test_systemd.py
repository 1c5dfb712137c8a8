"""Messages to the service manager."""

from __future__ import annotations

import os
import socket

import pytest

from disque_py.server.systemd import Notifier


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(5)
        yield channel


@pytest.mark.parametrize("supervised", ["systemd", "auto"])
def test_ready_alive_and_stopping_are_datagrams(manager, supervised):
    notifier = Notifier(supervised, {"NOTIFY_SOCKET": manager.getsockname()})
    notifier.ready()
    notifier.alive()
    notifier.stopping()
    assert manager.recv(1000).startswith(f"READY=1\nMAINPID={os.getpid()}\n".encode())
    assert manager.recv(1000) == b"WATCHDOG=1"
    assert manager.recv(1000).startswith(b"STOPPING=1\n")


@pytest.mark.parametrize(
    ("supervised", "environ"),
    [("no", {"NOTIFY_SOCKET": "/run/notify"}), ("auto", {}), ("systemd", {"NOTIFY_SOCKET": "relative"})],
)
def test_without_a_manager_nothing_is_sent(supervised, environ):
    notifier = Notifier(supervised, environ)
    notifier.ready()
    assert not notifier.is_active


def test_a_service_manager_that_is_gone_does_no_harm(tmp_path):
    Notifier("auto", {"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


def test_abstract_addresses_begin_with_a_nul_byte():
    name = f"disque-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind("\0" + name)
        channel.settimeout(5)
        Notifier("auto", {"NOTIFY_SOCKET": "@" + name}).alive()
        assert channel.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": "x"}, 0),
        ({}, 0),
    ],
)
def test_the_watchdog_is_notified_twice_per_period(environ, interval_s):
    assert Notifier("auto", {"NOTIFY_SOCKET": "/x", **environ}).watchdog_interval_s == interval_s
