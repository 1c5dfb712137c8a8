"""One client per process."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from client_node import Node
from disque_py.client.processes import ProcessClient


@pytest.fixture
def quick_switches():
    """Let threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def clients_of_threads(client, count=8):
    """Return the clients that so many threads get, which ask at the same moment."""
    found = []
    together = threading.Barrier(count)

    def ask():
        together.wait()
        found.append(client())

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_threads_that_ask_at_the_same_moment_get_one_client(quick_switches):
    """Otherwise the connections of the others would stay open."""
    for _ in range(400):
        assert len(set(map(id, clients_of_threads(ProcessClient("disque://127.0.0.1:1", "test"))))) == 1


def test_after_close_there_is_a_new_client():
    client = ProcessClient("disque://127.0.0.1:1", "test")
    first = client()
    client.close()
    assert client() is not first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 and later: the node has threads.
def test_a_child_has_a_client_of_its_own_and_leaves_that_of_the_parent_alone():
    with Node(answers={"CLIENT": b"+OK\r\n"}) as node:
        client = ProcessClient(f"disque://{node.address}", "test")
        first = client()
        assert first.ping() == "PONG"
        pid = os.fork()
        if pid == 0:
            is_own = client() is not first and client().ping() == "PONG"
            client.close()
            os._exit(0 if is_own else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert client() is first
        assert first.ping() == "PONG"
        client.close()
