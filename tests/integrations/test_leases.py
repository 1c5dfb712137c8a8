"""The thread that extends leases."""

from __future__ import annotations

import os
import time

import pytest

from client_node import JOB_A, SILENCE, Node
from disque_py import testing
from disque_py.client import Disque, FencedError, Job
from disque_py.integrations.leases import LeaseKeeper


@pytest.fixture
def make_keeper(client):
    """A function that makes keepers on the shared client. They are closed at the end of the test."""
    made = []

    def make(lease_s, **hooks):
        made.append(LeaseKeeper(lambda: client, lease_s, **hooks))
        return made[-1]

    yield make
    for keeper in made:
        keeper.close()


def fetched(client, queue, lease=1):
    """Add a job and fetch it with a lease. Return the job."""
    client.add_job(queue, b"body", retry=lease)
    return client.get_job(queue, withlease=True, lease=lease)


def test_a_held_job_is_not_delivered_again(client, name, make_keeper):
    keeper = make_keeper(2)
    job = fetched(client, name, 2)
    keeper.add(job)
    assert client.get_job(name, timeout_ms=3_500) is None
    assert keeper.remove(job)
    assert client.get_job(name, timeout_ms=60_000).id == job.id


def test_a_canceled_job_is_reported_and_released(client, name, make_keeper):
    canceled = []
    keeper = make_keeper(60, on_canceled=canceled.append)
    job = fetched(client, name, 60)
    keeper.add(job)
    client.cancel(job)
    keeper.extend(job.node, [job])
    assert canceled == [job]
    assert not keeper.holds(job)


def test_a_lost_lease_is_reported_once(client, name, make_keeper):
    lost = []
    keeper = make_keeper(60, on_lost=lost.append)
    job = fetched(client, name)
    keeper.add(job)
    assert client.get_job(name, timeout_ms=60_000, withlease=True).attempt == 2
    keeper.extend(job.node, [job])
    keeper.extend(job.node, [job])
    assert lost == [job]


def test_the_end_of_a_lost_delivery_leaves_the_lease_of_the_next_one(client, name, make_keeper):
    """A worker that stood still may get a job again while its first task still runs."""
    keeper = make_keeper(60)
    first = fetched(client, name)
    second = client.get_job(name, timeout_ms=60_000, withlease=True, lease=60)
    assert (second.id, second.attempt) == (first.id, 2)
    keeper.add(first, second)
    keeper.remove(first)
    assert keeper.holds(second)
    assert not keeper.holds(first)


class Refusing:
    """A client whose node answers every WORKING with this error."""

    def __init__(self, error):
        self.error = error
        self.count = 0

    def pipeline(self):
        return self

    def add(self, request):
        self.count += 1

    def execute(self):
        return [self.error] * self.count


def test_a_lease_that_a_later_claim_has_ended_is_lost():
    """An exclusive value, or a queue with `assign quorum`: another worker has the job."""
    lost = []
    keeper = LeaseKeeper(lambda: Refusing(FencedError("FENCED A later claim is known")), 60, on_lost=lost.append)
    job = Job("q", "D-aaaaaaaa-" + "x" * 24 + "-05a1", b"", attempt=1, fence=1)
    keeper.add(job)
    keeper.extend(None, [job])
    keeper.close()
    assert lost == [job]
    assert not keeper.holds(job)


def test_a_lease_on_another_node_is_not_that_of_a_later_delivery():
    """The node that delivered the job was killed, and has lost it. The other one delivered it again."""
    lost = []
    with testing.cluster(2) as cluster, cluster[0].client(discover=False) as one:
        one.add_job("q", "x", retry=1, replicate=2)
        first = one.get_job("q", withlease=True, timeout_ms=60_000)
        cluster.kill(0)
        with cluster[1].client(discover=False) as other:
            second = other.get_job("q", withlease=True, timeout_ms=60_000, lease=60)
        assert (second.id, second.attempt) == (first.id, 2)
        cluster.restart(0)
        cluster.wait_whole()
        with Disque(cluster[0].address, cluster[1].address) as client:
            keeper = LeaseKeeper(lambda: client, 60, on_lost=lost.append)
            keeper.add(first)
            keeper.extend(first.node, [first])
            keeper.close()
    assert lost == [first]


def test_a_lease_outlives_the_node_that_gave_it():
    with testing.cluster() as cluster, cluster.client() as client:
        job = fetched(client, "queue", 4)
        keeper = LeaseKeeper(lambda: client, 4)
        keeper.add(job)
        cluster.kill(next(at for at, node in enumerate(cluster) if node.port == job.node.port))
        assert client.get_job("queue", timeout_ms=6_000) is None
        keeper.close()


def test_a_silent_node_is_left_for_another_one_while_the_lease_lasts():
    """The client itself would wait five seconds."""
    with Node("a", {"WORKING": SILENCE}) as silent, Node("b", {"WORKING": b":2\r\n"}) as holder:
        silent.peers = [holder]
        with Disque(silent.address) as client:
            client.ping()
            job = Job("q", JOB_A, b"", attempt=1, node=client.node)
            began = time.monotonic()
            assert LeaseKeeper(lambda: client, 1.2).extend(job.node, [job])
            assert time.monotonic() - began < 3
            assert len(holder.named("WORKING")) == 1


def test_a_forked_child_holds_nothing(client, name, make_keeper):
    keeper = make_keeper(60)
    job = fetched(client, name, 60)
    keeper.add(job)
    child = os.fork()
    if not child:
        os._exit(keeper.holds(job))
    assert os.waitpid(child, 0)[1] == 0
    assert keeper.holds(job)


def test_a_lease_lasts_a_second_at_least(client):
    with pytest.raises(ValueError, match="a second"):
        LeaseKeeper(lambda: client, 0.5)


def test_a_keeper_that_is_closed_extends_nothing(client, name, make_keeper):
    keeper = make_keeper(1)
    keeper.add(fetched(client, name))
    keeper.close()
    assert client.get_job(name, timeout_ms=60_000) is not None


def ending(client, name, make_keeper, lease_s):
    """Return a keeper, and a job of the keeper whose work has ended."""
    keeper = make_keeper(lease_s)
    job = fetched(client, name, lease_s)
    keeper.add(job)
    keeper.remove_later(job)
    return keeper, job


def test_a_lease_is_extended_for_one_more_lease_after_the_end_of_the_work(client, name, make_keeper):
    keeper, job = ending(client, name, make_keeper, 2)
    assert keeper.is_ending(job)
    assert client.get_job(name, timeout_ms=60_000).id == job.id
    assert not keeper.holds(job)


def test_a_job_that_comes_again_is_not_ending(client, name, make_keeper):
    keeper, job = ending(client, name, make_keeper, 60)
    keeper.add(job)
    assert not keeper.is_ending(job)
    assert keeper.holds(job)


def test_a_settled_job_is_not_ending(client, name, make_keeper):
    keeper, job = ending(client, name, make_keeper, 60)
    assert keeper.remove(job)
    keeper.remove_later(job)
    assert not keeper.is_ending(job)
