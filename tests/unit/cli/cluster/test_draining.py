"""draining.py: jobs fall to zero, reasons are shown, and all other nodes forget the drained node."""

from __future__ import annotations

import contextlib

import pytest

from disque_py.cli.address import Target
from disque_py.cli.cluster import draining
from disque_py.cli.cluster.draining import (
    DrainProgress,
    HiddenJobsError,
    drain,
    forget_everywhere,
    leave,
    leaving_reasons,
)
from disque_py.cli.cluster.view import ClusterView, NodeView, patient
from disque_py.client import Address, ReplyError

HELLO = b"*2\r\n:1\r\n$40\r\n" + b"a" * 40 + b"\r\n"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(draining, "LOOK_EVERY_S", 0.0)


@pytest.fixture
def leaver(scripted, bulk_reply):
    """Makes a connection to a node that reports these numbers of jobs in order, and then repeats the last."""
    opened = []

    def make(*counts, cluster_info=""):
        left = list(counts)

        def info(words):
            return bulk_reply(f"# Jobs\r\nregistered_jobs:{left.pop(0) if len(left) > 1 else left[0]}\r\n")

        node = scripted(
            {"HELLO": HELLO, "INFO": info, "CLUSTER INFO": bulk_reply(cluster_info), "CLUSTER LEAVING": b"+OK\r\n"}
        )
        opened.append(patient(Target(Address("127.0.0.1", node.port))))
        return opened[-1], node

    yield make
    for connection in opened:
        connection.close()


def test_draining_sends_cluster_leaving(leaver):
    connection, node = leaver(0)
    leave(connection)
    assert node.requests[1:] == [[b"CLUSTER", b"LEAVING", b"yes"]]


def test_a_node_is_drained_after_two_checks_without_a_job(leaver):
    connection, _ = leaver(5, 0, 1, 0)
    seen = []
    assert drain(connection, None, seen.append).remaining == 0
    assert [progress.remaining for progress in seen] == [5, 0, 1, 0, 0]


def test_draining_may_end_with_its_timeout(leaver):
    connection, _ = leaver(3, cluster_info="cluster_leaving_blocked_by:no node is free\r\n")
    assert drain(connection, 0.0, lambda _: None) == DrainProgress(3, ("blocked by: no node is free",))


def test_reasons_are_the_texts_a_leaving_node_gives():
    info = {
        "cluster_leaving_remaining": 3,
        "cluster_leaving_blocked_by": "x",
        "cluster_leaving_since": "",
        "cluster_size": 2,
    }
    assert leaving_reasons(info) == ("blocked by: x",)


def test_a_node_that_hides_its_jobs_is_not_taken_for_empty(scripted):
    node = scripted({"HELLO": HELLO, "INFO": b"$0\r\n\r\n"})
    with (
        contextlib.closing(patient(Target(Address("127.0.0.1", node.port)))) as connection,
        pytest.raises(HiddenJobsError, match="registered_jobs"),
    ):
        drain(connection, None, lambda _: None)


def test_a_refusal_to_leave_is_reported(scripted):
    node = scripted({"HELLO": HELLO, "CLUSTER": b"-ERR no\r\n"})
    with (
        contextlib.closing(patient(Target(Address("127.0.0.1", node.port)))) as connection,
        pytest.raises(ReplyError),
    ):
        leave(connection)


def test_all_other_nodes_forget(scripted):
    others = [
        scripted({"HELLO": HELLO, "CLUSTER FORGET": reply})
        for reply in (b"+OK\r\n", b"-ERR Unknown node x\r\n", b"-ERR no\r\n")
    ]
    views = [NodeView(Address("127.0.0.1", node.port), id=str(number)) for number, node in enumerate(others)]
    gone = NodeView(Address("127.0.0.1", 1), id="dead", error="does not answer")
    leaving = NodeView(Address("127.0.0.1", 2), id="f" * 40)
    failures = forget_everywhere(ClusterView([leaving, *views, gone]), leaving, Target())
    assert [failure.rpartition(": ")[2] for failure in failures] == ["ERR no", "does not answer"]
    assert all(node.requests[1:] == [[b"CLUSTER", b"FORGET", b"f" * 40]] for node in others)
