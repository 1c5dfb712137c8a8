"""Three real nodes with separate network stacks. Their links are cut silently: one node from two, or only one way.

Clients reach every node all the time.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest
from hiredis import ReplyError

from disque_py.client import Disque, DisqueError, LockHeldError, LockLostError
from disque_py.client.lock import now
from histories import Held, overlaps
from linearizability import ACQUIRE, EXTEND, take_jobs, take_lock, unexplained
from namespaces import SeparateCluster, why_not
from servers import until

OPTIONS = ("--cluster-node-timeout", "1000", "--cluster-secret", "a secret of sixteen or more characters")
CUT_S = 4.0
WORKERS = 6
VALUES = 3

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no namespaces of the network: {why_not()}")


@pytest.fixture
def three(tmp_path):
    """Three nodes in namespaces, all of them voters, and the exclusive queue `one-by-one`."""
    with SeparateCluster(tmp_path, 3, OPTIONS) as cluster:
        cluster[0].command("CLUSTER", "VOTERS", "INIT", *(server.node_id for server in cluster.servers))
        cluster[0].command("QUEUE", "SET", "one-by-one", "type", "exclusive", "exclusive-by", "user")
        yield cluster


def test_a_cut_is_silent_and_ends(three):
    """Links between the sides end by their timeout, and come back by themselves."""
    a, b, c = three.servers
    with three.cut([0], [1, 2]):
        until(lambda: not a.sees_well(3) and not b.sees_well(3))
        until(lambda: b.nodes()[c.node_id][4] == "connected")
    three.wait_whole()


def test_both_sides_of_a_partition_go_on_and_nothing_is_lost(three):
    """By default an add needs a majority of all nodes within reach. With an explicit number of copies it doesn't."""
    added, done = set(), set()

    def add(server, copies=()):
        added.add(server.command("ADDJOB", "plain", "x", 2_000, *copies, "RETRYMS", 1_000))

    for server in three.servers:
        add(server)
    with three.cut([0], [1, 2]):
        until(lambda: not any(server.sees_well(3) for server in three.servers))
        for server in three.servers[1:]:
            until(lambda server=server: answers(add, server))
        for copies in ((), ("REPLICATE", 2)):
            with pytest.raises(ReplyError, match="NOREPL"):
                add(three[0], copies)
        add(three[0], ("REPLICATE", 1))
        for server in three.servers:
            done |= fetch_all(server)
    three.wait_whole()
    until(lambda: done.update(*(fetch_all(server) for server in three.servers)) or added <= done)
    for server in three.servers:
        until(lambda server=server: server.command("QLEN", "plain") == 0)


def answers(call, *arguments):
    """Return whether a call is answered without an error."""
    try:
        call(*arguments)
    except ReplyError:
        return False
    return True


def fetch_all(server):
    """Fetch and acknowledge all jobs of a node, and return their ids."""
    found = set()
    while reply := server.command("GETJOB", "NOHANG", "COUNT", 10, "FROM", "plain"):
        found |= {job_id for _, job_id, _ in reply}
        server.command("ACKJOB", *(job_id for _, job_id, _ in reply))
    return found


@contextmanager
def threads(*works):
    """Run functions in separate threads, each with an event that ends it. Their errors are raised."""
    stop, errors = threading.Event(), []

    def run(work):
        try:
            work(stop)
        except BaseException as error:
            errors.append(error)
            raise

    running = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join()
    assert errors == []


CUTS = {
    "one against two": ([0], [1, 2], True),
    "one that is not heard": ([0], [1, 2], False),
    "one that hears nothing": ([1, 2], [0], False),
}


@pytest.mark.parametrize("cut", CUTS)
def test_no_two_workers_have_jobs_of_one_value(three, cut):
    """Spec EX3: a history over a cut of several leases. The majority goes on meanwhile."""
    history = []

    def work(number):
        def consume(stop):
            with three[number % 3].connect() as connection:
                while not stop.is_set():
                    asked = time.monotonic()
                    reply = connection.command("GETJOB", "TIMEOUT", 200, "WITHLEASE", "FROM", "one-by-one")
                    began = time.monotonic()
                    if not reply:
                        continue
                    _, job_id, value, _, lease_ms, _, _, _, fence = reply[0]
                    time.sleep(0.005)
                    ended = min(time.monotonic(), asked + lease_ms / 1_000)
                    if ended > began:
                        history.append(Held(value, fence, began, ended))
                    connection.send("ACKJOB", job_id)
                    connection.read()

        return consume

    def produce(number):
        def add(stop):
            with three[number].connect() as connection:
                count = 0
                while not stop.wait(0.01):
                    user = f"u{count % VALUES}"
                    connection.send("ADDJOB", "one-by-one", user, 300, "RETRYMS", 700, "META", "user", user)
                    connection.read()  # The reply may be -NOREPL.
                    count += 1

        return add

    one_side, other_side, both_ways = CUTS[cut]
    with threads(*map(work, range(WORKERS)), *map(produce, range(3))):
        until(lambda: len(history) > WORKERS)
        with three.cut(one_side, other_side, both_ways=both_ways):
            began = time.monotonic()
            until(lambda: time.monotonic() > began + CUT_S)
            until(lambda: any(held.began > began + 2 for held in history))
        three.wait_whole()
        healed = len(history)
        until(lambda: len(history) > healed)
    assert overlaps(history) == []


def test_no_two_owners_have_a_lock(three):
    """Spec CL8, CL9: there are takers at all nodes while one node is cut off. The side with two voters goes on."""
    history, refused = [], []

    def take(number):
        def work(stop):
            with Disque(f"{three[number].host}:{three[number].port}", discover=False, patience=0.5) as client:
                while not stop.is_set():
                    try:
                        with client.lock("busy", lease=1, timeout=0.5) as lock:
                            began = now()
                            time.sleep(0.01)
                            ended = now()
                            if lock.is_held:
                                history.append(Held(b"busy", lock.fence, began, ended))
                    except (LockHeldError, LockLostError):
                        pass
                    except DisqueError as error:
                        refused.append((number, error))

        return work

    with threads(*map(take, (0, 1, 2, 0, 1, 2))):
        until(lambda: len(history) > WORKERS)
        with three.cut([0], [1, 2]):
            began = now()
            until(lambda: any(number == 0 for number, _ in refused))
            until(lambda: any(held.began > began + 2 for held in history))
        three.wait_whole()
        healed = len(history)
        until(lambda: len(history) > healed)
    assert overlaps(history) == []


@pytest.mark.parametrize("cut", CUTS)
def test_the_replies_about_locks_and_values_are_linearizable(three, cut):
    """Spec CL8, CL9, EX3, EX5: the calls of owners and workers at all nodes, some of which act too late."""
    history = []

    def take(number):
        return lambda stop: take_lock(three[number % 3], b"order", 600, history, stop, number)

    def work(number):
        return lambda stop: take_jobs(three[number % 3], "one-by-one", history, stop, number)

    def produce(stop):
        with three[1].connect() as connection:
            while not stop.wait(0.01):
                connection.send("ADDJOB", "one-by-one", "ann", 300, "RETRYMS", 700, "META", "user", "ann")
                connection.read()  # The reply may be -NOREPL.

    def taken_since(moment):
        return {call.name for call in history if call.what == ACQUIRE and call.began > moment}

    one_side, other_side, both_ways = CUTS[cut]
    with threads(*map(take, range(6)), *map(work, range(6)), produce):
        until(lambda: taken_since(0) == {b"order", b"ann"})
        with three.cut(one_side, other_side, both_ways=both_ways):
            began = time.monotonic()
            until(lambda: time.monotonic() > began + CUT_S)
            until(lambda: taken_since(began + 2) == {b"order", b"ann"})
        three.wait_whole()
        healed = time.monotonic()
        until(lambda: taken_since(healed) == {b"order", b"ann"})
    assert any(call.what == EXTEND and call.is_ok for call in history)
    assert unexplained(history) == []
