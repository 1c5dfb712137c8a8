"""Zones of three real nodes: places in their files, copies, a quorum, clients that prefer their zone, a rebalance."""

from __future__ import annotations

import asyncio

import pytest

from disque_py.client import AsyncDisque, Disque, NoReplError
from servers import HOST, Cluster

PLACES = (("eu", "a"), ("eu", "b"), ("us", "a"))


@pytest.fixture
def placed(tmp_path):
    """Three nodes in three zones of two data centres."""
    cluster = Cluster(tmp_path, 3)
    for server, (datacenter, zone) in zip(cluster.servers, PLACES, strict=True):
        server.options += ["--datacenter", datacenter, "--zone", zone, "--cluster-node-timeout", "1000"]
    with cluster:
        cluster.wait_whole()
        yield cluster


def address(server):
    return f"{HOST}:{server.port}"


def places_at(server):
    """Return the places of all nodes in HELLO EXTENDED, by id."""
    found = {}
    for entry in server.command("HELLO", "EXTENDED")[2:]:
        more = dict(zip(entry[4::2], entry[5::2], strict=True))
        found[entry[0].decode()] = (more[b"datacenter"].decode(), more[b"zone"].decode())
    return found


def test_places_are_known_everywhere_and_after_a_restart_alone(placed):
    """Spec ZN1, ZN4. A node that starts while the others are gone still counts them for a quorum."""
    everywhere = {server.node_id: place for server, place in zip(placed.servers, PLACES, strict=True)}
    assert all(places_at(server) == everywhere for server in placed.servers)
    first, *others = placed.servers
    first.stop()
    for server in others:
        server.kill()
    first.start()
    assert places_at(first) == everywhere
    with Disque(address(first), patience=0) as client, pytest.raises(NoReplError):
        client.add_job("q", b"x", replicate="quorum", timeout_ms=500)


def test_a_client_uses_the_node_of_its_zone_and_fails_over(placed):
    """Spec ZN9."""
    seeds = [address(server) for server in placed.servers]
    for at, (datacenter, zone) in enumerate(PLACES):
        with Disque(seeds[0], datacenter=datacenter, zone=zone) as client:
            client.ping()
            assert str(client.node) == seeds[at]
    with Disque(*seeds, datacenter="eu", zone="b") as client:
        client.add_job("q", b"one", replicate=1)
        placed[1].kill()
        client.add_job("q", b"two", replicate=1)
        assert str(client.node) == seeds[0]


def test_the_asyncio_client_prefers_its_zone_too(placed):
    """Spec ZN9."""

    async def used():
        async with AsyncDisque(address(placed[0]), datacenter="us", zone="a") as client:
            await client.ping()
            return str(client.node)

    assert asyncio.run(used()) == address(placed[2])


def test_a_quorum_is_in_the_data_centre_and_the_other_one_gets_a_copy(placed):
    """Spec ZN4."""
    with Disque(address(placed[0])) as client:
        job = client.add_job("q", b"x", replicate="quorum")
        shown = client.show(job)
        assert shown.repl == 2
        assert client.add_job("q", b"x", replicate=3, zones=3)


def test_a_rebalance_gives_each_node_its_part(placed):
    """Spec ZN7, ZN8."""
    with Disque(address(placed[0]), discover=False) as client:
        client.add_jobs("work", [b"%d" % number for number in range(3_000)], replicate=1)
        task = client.rebalance("work")
        assert (task.jobs, task.failed, task.nodes_missing) == (2_000, 0, [])
    assert [server.command("QLEN", "work") for server in placed.servers] == [1_000] * 3
