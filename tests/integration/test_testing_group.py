"""testing/group.py: linked nodes."""

from __future__ import annotations

from disque_py import testing


def test_three_linked_nodes_survive_the_loss_of_one():
    with testing.cluster(nodes=3) as cluster:
        cluster.kill(1)
        with cluster.client() as disque:
            disque.add_job("q", b"body", replicate=2)
            assert disque.get_job("q").body == b"body"
        cluster.restart(1)
        cluster.stop(0)
        assert [node.is_running for node in cluster] == [False, True, True]
