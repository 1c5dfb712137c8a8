"""client/zone_commands.py: QREBALANCE."""

from __future__ import annotations

from disque_py.client.handshake import handshake
from disque_py.client.options import make_options
from disque_py.client.zone_commands import rebalance


def test_a_rebalance_names_zones_and_may_go_on_alone():
    assert rebalance("q").argv == (b"QREBALANCE", b"q")
    assert rebalance("q", zones=["a", "eu/b"], wait=False).argv == (
        b"QREBALANCE", b"q", b"ZONES", b"a", b"eu/b", b"ASYNC",
    )  # fmt: skip


def test_the_answer_is_a_task():
    reply = [b"task", b"t", b"jobs", 4, b"failed", 1, b"nodes", 2, b"nodes-missing", []]
    task = rebalance("q").read(reply)
    assert (task.command, task.queue, task.jobs, task.failed) == ("qrebalance", "q", 4, 1)


def test_a_program_that_names_its_place_asks_for_the_places_of_nodes():
    """Spec ZN9. Others say HELLO as before, so the original's servers answer."""
    assert b"EXTENDED" in handshake(make_options((), {"zone": "a"}))[-1]
    assert b"EXTENDED" not in handshake(make_options((), {}))[-1]
    assert make_options((), {"datacenter": "eu"}).place == ("eu", "")
