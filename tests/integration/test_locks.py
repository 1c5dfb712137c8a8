"""Locks of the client library against three real nodes: killed nodes, stopped holders, many threads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from hiredis import ReplyError

from disque_py.client import AsyncDisque, Disque, LockHeldError, LockLostError
from disque_py.client.lock import now
from histories import Held, overlaps
from linearizability import ACQUIRE, EXTEND, RELEASE, take_lock, unexplained
from servers import HOST, Cluster, until

HOLDER = """
import sys, time
from disque_py.client import Disque, LockLostError
lock = Disque(*sys.argv[1:]).lock("stopped", lease=1.5)
try:
    with lock:
        print(lock.fence, flush=True)
        while lock.is_held and not lock.lost.is_set():
            time.sleep(0.01)
        lock.lost.wait(5)
        print("lost" if lock.lost.is_set() else "held", flush=True)
except LockLostError:
    print("told", flush=True)
"""
THREADS = 10
SECONDS = 5


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three nodes, all of them voters."""
    with Cluster(tmp_path_factory.mktemp("locks"), 3) as cluster:
        cluster[0].command("CLUSTER", "VOTERS", "INIT", *(server.node_id for server in cluster.servers))
        yield cluster


def addresses(cluster):
    return [f"{HOST}:{server.port}" for server in cluster.servers]


@contextmanager
def holder_of(cluster):
    """Start a process that has the lock `stopped`. The first line of its output is the fence."""
    command = [sys.executable, "-c", HOLDER, *addresses(cluster)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_a_lock_can_be_extended_at_another_node(three):
    """The node that the holder asks is killed."""
    with Disque(*addresses(three)) as client, client.lock("nodes", lease=3) as lock:
        answering = [server for server in three.servers if holds_connection_of(server, lock)]
        assert len(answering) == 1
        answering[0].kill()
        try:
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                assert lock.is_held
                time.sleep(0.05)
            assert lock.left_s > 0
            assert client.show_lock("nodes").fence == lock.fence
        finally:
            answering[0].restart()
    three.wait_whole()


def holds_connection_of(server, lock):
    """Return whether a connection of this lock leads to the node, by its last command."""
    return b"cmd=lock" in server.command("CLIENT", "LIST")


def test_a_stopped_holder_loses_its_lock_to_another_owner(three):
    """Spec CL8: when it goes on, it knows at once."""
    with holder_of(three) as (holder, fence):
        os.kill(holder.pid, signal.SIGSTOP)
        with Disque(*addresses(three)) as client, client.lock("stopped", lease=5, timeout=10) as lock:
            assert lock.fence > fence
            assert lock.attempt == 2
            os.kill(holder.pid, signal.SIGCONT)
            output, _ = holder.communicate(timeout=10)
            assert output == "lost\ntold\n"
            assert lock.is_held


def test_no_two_threads_have_a_lock_at_a_time(three):
    """The history has ten threads, each with its own lock object, at three nodes."""
    history = []
    deadline = now() + SECONDS
    inside = []

    def work(number):
        names = addresses(three)
        with Disque(names[number % 3], discover=False) as client:
            while now() < deadline:
                with client.lock("busy", lease=5, timeout=30) as lock:
                    began = now()
                    inside.append(number)
                    assert inside == [number]
                    time.sleep(0.002)
                    inside.remove(number)
                    history.append(Held(b"busy", lock.fence, began, now()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(history) > THREADS
    assert overlaps(history) == []


def test_the_replies_to_owners_at_three_nodes_are_linearizable(three):
    """Spec CL8, CL9. One node after the other is stopped for longer than a lease. Some owners act too late."""
    history = []
    stop = threading.Event()
    threads = [
        threading.Thread(target=take_lock, args=(three[number % 3], b"order", 600, history, stop, number))
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    try:
        for server in three.servers:
            time.sleep(1)
            server.pause()
            time.sleep(1)
            server.resume()
        time.sleep(1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    three.wait_whole()
    assert {(call.what, call.is_ok) for call in history} >= {(ACQUIRE, True), (EXTEND, True), (RELEASE, True)}
    assert len({call.fence for call in history}) > len(threads)
    assert unexplained(history) == []


def take_again(server, history, stop, number):
    """Take the lock `order`, also after the node was killed."""
    while not stop.is_set():
        with suppress(OSError, EOFError):
            take_lock(server, b"order", 600, history, stop, number)
        stop.wait(0.05)


def test_the_replies_are_linearizable_while_voters_change_and_die(tmp_path):
    """Spec CL3, CL5: a new voter copies the grants, and one that was killed reads its own from disk."""
    history = []
    stop = threading.Event()
    with Cluster(tmp_path, 4, ["--cluster-node-timeout", "1000"]) as four:
        *voters, spare = [server.node_id for server in four.servers]
        four[3].command("CLUSTER", "VOTERS", "INIT", *voters)
        threads = [
            threading.Thread(target=take_again, args=(four[number % 4], history, stop, number)) for number in range(8)
        ]
        for thread in threads:
            thread.start()
        try:
            for number in range(3):
                time.sleep(0.3)
                change(four[3], "ADD", spare)
                time.sleep(0.3)
                change(four[3], "REMOVE", voters[number])
                spare = voters[number]
                four[number].kill()
                time.sleep(0.2)
                four[number].restart()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert {(call.what, call.is_ok) for call in history} >= {(ACQUIRE, True), (EXTEND, True), (RELEASE, True)}
    assert unexplained(history) == []


def change(server, *words):
    """Change the list of voters. Repeat the change while an earlier one, or a link, is not complete."""

    def is_changed():
        try:
            server.command("CLUSTER", "VOTERS", *words)
        except ReplyError as error:
            return "is a voter" in str(error) or "is no voter" in str(error)
        return True

    until(is_changed)


def test_a_backup_of_a_killed_holder_goes_on(three):
    """It gets the next attempt when the lease is over."""
    with holder_of(three) as (holder, _), Disque(*addresses(three)) as client:
        with pytest.raises(LockHeldError):
            client.lock("stopped", lease=5, timeout=0.2).acquire()
        before = client.show_lock("stopped").attempt
        holder.kill()
        with client.lock("stopped", lease=5, timeout=10) as lock:
            assert lock.attempt == before + 1


def test_tasks_take_turns(three):
    """Each task extends its lease while it has the lock."""

    async def work(client, order):
        async with client.lock("tasks", lease=1, timeout=30) as lock:
            order.append(lock.fence)
            await asyncio.sleep(1.2)
            lock.check()

    async def main():
        order = []
        async with AsyncDisque(*addresses(three)) as client:
            await asyncio.gather(*(work(client, order) for _ in range(3)))
        assert order == sorted(set(order))

    asyncio.run(main())


def test_a_lock_that_no_majority_extends_is_lost_by_the_clock(three):
    """Two of three nodes are stopped by SIGSTOP."""
    lost = []
    with Disque(addresses(three)[0], discover=False, patience=1) as client:
        lock = client.lock("minority", lease=2, on_lost=lost.append).acquire()
        for server in three.servers[1:]:
            server.pause()
        try:
            assert lock.lost.wait(4)
            assert lost == [lock]
            with pytest.raises(LockLostError):
                lock.check()
        finally:
            for server in three.servers[1:]:
                server.resume()
        three.wait_whole()
        lock.release()


def test_a_waiting_client_that_hung_up_gets_no_lock(three):
    """Spec CL9: no program would extend the lock, so all others would wait for the end of its lease."""
    a = three[0]
    fence = a.command("LOCK", "ACQUIRE", "hung", "one", 60_000)[0]
    with a.connect() as backup:
        backup.send("LOCK", "ACQUIRE", "hung", "two", 60_000, "TIMEOUT", 60_000)
        time.sleep(0.3)
    time.sleep(0.3)
    assert a.command("LOCK", "RELEASE", "hung", "one", fence) == 1
    time.sleep(0.5)
    assert a.command("LOCK", "ACQUIRE", "hung", "three", 60_000) is not None
