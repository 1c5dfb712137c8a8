"""The connections of a blocking client, shared by threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from random import Random

import pytest

from client_node import Node, closed_port, wait_until
from disque_py.client import commands
from disque_py.client.address import parse_address
from disque_py.client.cluster import Cluster
from disque_py.client.errors import ClientClosedError, ConnectionLostError, NotConnectedError
from disque_py.client.options import make_options
from disque_py.client.pool import Pool
from disque_py.client.retry import Patience

GET, PING = commands.get_jobs("q"), commands.ping()


def pool_of(node, **settings):
    return Pool(make_options((node.address,), settings), Random(1))


def take(pool, request=PING):
    return pool.take(request, Patience(0.0, Random(1)))


def test_a_connection_is_used_again():
    """A connection that was given back is taken again."""
    with Node() as node:
        pool = pool_of(node)
        first = take(pool)
        pool.give_back(first)
        assert take(pool) is first
        pool.close()
        first.close()


def test_a_connection_that_died_meanwhile_is_replaced():
    """The pool notices this before it sends anything."""
    with Node() as node:
        pool = pool_of(node)
        first = take(pool)
        pool.give_back(first)
        node.drop()
        wait_until(first.is_stale)
        second = take(pool)
        assert second is not first
        pool.give_back(second)
        pool.close()


def test_a_connection_that_died_meanwhile_leaves_its_place():
    with Node() as node:
        pool = pool_of(node, pool_size=1, patience=0.05)
        first = take(pool)
        pool.give_back(first)
        node.drop()
        wait_until(first.is_stale)
        second = take(pool)
        pool.give_back(second)
        assert take(pool) is second
        with pytest.raises(NotConnectedError, match="in use"):
            take(pool)
        pool.give_back(second)
        pool.close()


def test_a_full_pool_makes_threads_wait_for_each_other():
    """A thread gets an error if no connection is given back in time."""
    with Node() as node:
        pool = pool_of(node, pool_size=1, patience=0.05)
        first = take(pool)
        with pytest.raises(NotConnectedError, match="in use"):
            take(pool)
        timer = threading.Timer(0.01, pool.give_back, [first])
        timer.start()
        assert take(pool) is first
        timer.join()
        pool.give_back(first)
        pool.close()


def test_waiting_getjobs_take_no_place_of_the_pool():
    """Otherwise consumers could stop producers."""
    with Node() as node:
        pool = pool_of(node, pool_size=1)
        held = [take(pool, GET) for _ in range(3)]
        held.append(take(pool))
        for connection in held:
            pool.give_back(connection)
        pool.close()


def test_a_broken_connection_frees_its_place_and_moves_the_home():
    """An unsent command does not count against the node."""
    with Node() as node:
        pool = pool_of(node, pool_size=1)
        pool.note_broken(take(pool), ConnectionLostError("idle", sent=False))
        assert pool.cluster.home is not None
        pool.note_broken(take(pool), ConnectionLostError("gone", sent=True))
        assert pool.cluster.home is None
        pool.close()


def test_a_node_that_fails_gets_no_more_commands_for_a_while():
    """It has delivered jobs, so their acks prefer it, although it is no home. It has no idle connections afterwards."""
    with Node() as node, Node("b", priority=2) as other:
        node.peers, other.peers = [other], [node]
        pool = pool_of(node)
        pool.give_back(take(pool))
        request = replace(PING, node=parse_address(other.address))
        first, second = [take(pool, request) for _ in range(2)]
        assert str(first.address) == other.address
        pool.give_back(second)
        pool.note_broken(first, ConnectionLostError("silent", sent=True))
        assert second.is_closed
        third = take(pool, request)
        assert str(third.address) == node.address
        pool.give_back(third)
        pool.close()


def test_a_closed_pool_dials_no_more():
    """It closes connections that are given back."""
    with Node() as node:
        pool = pool_of(node)
        connection = take(pool)
        pool.close()
        pool.give_back(connection)
        assert connection.is_closed
        with pytest.raises(ClientClosedError):
            take(pool)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 and later: the node has threads.
def test_a_forked_child_that_closes_its_client_leaves_its_parents_connections_alone():
    """Closing them would end waits of the parent. The child must not wait for a lock that another thread held."""
    with Node() as node:
        pool = pool_of(node)
        parents = take(pool)
        with pool.lock:
            pid = os.fork()
            if pid == 0:
                signal.alarm(5)
                pool.close()
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert parents.ask(PING.payload(), 5) == b"PONG"
        pool.close()
        parents.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 and later: the node has threads.
def test_a_forked_child_starts_with_connections_of_its_own():
    """Two processes on one socket would read each other's replies."""
    with Node() as node:
        pool = pool_of(node)
        parents = take(pool)
        pool.give_back(parents)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if take(pool) is not parents else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert take(pool) is parents
        pool.close()
        parents.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 and later: the node has threads.
def test_threads_of_a_forked_child_wait_until_its_pool_has_begun(monkeypatch):
    """The first thread is interrupted while it replaces the parent's connections."""
    with Node() as node:
        pool = pool_of(node)
        parents = take(pool)
        pool.give_back(parents)
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            inside, taken, go_on = threading.Event(), threading.Event(), threading.Event()

            def slow_cluster(*words, **options):
                inside.set()
                go_on.wait(5)
                return Cluster(*words, **options)

            monkeypatch.setattr("disque_py.client.pool.Cluster", slow_cluster)
            threading.Thread(target=lambda: pool.take_idle(PING), daemon=True).start()
            inside.wait(5)
            threading.Thread(target=lambda: pool.take_idle(PING) is parents and taken.set(), daemon=True).start()
            os._exit(1 if taken.wait(0.3) else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        pool.close()


FORK_HOOK = """
import os, sys
def hook():
    os._exit(0 if client.ping() == "PONG" else 1)
os.register_at_fork(after_in_child=hook)
from disque_py.client import Disque
client = Disque(sys.argv[1])
client.ping()
status = os.waitpid(os.fork(), 0)[1]
client.ping()
sys.exit(status)
"""


def test_a_fork_is_noticed_in_a_hook_that_was_registered_before():
    """Python calls the hooks of a child in their order. The child has a connection of its own, the parent keeps its."""
    with Node() as node:
        assert subprocess.run([sys.executable, "-c", FORK_HOOK, node.address], timeout=30, check=False).returncode == 0
        assert node.greetings == 2


def test_a_node_that_cannot_be_reached_is_a_warning(caplog):
    """The log gives its address and the reason, once."""
    pool = Pool(make_options((f"127.0.0.1:{closed_port()}",), {}), Random(1))
    for _ in range(2):
        with pytest.raises(NotConnectedError):
            take(pool)
    assert len(caplog.messages) == 1
    assert "can't be reached" in caplog.messages[0]
