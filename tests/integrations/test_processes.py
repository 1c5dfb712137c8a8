"""Each process has one client."""

from __future__ import annotations

import os

from disque_py.client.processes import ProcessClient


def test_a_process_has_one_client(shared_node):
    client = ProcessClient(shared_node.url, "test")
    assert client() is client()
    client.close()


def test_a_forked_child_gets_a_client_of_its_own(shared_node):
    client = ProcessClient(shared_node.url, "test")
    parents = client()
    assert parents.ping() == "PONG"
    child = os.fork()
    if not child:
        os._exit(0 if client() is not parents and client().ping() == "PONG" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert client() is parents
    assert parents.ping() == "PONG"
    client.close()


def test_a_closed_client_is_made_again(shared_node):
    client = ProcessClient(shared_node.url, "test")
    first = client()
    client.close()
    assert client() is not first
    client.close()
